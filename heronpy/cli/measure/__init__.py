"""Verbs that run their own topologies and check the results."""
