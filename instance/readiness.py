"""Whether a bolt is ready for its first tuple: its `is_ready` is asked now and then, never per tuple.

Only while the plan holds the spouts: once tuples flow, a task that restarts takes them when it can. The
task's thread asks; the control thread reads `waiting_for` and `since` for the status.
"""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING

from heronpy.api.bolt.base_bolt import NotReadyError
from heronpy.common.errors import DeadlineError, TopologyError
from heronpy.proto import plan_pb2

from .routing import components_of

if TYPE_CHECKING:
    from .task import Task

#: How often a bolt that is not ready is asked again.
ASK_S = 0.25
#: Characters of what it waits for.
TEXT_MAX = 500


class ReadyTimeoutError(DeadlineError):
    """A bolt is not ready after `heron.instance.ready_timeout_s`."""


def begin_asking(task: Task, plan: plan_pb2.PhysicalPlan) -> None:
    """Ask a bolt that has initialised for the first time, and from then on until it is ready."""
    if not plan.spouts_held or not components_of(plan.topology)[task.component].comp.asks_readiness:
        return
    if inspect.iscoroutinefunction(task.user.object.is_ready):
        raise TopologyError(
            f"is_ready of component {task.component} is a coroutine; make it a plain method that returns at once"
        )
    now = time.monotonic()
    task.readiness = Readiness(task, now)
    task.readiness.ask(now)


class Readiness:
    """See the module; it takes itself off the task once the bolt is ready."""

    def __init__(self, task: Task, now: float) -> None:
        self._task = task
        self._limit_s = task.settings.ready_timeout_s
        self._next = now
        #: What is waited for, and since when.
        self.waiting_for = f"{task.component} is not ready"
        self.since = now

    def ask(self, now: float) -> None:
        """Ask again when it is time; raises UserError when the bolt raises or took too long."""
        if now < self._next:
            return
        self._next = now + ASK_S
        task = self._task
        if task.guard(self._is_ready, now) or (task.plan is not None and not task.plan.spouts_held):
            task.readiness = None
            task.control.notify()

    def _is_ready(self, now: float) -> bool:
        before, self.waiting_for = self.waiting_for, f"{self._task.component} is not ready"
        try:
            if self._task.user.object.is_ready():
                return True
        except NotReadyError as error:
            self.waiting_for = " ".join(str(error).split())[:TEXT_MAX] or self.waiting_for
        if self.waiting_for != before:
            self._task.control.notify()
        if self._limit_s and now - self.since >= self._limit_s:
            raise ReadyTimeoutError(
                f"{self._task.component} is not ready after {self._limit_s:g} s: {self.waiting_for} "
                "(heron.instance.ready_timeout_s)"
            )
        return False
