"""A checkpoint's content: plain and keyed state, snapshots, segments, the checkpoint chain, restoring, replication.

`heronpy.tmaster` decides when a checkpoint is taken, and when a region is restored.
"""
