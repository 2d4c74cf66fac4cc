"""The error that the simulator raises when user code fails inside it."""

from __future__ import annotations

from heronpy.common.errors import TopologyError


class SimulationError(TopologyError):
    """User code failed in a simulated task, or the simulation cannot continue.

    `task` is the task ("count[0] (task 3)"), or None if no single task is the cause; `__cause__` is the
    original exception with its traceback.
    """

    def __init__(self, message: str, task: str | None = None) -> None:
        super().__init__(message)
        self.task = task
