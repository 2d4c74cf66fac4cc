"""Reads and reports the backlog of a spout. Imported only for spouts that define `backlog`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from heronpy.api.spout.base_spout import Backlog

from .metrics import TaskMetrics

log = logging.getLogger("heron.instance")

#: Seconds between two calls to a spout's `backlog`.
ASK_S = 1.0
#: The metric of each part of a backlog, and the metric of calls that raised.
METRICS = {"tuples": "__backlog-tuples", "bytes": "__backlog-bytes"}
ERRORS = "__backlog-errors"


class BacklogMetric:
    """A metric of user code that sets the task's backlog metrics; unknown values are not reported."""

    def __init__(self, ask: Callable[[], Any], metrics: TaskMetrics) -> None:
        self._ask = ask
        self._metrics = metrics

    def get_value_and_reset(self) -> None:
        """Call the spout's `backlog`. Exceptions are counted, and the first one is logged."""
        try:
            found = _checked(self._ask())
        except Exception:
            if not self._metrics.counters.get((ERRORS, "")):
                log.exception("backlog() failed, so the backlog is unknown; further exceptions are only counted")
            self._metrics.count(ERRORS, "", 1)
            found = Backlog()
        for part, metric in METRICS.items():
            value = getattr(found, part)
            if value is not None:
                self._metrics.gauge(metric, "", value)
            elif (metric, "") in self._metrics.gauges:
                self._metrics.drop_gauge(metric, "")


def _checked(found: Any) -> Backlog:
    """Return the backlog that a spout returned. Raises ValueError for an invalid value."""
    backlog = found if isinstance(found, Backlog) else Backlog(found)
    for value in backlog:
        if value is not None and (type(value) is not int or value < 0):
            raise ValueError(f"backlog() returned {found!r}; return a number of tuples (0 or more), a Backlog, or None")
    return backlog
