"""The topologies of the load tests. Each is a program of its own that uses only the public API."""
