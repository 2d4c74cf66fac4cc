"""Where a task's checkpointed state comes from, and what happens when it cannot be loaded."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from heronpy.common import exit_codes
from heronpy.common.errors import HeronError
from heronpy.proto import control_pb2 as control
from heronpy.proto import frame_pb2, plan_pb2, topology_pb2

from .routing import components_of

if TYPE_CHECKING:
    from .task import Task

log = logging.getLogger("heron.instance")

#: While a task waits for a newer attempt it looks up so often, at least.
WAIT_S = 1.0


class RestoreError(Exception):
    """The state of a region's attempt cannot be loaded; `__cause__` says why."""

    def __init__(self, region: plan_pb2.RegionRecord) -> None:
        super().__init__(f"checkpoint {region.checkpoint} cannot be restored")
        self.region = region


def open_state(task: Task, plan: plan_pb2.PhysicalPlan, settings: Any) -> Any:
    """The empty state of a task, on the store that it is saved to."""
    # Only here: most topologies take no checkpoints.
    from heronpy.ckpt.snapshot import TaskState
    from heronpy.storage.stores import StoreChoice

    tasks = sorted(record.task_id for record in plan.instances if record.component == task.component)
    return TaskState(
        task.component,
        tasks.index(task.task_id),
        len(tasks),
        settings,
        StoreChoice(task.launch, settings),
        task_id=task.task_id,
        allow_pickle=task.settings.allow_pickle,
        grouping_width=grouping_width(plan.topology, task.component),
    )


def grouping_width(topology: topology_pb2.Topology, component: str) -> int:
    """How many fields the input of a component is grouped by; 1 when by none."""
    part = components_of(topology)[component]
    widths = [
        len(source.grouping_fields.keys)
        for source in getattr(part, "inputs", ())
        if source.gtype == topology_pb2.FIELDS
    ]
    return max(widths, default=1)


def await_rewind(task: Task, region: plan_pb2.RegionRecord, error: BaseException) -> int:
    """Say that the state cannot be restored, and wait: a plan with a newer attempt ends the process.

    Returns the exit code when the task is stopped instead.
    """
    text = str(error) if isinstance(error, HeronError) else f"{type(error).__name__}: {error}"
    log.error("checkpoint %d cannot be restored: %s", region.checkpoint, text)
    task.control.tell(
        control.RestoreFailed(
            task_id=task.task_id,
            epoch=task.epoch,
            attempt=region.attempt,
            checkpoint=region.checkpoint,
            error=text,
        )
    )
    task.error = text
    task.state = control.TASK_FAILED
    task.control.notify()
    code = int(exit_codes.OK)
    while not task.stopping:
        # Frames that nobody took would end each wait at once.
        task.link.receive(_ignore)
        task.sleep(WAIT_S)
        while task.control.inbox:
            kind, _ = task.control.inbox.popleft()
            task.stopping = task.stopping or kind in ("stop_task", "refused")
            if kind == "refused":
                code = int(exit_codes.FENCED)
    task.control.stop(1.0)
    task.link.close()
    return code


def _ignore(frame: frame_pb2.Frame, size: int) -> None:
    """No task will process it: the next one begins with another attempt."""
