"""The data that an executor reads from the state manager for its tasks: the topology, and the tasks that have run
before.

The topology is passed to tasks as a file. The executor reads it only once, because an update changes nothing that a
task needs before it gets its physical plan. While the topology cannot be read, a task starts with an earlier executor's
copy, or is restarted until a copy exists.
"""

from __future__ import annotations

import asyncio
import logging

from google.protobuf.message import DecodeError

from heronpy.common.errors import HeronError, StateError
from heronpy.common.folders import replace_file
from heronpy.plan.launch import LaunchSpec
from heronpy.procs.handed_plans import topology_file
from heronpy.proto import control_pb2
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager

log = logging.getLogger("heronpy.executor")

AGAIN_S = 0.5


class TopologyHanding:
    """Writes the topology file of one container. Create this object on the event loop that repeats failed attempts."""

    def __init__(self, state: StateManager, launch: LaunchSpec, container: int) -> None:
        self._state = state
        self._topology = launch.topology
        self._file = topology_file(launch.sockets_dir, container)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._complaint = ""

    def start(self) -> None:
        """Write the topology file now, or as soon as the state can be read."""
        try:
            found = self._state.get(paths.topology(self._topology))
            if found is None:
                raise StateError(f"topology {self._topology} is not in the state manager")
            replace_file(self._file, found[0], durable=False)
        except (HeronError, OSError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("cannot deliver the topology to the tasks (%s); trying again", error)
            self._timer = self._loop.call_later(AGAIN_S, self.start)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def tasks_that_ran(state: StateManager, launch: LaunchSpec) -> frozenset[int]:
    """The tasks that have been initialised, as recorded by the topology master; empty if the record cannot be read."""
    try:
        found = state.get(paths.totals(launch.topology))
        ledger = control_pb2.TotalsLedger.FromString(found[0] if found is not None else b"")
    except (HeronError, DecodeError) as error:
        log.warning(
            "cannot determine which tasks have run before (%s), so a task that cannot start fails immediately", error
        )
        return frozenset()
    if ledger.topology_id != launch.topology_id:
        return frozenset()
    return frozenset(task.task_id for task in ledger.tasks if task.has_run)
