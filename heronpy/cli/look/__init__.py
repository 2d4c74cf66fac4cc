"""Verbs that show a topology."""
