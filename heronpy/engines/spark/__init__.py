"""Spark as an engine: each container is a Spark job with one task in its own executor, and ends with its driver."""
