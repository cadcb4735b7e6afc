"""Who does the work: workers, their processes and devices, and SLURM."""
