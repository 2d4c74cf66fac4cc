"""Which attempt of its region a task belongs to, and the end of the task when there is a newer one.

A restore restarts every task of a region: the topology master raises the attempt in the plan, and each
task of a lower one ends itself. The control thread does that, so that it happens also while user code
hangs or the task is still starting.

Invariant: `own` and `newest` have one writer each (the task's thread; the control thread), and each
writes its own before it reads the other's, so a newer attempt is seen by one of them whatever the order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heronpy.common import exit_codes
from heronpy.procs import exit_notice
from heronpy.proto import plan_pb2


def region_of(plan: plan_pb2.PhysicalPlan, component: str) -> plan_pb2.RegionRecord | None:
    """The region of a component; None when the topology takes no checkpoints."""
    for region in plan.regions:
        if component in region.components:
            return region
    return None


class Attempt:
    """The attempt of one task; `leave` ends the process and does not return."""

    def __init__(self, component: str, leave: Callable[[int], Any] = exit_notice.leave) -> None:
        self._component = component
        self._leave = leave
        #: 0 until the task has taken one.
        self.own = 0
        self.newest = 0

    def heard(self, plan: plan_pb2.PhysicalPlan) -> None:
        """A plan arrived. Called by the control thread."""
        region = region_of(plan, self._component)
        if region is not None and region.attempt > self.newest:
            self.newest = region.attempt
            self._leave_if_old()

    def take(self, region: plan_pb2.RegionRecord) -> None:
        """The task starts this attempt. Called by the task's thread."""
        self.own = region.attempt
        self._leave_if_old()

    def _leave_if_old(self) -> None:
        # Nothing is logged: user code that hangs may hold the log's lock.
        if 0 < self.own < self.newest:
            self._leave(int(exit_codes.REWIND))
