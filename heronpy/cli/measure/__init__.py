"""Verbs that run their own topologies and judge them."""
