"""Finds what slows a topology down: figures of a time window, a diagnosis with its evidence, and its wording. Pure.

`signals` turns the answers of a topology master into figures, `diagnose` decides, `texts` words the result. The package
does no I/O, so a recorded history gives the same diagnosis again.
"""
