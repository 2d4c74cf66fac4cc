"""Removes the nodes of a topology from the state manager, and the folder of its sockets.

Call it when no process of the topology is left. The execution state is removed last: until then the name
is taken, so half a topology is never visible and a new submit cannot mix with the old one.
"""

from __future__ import annotations

import os
import shutil

from heronpy.common.errors import NoNodeError
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager


def remove_state(state: StateManager, topology: str) -> None:
    """Delete every node of the topology."""
    nodes = [
        paths.packing_plan(topology),
        paths.physical_plan(topology),
        paths.update_intent(topology),
        paths.checkpoints(topology),  # the checkpoints themselves stay
        paths.topology(topology),
        paths.tmaster(topology),
        *(paths.epoch(topology, what) for what in state.children(paths.epochs(topology))),
        paths.scheduler(topology),
        paths.submission(topology),
        paths.totals(topology),
        paths.events(topology),
        paths.minutes(topology),
        paths.execution_state(topology),
    ]
    for node in nodes:
        try:
            state.delete(node)
        except NoNodeError:
            continue


def remove_sockets(folder: str) -> None:
    """Delete the folder of the sockets, if it looks like ours."""
    parent = os.path.basename(os.path.dirname(os.path.normpath(folder)))
    if parent == f"heron-{os.getuid()}":
        shutil.rmtree(folder, ignore_errors=True)
        return
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.startswith(("executor-", "stmgr-", "scheduler", "spark-gateway", "tmaster")):
            os.unlink(os.path.join(folder, name))
