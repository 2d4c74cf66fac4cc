"""Verbs that change a running topology, or end it."""
