"""Spark as an engine: each container is a job of one task in an executor of its own, and ends with its driver."""
