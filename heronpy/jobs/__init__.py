"""Jobs: the desired state of topologies, described in layers by several writers and established by the syncer."""
