"""Outputs of work units: a table of folders, each published completely and once."""
