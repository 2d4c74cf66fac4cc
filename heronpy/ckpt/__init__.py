"""A checkpoint's content: plain and keyed state, snapshots, segments, the checkpoint chain, restoring, replication.

When one is taken, and when a region goes back, is decided in `heronpy.tmaster`.
"""
