"""Diagnoses slow topologies: turns the figures of a time window into findings with evidence and sentences. Pure.

`signals` turns the answers of a topology master into figures, `diagnose` decides, `texts` writes the sentence.
The package does no I/O, so replaying a recorded history gives the same diagnosis.
"""
