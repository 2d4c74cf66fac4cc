"""The topologies of the load tests. Each is a separate program that uses only the public API."""
