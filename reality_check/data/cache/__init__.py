"""Images decoded once, kept as one memory-mapped array."""
