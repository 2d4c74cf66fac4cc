"""The ledger: what is known of each byte of the files of a pipeline, in a database."""
