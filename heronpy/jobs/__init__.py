"""Jobs: the desired state of topologies. Several writers describe it in layers, and the syncer makes it true."""
