"""Finished runs as files: packed, read again, and joined without training."""
