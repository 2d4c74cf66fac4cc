"""Slurm as an engine: `sbatch`, `squeue` and `scancel`, with explicit text formats."""
