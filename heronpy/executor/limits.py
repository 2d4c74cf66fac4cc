"""Checks that the processes of a container may open as many files as they need.

Checked before the first process starts, so that too low a limit gives one error instead of a partial start
(F26). The numbers are upper estimates.
"""

from __future__ import annotations

import resource

from heronpy.common.errors import ConfigError
from heronpy.common.ids import stmgr_id
from heronpy.procs.linux import lift_files
from heronpy.proto import plan_pb2

FDS_PER_PROCESS = 40
FDS_PER_LINK = 6


def files_needed(plan: plan_pb2.PackingPlan | None, container: int) -> tuple[int, str]:
    """The number of files of the container's process that opens the most, and its name (pure)."""
    if plan is None or container == 0:
        return FDS_PER_PROCESS, "tmaster"
    tasks = sum(len(c.instances) for c in plan.containers if c.id == container)
    links = tasks + len(plan.containers)
    return FDS_PER_PROCESS + FDS_PER_LINK * links, stmgr_id(container)


def check_files(plan: plan_pb2.PackingPlan | None, container: int) -> None:
    """Raise the soft limit; ConfigError when the hard limit is below what is needed."""
    needed, name = files_needed(plan, container)
    hard = lift_files()
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            f"container {container} may open {hard} files per process, but {name} needs {needed};"
            " raise 'ulimit -n' for its user, or use more containers"
        )
