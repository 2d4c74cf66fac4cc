"""Logical, packing and physical plans, groupings and differences, as pure data."""
