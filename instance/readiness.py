"""Whether a bolt is ready for its first tuple: its `is_ready` is polled, never per tuple. Pure.

Only while the plan holds the spouts: once tuples flow, a task that restarts takes them when it can. The
task's thread asks; the control thread reads `waiting_for` and `since` for the status.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from heronpy.api.bolt.base_bolt import NotReadyError
from heronpy.common.errors import DeadlineError, TopologyError

#: How often a bolt that is not ready is asked again.
ASK_S = 0.25
#: Characters of what it waits for.
TEXT_MAX = 500


class ReadyTimeoutError(DeadlineError):
    """A bolt is not ready after `heron.instance.ready_timeout_s`."""


class Readiness:
    """Asks one bolt; calls `changed` when it waits for something else. Raises TopologyError for a coroutine."""

    def __init__(
        self, component: str, is_ready: Callable[[], bool], limit_s: float, changed: Callable[[], None], now: float
    ) -> None:
        if inspect.iscoroutinefunction(is_ready):
            raise TopologyError(
                f"is_ready of component {component} is a coroutine; make it a plain method that returns at once"
            )
        self._component = component
        self._is_ready = is_ready
        self._limit_s = limit_s
        self._changed = changed
        self._next = now
        #: What it waits for, and since when.
        self.waiting_for = f"{component} is not ready"
        self.since = now

    def ask(self, now: float) -> bool:
        """Whether the bolt is ready, asked when it is time; raises what the bolt raises, or ReadyTimeoutError."""
        if now < self._next:
            return False
        self._next = now + ASK_S
        before, self.waiting_for = self.waiting_for, f"{self._component} is not ready"
        try:
            if self._is_ready():
                return True
        except NotReadyError as error:
            self.waiting_for = " ".join(str(error).split())[:TEXT_MAX] or self.waiting_for
        if self.waiting_for != before:
            self._changed()
        if self._limit_s and now - self.since >= self._limit_s:
            raise ReadyTimeoutError(
                f"{self._component} is not ready after {self._limit_s:g} s: {self.waiting_for} "
                "(heron.instance.ready_timeout_s)"
            )
        return False
