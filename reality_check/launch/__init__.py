"""Who does the work: workers, their processes and devices, SLURM and other schedulers."""
