"""Ready-made sources and sinks."""
