"""Stores for data that outlives a process: packages of user code, checkpoints, dead letters."""
