"""The topology master: one process per topology that builds its plans and drives its life cycle.

`machine` decides, `shell` acts; the data path does not pass through here, so the master may
die and restart at any time without affecting a tuple.
"""
