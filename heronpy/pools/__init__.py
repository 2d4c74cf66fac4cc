"""Pools: the assignment of containers of many topologies to slots, and the rules for changing slots."""
