"""The topology master's access to the state manager: claims the topology, and loads and writes plans.

Invariants: nothing is written before the location is claimed; every write names the version that it
replaces, so if two masters claim the topology, only one succeeds. A master that finds a location with a higher epoch
raises FencedError and must not be restarted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec import Struct

from heronpy.common.errors import (
    DamagedStateError,
    FencedError,
    NodeExistsError,
    NoNodeError,
    ReplacedError,
    StateError,
    VersionMismatchError,
)
from heronpy.proto import checkpoint_pb2, control_pb2, plan_pb2, topology_pb2
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager, Watch
from heronpy.tmaster.events import Node

M = TypeVar("M", bound=Message)

#: Number of attempts to write a node that another process also writes.
_OUTDATE_TRIES = 100
#: Nodes that a predecessor may still create.
_WRITTEN_LATER = (Node.UPDATE, Node.TOTALS, Node.EVENTS, Node.MINUTES, Node.COUNTS, Node.LAST)


class TopologyRemovedError(StateError):
    """The topology was removed and needs no master."""


class Loaded(Struct, frozen=True):
    """The state that a topology master finds when it starts."""

    topology: topology_pb2.Topology
    packing: plan_pb2.PackingPlan
    previous: plan_pb2.PhysicalPlan | None
    intent: plan_pb2.UpdateIntent | None
    checkpoints: checkpoint_pb2.CheckpointLog | None = None
    totals: control_pb2.TotalsLedger | None = None
    happened: control_pb2.EventLedger | None = None
    minutes: control_pb2.MinutesLedger | None = None
    counts: control_pb2.MetricsLedger | None = None
    #: Used only for the submission time.
    submitted: plan_pb2.ExecutionState | None = None


class Store:
    def __init__(self, state: StateManager, topology: str, epoch: int | None) -> None:
        self._state = state
        self._topology = topology
        self.epoch = epoch if epoch is not None else state.counter(paths.epoch(topology, "tmaster"))
        self._location: plan_pb2.TmasterLocation | None = None
        self._paths = {
            Node.TOPOLOGY: paths.topology(topology),
            Node.PACKING_PLAN: paths.packing_plan(topology),
            Node.PHYSICAL_PLAN: paths.physical_plan(topology),
            Node.UPDATE: paths.update_intent(topology),
            Node.CHECKPOINTS: paths.checkpoints(topology),
            Node.TOTALS: paths.totals(topology),
            Node.EVENTS: paths.events(topology),
            Node.MINUTES: paths.minutes(topology),
            Node.COUNTS: paths.counts(topology),
            Node.LAST: paths.last_answers(topology),
        }
        #: Version of each node as last read or written; 0 for a node that does not exist.
        self._versions: dict[Node, int] = {}
        #: Whether a predecessor may still be alive. If so, nodes are emptied instead of removed: their versions keep
        #: growing, so the predecessor's versions stay outdated.
        self._outdated = False

    def claim(self, endpoint: str, pid: int, host: str) -> plan_pb2.TmasterLocation | None:
        """Become the master (None), or return the current master. Raises FencedError if the current master is newer."""
        location = plan_pb2.TmasterLocation(
            topology=self._topology, endpoint=endpoint, epoch=self.epoch, pid=pid, host=host
        )
        path = paths.tmaster(self._topology)
        # From here on this process is the master, even if the reply to the next request is lost.
        self._location = location
        try:
            self._state.create(path, location.SerializeToString(), ephemeral=True)
        except NodeExistsError:
            if not self.check_fence():
                self._location = None
                found = self._state.get(path)
                return _parse(plan_pb2.TmasterLocation, found[0], path) if found is not None else location
        return None

    def holder(self) -> bytes | None:
        """Return the location of the current master; None if a master is needed but missing.

        Raises StateError if the topology itself is gone, so no master is needed.
        """
        found = self._state.get(paths.tmaster(self._topology))
        if found is not None:
            return found[0]
        if not self._state.exists(self._paths[Node.TOPOLOGY]):
            raise StateError(f"{self._topology} was removed from the state manager")
        return None

    def is_ours(self, holder: bytes) -> bool:
        """Whether this process wrote the location, even if the write was never confirmed."""
        return self._location is not None and holder == self._location.SerializeToString()

    def take_over(self, silent: bytes | None, endpoint: str, pid: int, host: str) -> bool:
        """Become the master with a new epoch, replacing a silent master if given.

        Returns False if another process was faster; after a StateError, the next call continues where this one stopped.
        No lock is used, because a stopped process would keep it. Instead, a process withdraws if it finds that a later
        epoch has been taken, so epochs follow the order of the claims.
        """
        path, counter = paths.tmaster(self._topology), paths.epoch(self._topology, "tmaster")
        found = self._state.get(path)
        if found is None or not self.is_ours(found[0]):
            if found is not None:
                if found[0] != silent:
                    return False
                try:
                    self._state.delete(path, version=found[1])
                except (VersionMismatchError, NoNodeError):
                    return False
            self.epoch = self._state.counter(counter)
            if self.claim(endpoint, pid, host) is not None:
                return False
        latest = self._state.get(counter)
        if latest is not None and int(latest[0]) != self.epoch:
            self.release()
            return False
        return True

    def outdate(self) -> None:
        """Give every node a new version, so that a predecessor that wakes up cannot write to any node."""
        self._outdated = True
        for node, path in self._paths.items():
            for _ in range(_OUTDATE_TRIES):
                found = self._state.get(path)
                if found is None and node not in _WRITTEN_LATER:
                    break
                data, version = found or (b"", 0)
                with contextlib.suppress(VersionMismatchError, NoNodeError):
                    self._state.set(path, data, version=version)
                    break
            else:
                raise StateError(f"another process keeps writing the {node.value} of {self._topology}; try again")

    def check_fence(self) -> bool:
        """Return whether the location belongs to this process. Raises ReplacedError if it belongs to a newer master."""
        path = paths.tmaster(self._topology)
        found = self._state.get(path)
        if found is None:
            return False
        location = _parse(plan_pb2.TmasterLocation, found[0], path)
        if location.epoch > self.epoch:
            raise self._replaced(location.epoch)
        return self._location is not None and location == self._location

    def _replaced(self, newer: int) -> ReplacedError:
        return ReplacedError(f"the topology master of {self._topology}", self.epoch, newer)

    def reclaim(self) -> None:
        """Write the location again if it was removed, unless the topology is also gone.

        An older master may have written its own location when its session with the state manager was renewed.
        """
        location, path = self._location, paths.tmaster(self._topology)
        if location is not None and not self.check_fence() and self._state.exists(self._paths[Node.TOPOLOGY]):
            found = self._state.get(path)
            if found is not None and _parse(plan_pb2.TmasterLocation, found[0], path).epoch < self.epoch:
                with contextlib.suppress(VersionMismatchError, NoNodeError):
                    self._state.delete(path, version=found[1])
            self.claim(location.endpoint, location.pid, location.host)
            if not self._state.exists(self._paths[Node.TOPOLOGY]):
                # The process that removes the topology may have removed the location before this process wrote it.
                self.release()

    def watch(self, callback: Callable[[str], None]) -> Watch:
        """Call `callback`, in any thread, when the location changes."""
        return self._state.watch(paths.tmaster(self._topology), callback)

    def load(self) -> Loaded:
        """Read all nodes of the topology. Raises StateError with the name of a missing node."""
        topology = self._read(Node.TOPOLOGY, topology_pb2.Topology)
        packing = self._read(Node.PACKING_PLAN, plan_pb2.PackingPlan)
        previous = self._read(Node.PHYSICAL_PLAN, plan_pb2.PhysicalPlan)
        intent = self._read(Node.UPDATE, plan_pb2.UpdateIntent)
        checkpoints = self._read(Node.CHECKPOINTS, checkpoint_pb2.CheckpointLog)
        # Damaged counts must not keep the topology from running.
        totals = self._read_if_sound(Node.TOTALS, control_pb2.TotalsLedger)
        happened = self._read_if_sound(Node.EVENTS, control_pb2.EventLedger)
        minutes = self._read_if_sound(Node.MINUTES, control_pb2.MinutesLedger)
        counts = self._read_if_sound(Node.COUNTS, control_pb2.MetricsLedger)
        self._read_if_sound(Node.LAST, control_pb2.LastAnswers)  # only to learn its version, which the next write needs
        if topology is None or packing is None:
            missing = Node.TOPOLOGY if topology is None else Node.PACKING_PLAN
            raise StateError(
                f"the state manager has no {missing.value} of {self._topology}; kill the topology and submit it again"
            )
        if previous is not None and previous.tmaster_epoch > self.epoch:
            raise self._replaced(previous.tmaster_epoch)
        if previous is not None and previous.topology.id != topology.id:
            previous = None  # the plan belongs to an earlier topology with this name
        submitted = self._submitted(topology.id)
        return Loaded(topology, packing, previous, intent, checkpoints, totals, happened, minutes, counts, submitted)

    def _submitted(self, topology_id: str) -> plan_pb2.ExecutionState | None:
        path = paths.execution_state(self._topology)
        with contextlib.suppress(StateError):
            found = self._state.get(path)
            record = _parse(plan_pb2.ExecutionState, found[0], path) if found is not None else None
            return record if record is not None and record.topology_id == topology_id else None
        return None

    def _read(self, node: Node, kind: type[M]) -> M | None:
        found = self._state.get(self._paths[node])
        self._versions[node] = found[1] if found is not None else 0
        # An empty node counts as removed.
        return _parse(kind, found[0], self._paths[node]) if found is not None and found[0] else None

    def _read_if_sound(self, node: Node, kind: type[M]) -> M | None:
        with contextlib.suppress(DamagedStateError):
            return self._read(node, kind)
        return None

    def write(self, node: Node, value: Message | None) -> None:
        """Write or remove a node. Raises FencedError if another process wrote it, and StateError if the write fails."""
        path, version = self._paths[node], self._versions.get(node, 0)
        try:
            if value is not None:
                self._versions[node] = self._state.set(path, value.SerializeToString(), version=version)
            elif self._outdated:
                self._versions[node] = self._state.set(path, b"", version=version)
            else:
                self._versions[node] = 0
                with contextlib.suppress(NoNodeError):
                    self._state.delete(path)
        except (VersionMismatchError, NoNodeError) as error:
            self.check_fence()
            if not self._state.exists(self._paths[Node.TOPOLOGY]):
                raise TopologyRemovedError(f"{self._topology} was removed from the state manager") from None
            raise FencedError(f"another process wrote the {node.value} of {self._topology}: {error}") from None

    def release(self) -> None:
        """Remove the location, if it belongs to this process."""
        with contextlib.suppress(StateError, FencedError):
            if self.check_fence():
                self._state.delete(paths.tmaster(self._topology))


def _parse(kind: type[M], data: bytes, path: str) -> M:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise DamagedStateError(
            f"state node {path} does not contain a {kind.DESCRIPTOR.name}; kill the topology and submit it again"
        ) from None
