"""Stores for what outlives a process: packages of user code."""
