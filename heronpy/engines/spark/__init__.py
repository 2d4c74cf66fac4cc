"""Spark as an engine: each container is a job of one task in its own executor, and ends with its driver."""
