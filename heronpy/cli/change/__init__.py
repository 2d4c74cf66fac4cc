"""Verbs that change or end a running topology."""
