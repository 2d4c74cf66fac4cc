"""Verbs that run topologies of their own and judge the results."""
