"""Pools: which slot runs which containers of many topologies, and when a container may change its slot."""
