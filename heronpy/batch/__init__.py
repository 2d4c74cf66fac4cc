"""Batch runs: a topology processes bounded input in successive stages. Each stage is a pipeline of work units."""
