"""The rights of containers and of the user's clients to access a topology's state at the control endpoint. Pure.

All other access is refused, such as access to other topologies, to the scheduler's nodes and ledger, and to nodes that
only commands write. Only containers with a topology master may write nodes. A compromised container can harm only its
own topology.
"""

from __future__ import annotations

import enum
from typing import Final, Protocol

from heronpy.pools.shards import BUCKETS
from heronpy.statemgr import paths

#: Used instead of a container number in the sessions of the user's clients.
CLIENT: Final = (1 << 32) - 1
#: Answers up to this size are not counted, because the queue of their connection bounds their number.
SMALL_MAX_BYTES: Final = 256 << 10
SESSION_MAX_BYTES: Final = 32 << 20
ALL_MAX_BYTES: Final = 256 << 20


class Use(enum.Enum):
    """The kind of access to a node that a call needs."""

    READ = "read"
    WRITE = "write"
    EPHEMERAL = "create as an ephemeral"
    COUNT = "count"
    LOCK = "lock"


class Rules(Protocol):
    """The rights of one kind of session to access the state."""

    def refusal(self, use: Use, path: str, container: int) -> str:
        """The reason for a refusal; "" if the access is allowed."""


class ContainerRules:
    """The rights of one topology's containers: those that executors, stream managers and topology masters need."""

    def __init__(self, topology: str) -> None:
        self._topology = topology
        #: Containers in which a topology master or a standby runs; only these containers write.
        self.masters: frozenset[int] = frozenset((0,))
        written = set(paths.of_master(topology))
        epoch = paths.epoch(topology, "tmaster")
        self._allowed: dict[Use, set[str]] = {
            Use.READ: written
            | {epoch, paths.scheduler(topology), paths.execution_state(topology), paths.launch(topology)},
            Use.WRITE: written,
            Use.EPHEMERAL: {paths.tmaster(topology)},
            Use.COUNT: {epoch},
            Use.LOCK: set(),
        }

    def refusal(self, use: Use, path: str, container: int) -> str:
        """Why a container may not access a node; "" if the access is allowed."""
        if path in self._allowed[use]:
            if use is Use.READ or container in self.masters:
                return ""
            return f"container {container} has no topology master, so it may not {use.value} state node {path!r}"
        return f"a container of topology {self._topology!r} may not {use.value} state node {path!r}"


class PoolRules:
    """The rights of a pool's slots: to the pool's nodes, and to the nodes that the pool's topologies need.

    All topologies belong to the same user and trust each other, because any slot may run any of their topology masters.
    """

    def __init__(self, pool: str) -> None:
        self._pool = pool
        self._read = {paths.pool_map(pool), *(paths.pool_specs(pool, bucket) for bucket in range(BUCKETS))}
        #: The rules of the pool's topologies, by topology name.
        self.members: dict[str, ContainerRules] = {}
        #: As in `ContainerRules`; a pool itself has no topology masters.
        self.masters: frozenset[int] = frozenset()

    def refusal(self, use: Use, path: str, container: int) -> str:
        """Why a slot may not access a node; "" if the access is allowed."""
        if (use is Use.READ and path in self._read) or (
            use in (Use.READ, Use.WRITE) and path == paths.pool_slot(self._pool, container)
        ):
            return ""
        member = self.members.get(path.split("/")[1] if "/" in path else "")
        if member is not None:
            return member.refusal(use, path, 0)
        return f"a slot of pool {self._pool!r} may not {use.value} state node {path!r}"


class ClientRules:
    """The rights of the user's commands on other hosts: to read nodes and announce operations, but not to write."""

    def __init__(self, topology: str) -> None:
        self._topology = topology
        nodes = (
            paths.topology,
            paths.packing_plan,
            paths.physical_plan,
            paths.update_intent,
            paths.tmaster,
            paths.scheduler,
            paths.execution_state,
            paths.launch,
            paths.submission,
            paths.operation,
            # Commands read these nodes for a topology that belongs to a job.
            paths.job,
            paths.totals,
            paths.events,
            paths.minutes,
            paths.counts,
            paths.checkpoints,
        )
        self._allowed: dict[Use, set[str]] = {
            Use.READ: {node(topology) for node in nodes},
            Use.WRITE: set(),
            Use.EPHEMERAL: {paths.operation(topology)},
            Use.COUNT: set(),
            Use.LOCK: {operations_lock(topology)},
        }

    def refusal(self, use: Use, path: str, container: int) -> str:
        """Why a client may not access a node; "" if the access is allowed."""
        if path in self._allowed[use]:
            return ""
        return f"a command on another host may not {use.value} state node {path!r} of topology {self._topology!r}"


def operations_lock(topology: str) -> str:
    """The lock that commands hold while they submit or kill a topology."""
    return f"operations/{topology}"


class LargeAnswers:
    """Counts the bytes of large answers that wait at the endpoint, by session and request.

    ZeroMQ limits the number of messages that wait for a peer, but not their bytes, and a value may have megabytes. Each
    large answer is therefore counted until a later call of its session confirms it, or until the session ends.
    """

    def __init__(self, session_max: int = SESSION_MAX_BYTES, all_max: int = ALL_MAX_BYTES) -> None:
        self._session_max, self._all_max = session_max, all_max
        self._waiting: dict[int, dict[int, int]] = {}
        self.bytes = 0

    def settle(self, session: int, awaits: int) -> None:
        """Record that a session no longer waits for the answers to requests with ids below `awaits`."""
        waiting = self._waiting.get(session)
        if waiting is None:
            return
        for request in [one for one in waiting if one < awaits]:
            self.bytes -= waiting.pop(request)
        if not waiting:
            del self._waiting[session]

    def take(self, session: int, request: int, size: int) -> bool:
        """Whether an answer may be sent now. A repeated answer counts once. An answer that waits alone is allowed."""
        if size <= SMALL_MAX_BYTES:
            return True
        waiting = self._waiting.get(session, {})
        others = sum(waiting.values()) - waiting.get(request, 0)
        whole = self.bytes - waiting.get(request, 0) + size
        if (others and others + size > self._session_max) or (whole > size and whole > self._all_max):
            return False
        self._waiting.setdefault(session, waiting)[request] = size
        self.bytes = whole
        return True

    def end(self, session: int) -> None:
        """Forget a session that has ended."""
        self.bytes -= sum(self._waiting.pop(session, {}).values())
