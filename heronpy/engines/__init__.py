"""Engines: the clusters that place containers."""
