"""The protocols: .proto files, and the code that `make proto` generates from them."""

from __future__ import annotations

from typing import Any


def components_of(topology: Any) -> dict[str, Any]:
    """Return the Spout or Bolt message of each component by name, spouts first."""
    return {part.comp.name: part for part in (*topology.spouts, *topology.bolts)}
