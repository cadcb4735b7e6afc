"""What knows nothing of metric learning: files, locks, processes, seeds, checkpoints, text."""
