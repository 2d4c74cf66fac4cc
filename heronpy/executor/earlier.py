"""What is known of a container from before its executor started."""

from __future__ import annotations

import logging

from google.protobuf.message import DecodeError

from heronpy.common.errors import HeronError
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import control_pb2
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager

log = logging.getLogger("heronpy.executor")


def tasks_that_ran(state: StateManager, launch: LaunchSpec) -> frozenset[int]:
    """The tasks that have initialised once, as the topology master has recorded it; none if that cannot be read."""
    try:
        found = state.get(paths.totals(launch.topology))
        ledger = control_pb2.TotalsLedger.FromString(found[0] if found is not None else b"")
    except (HeronError, DecodeError) as error:
        log.warning("it is unknown which tasks have run before, so one that cannot start fails at once: %s", error)
        return frozenset()
    if ledger.topology_id != launch.topology_id:
        return frozenset()
    return frozenset(task.task_id for task in ledger.tasks if task.has_run)
