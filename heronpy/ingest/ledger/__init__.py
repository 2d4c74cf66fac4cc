"""The ledger: a database that records the state of each byte of a pipeline's files."""
