"""The topology master: one process per topology that builds its plans and drives its life.

`machine` decides, `shell` acts; nothing of the data path passes through here, so the master may
die and come back at any time without touching a tuple.
"""
