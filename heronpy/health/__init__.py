"""What holds a topology back (pure): figures of a window, a diagnosis that names its evidence, and its sentence.

`signals` turns the answers of a topology master into figures, `diagnose` decides, `texts` speaks. Nothing here asks
anybody anything, so a recorded history gives the same diagnosis again.
"""
