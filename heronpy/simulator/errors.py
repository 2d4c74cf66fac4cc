"""The error that leaves the simulator when user code goes wrong inside it."""

from __future__ import annotations

from heronpy.common.errors import TopologyError


class SimulationError(TopologyError):
    """User code failed in a simulated task, or the simulation cannot go on.

    `task` names where ("count[0] (task 3)"), and `__cause__` is the original exception with its
    traceback. It is None where no single task is to blame.
    """

    def __init__(self, message: str, task: str | None = None) -> None:
        super().__init__(message)
        self.task = task
