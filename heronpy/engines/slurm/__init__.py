"""Slurm as an engine: `sbatch`, `squeue` and `scancel`, with text formats of our own."""
