"""Checkpoints: regions, barriers, the coordinator, keyed state, retention and replication."""
