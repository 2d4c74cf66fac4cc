"""Finds the components of a topology that are restored together.

Pure. A region is a weakly connected component of the graph of streams: a component that goes back to a
checkpoint takes everything upstream and downstream of it along. Regions never overlap, and their union is
the topology.
"""

from __future__ import annotations

from heronpy.proto import topology_pb2 as api


def regions_of(topology: api.Topology) -> list[frozenset[str]]:
    """The regions, ordered by their first component in the order of definition."""
    names = [spout.comp.name for spout in topology.spouts] + [bolt.comp.name for bolt in topology.bolts]
    leader = {name: name for name in names}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for bolt in topology.bolts:
        for item in bolt.inputs:
            if item.stream.component_name in leader:
                leader[find(bolt.comp.name)] = find(item.stream.component_name)
    found: dict[str, set[str]] = {}
    for name in names:
        found.setdefault(find(name), set()).add(name)
    return [frozenset(members) for members in found.values()]
