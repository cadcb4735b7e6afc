"""Utilities without metric learning: files, locks, processes, seeds, checkpoints, text."""
