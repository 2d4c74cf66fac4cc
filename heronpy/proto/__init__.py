"""Protocols: the .proto files and the code that `make proto` generates from them."""

from __future__ import annotations

from typing import Any


def components_of(topology: Any) -> dict[str, Any]:
    """The Spout or Bolt message of each component of a topology message, spouts first."""
    return {part.comp.name: part for part in (*topology.spouts, *topology.bolts)}
