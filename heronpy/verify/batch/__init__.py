"""Batch runs under faults: their topology, what is done to them, and what is judged."""
