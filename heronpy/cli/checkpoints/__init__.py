"""Checkpoints of a topology, on disk and in use."""
