"""What work units write: a table of folders, each published whole and once."""
