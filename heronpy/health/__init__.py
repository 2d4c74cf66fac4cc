"""Diagnoses slow topologies: figures of a time window, a diagnosis with its evidence, and its sentence. Pure.

`signals` turns the answers of a topology master into figures, `diagnose` decides, `texts` writes the sentence.
The package does no I/O, so a recorded history gives the same diagnosis again.
"""
