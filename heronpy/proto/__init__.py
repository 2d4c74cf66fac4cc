"""Protocols: the .proto files and the code that `make proto` generates from them."""

from __future__ import annotations

from typing import Any


def components_of(topology: Any) -> list[Any]:
    """The Spout and Bolt messages of a topology message, spouts first."""
    return [*topology.spouts, *topology.bolts]
