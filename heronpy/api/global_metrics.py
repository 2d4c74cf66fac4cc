"""Counters that any code in the process can increment by name, without a context.

The runtime calls `init` once per task; the counters are reported as `__auto__/<key>`.
"""

from __future__ import annotations

import threading
from typing import Any

from heronpy.api.metrics import MetricsCollector, MultiCountMetric

lock = threading.Lock()
root_name = "__auto__"
registered = False
_collector: MetricsCollector | None = None


class _LockedMultiCountMetric(MultiCountMetric):
    """Counters protected by a lock, so that a reset loses no `incr` from another thread."""

    def get_value_and_reset(self) -> dict[Any, int | float]:
        with lock:
            return super().get_value_and_reset()


metricsContainer = _LockedMultiCountMetric()


def incr(key: str, to_add: int | float = 1, *, by: int | float | None = None) -> None:
    """Add `to_add` to the counter `key`, from any thread. `by` takes precedence over `to_add`."""
    with lock:
        metricsContainer.incr(key, to_add if by is None else by)


safe_incr = incr


def init(metrics_collector: MetricsCollector, metrics_bucket: float) -> None:
    """Register the counters with this process's collector, once per collector."""
    global registered, _collector
    with lock:
        if metrics_collector is _collector:
            return
        metrics_collector.register_metric(root_name, metricsContainer, metrics_bucket)
        _collector = metrics_collector
        registered = True
