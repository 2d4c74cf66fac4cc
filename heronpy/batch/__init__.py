"""A run over bounded input: stages one after the other, each a pipeline of work units."""
