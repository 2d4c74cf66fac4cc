"""Bolts."""
