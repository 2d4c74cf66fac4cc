"""The topology master: one process per topology that builds its plans and drives its life cycle.

`machine` decides and `shell` acts. No tuple passes through the topology master, so it may
die and restart at any time without affecting the data path.
"""
