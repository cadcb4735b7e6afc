"""Published papers on the losses: their printed tables, and tests of their claims."""
