"""Finds and identifies files that grow while they are read, and reads their complete lines."""
