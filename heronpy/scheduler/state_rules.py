"""What a container may do with the state of its topology at the scheduler's door (pure).

Everything that is not listed is refused: other topologies, the scheduler's own nodes and its ledger, and nodes that
only the command writes. A container that was broken into can harm its own topology, and no other.
"""

from __future__ import annotations

import enum
from typing import Protocol

from heronpy.statemgr import paths


class Use(enum.Enum):
    """What a call does with a node."""

    READ = "read"
    LIST = "list"
    WRITE = "write"
    EPHEMERAL = "create as an ephemeral"
    COUNT = "count"
    LOCK = "lock"


class Rules(Protocol):
    """Who may do what."""

    def refusal(self, use: Use, path: str) -> str:
        """Why not; "" when it is allowed."""


class ContainerRules:
    """For the containers of one topology: what executors, stream managers and topology masters need."""

    def __init__(self, topology: str) -> None:
        self._topology = topology
        written = {
            paths.topology(topology),
            paths.packing_plan(topology),
            paths.physical_plan(topology),
            paths.update_intent(topology),
            paths.tmaster(topology),
            paths.totals(topology),
            paths.events(topology),
            paths.minutes(topology),
            paths.counts(topology),
            paths.checkpoints(topology),
        }
        epoch = paths.epoch(topology, "tmaster")
        self._allowed: dict[Use, set[str]] = {
            Use.READ: written
            | {epoch, paths.scheduler(topology), paths.execution_state(topology), paths.launch(topology)},
            Use.LIST: set(),
            Use.WRITE: written,
            Use.EPHEMERAL: {paths.tmaster(topology)},
            Use.COUNT: {epoch},
            Use.LOCK: set(),
        }

    def refusal(self, use: Use, path: str) -> str:
        """Why a container may not do it; "" when it may."""
        if path in self._allowed[use]:
            return ""
        return f"a container of topology {self._topology!r} may not {use.value} state node {path!r}"
