"""Jobs: the desired state of topologies, which several writers describe in layers and the syncer establishes."""
