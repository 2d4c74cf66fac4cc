"""Verbs that run and judge their own topologies."""
