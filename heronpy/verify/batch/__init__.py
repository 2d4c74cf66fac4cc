"""Batch runs under faults: their topology, the faults, and the checks."""
