"""Slurm as an engine, controlled with `sbatch`, `squeue` and `scancel` in explicit text formats."""
