"""Stores for what outlives a process: packages of user code, checkpoints, dead letters."""
