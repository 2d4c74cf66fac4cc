"""Verbs that look at a topology."""
