"""Gives the topology to the tasks of a container, as a file; the packing plan comes from its watch.

Read once: an update changes nothing of what a task needs before it gets a physical plan. While it cannot be read, a
task starts with the copy that an earlier executor has left, or is started again until there is one.
"""

from __future__ import annotations

import asyncio
import logging

from heronpy.common.errors import HeronError, StateError
from heronpy.plan.launch import LaunchSpec
from heronpy.procs.handed_plans import hand, topology_file
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager

log = logging.getLogger("heronpy.executor")

AGAIN_S = 0.5


class TopologyHanding:
    """Create it on the loop that should try again."""

    def __init__(self, state: StateManager, launch: LaunchSpec, container: int) -> None:
        self._state = state
        self._topology = launch.topology
        self._file = topology_file(launch.sockets_dir, container)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._complaint = ""

    def start(self) -> None:
        """Hand it over, now or as soon as possible."""
        try:
            found = self._state.get(paths.topology(self._topology))
            if found is None:
                raise StateError(f"topology {self._topology} is not in the state manager")
            hand(self._file, found[0])
        except (HeronError, OSError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("the topology cannot be handed to the tasks, trying again: %s", error)
            self._timer = self._loop.call_later(AGAIN_S, self.start)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
