"""The metrics that user code registers, collected for the test. Pure.

`get_value_and_reset` returns each update once, so counts are added up here and other values
remembered: reading twice gives the same answer.
"""

from __future__ import annotations

from typing import Any


class MetricsCollector:
    """The metrics of one task. Counting classes (with "Count" in their name) are summed."""

    def __init__(self) -> None:
        self._metrics: dict[str, Any] = {}
        self._totals: dict[str, Any] = {}

    def register_metric(self, name: str, metric: Any, time_bucket_in_sec: float) -> None:
        """Register a metric; a second one of the same name is an error, as in the runtime."""
        if name in self._metrics:
            raise ValueError(f"metric {name!r} is already registered; give each metric a different name")
        self._metrics[name] = metric

    def is_count(self, name: str) -> bool:
        """Whether the values of several tasks can be added."""
        return "Count" in type(self._metrics[name]).__name__

    def values(self) -> dict[str, Any]:
        """Totals of counts, last reported values of all others; a dict for a multi-key metric."""
        for name, metric in self._metrics.items():
            value = metric.get_value_and_reset()
            if value is None:
                continue
            known = self._totals.get(name)
            if isinstance(value, dict):
                self._totals[name] = merged(known or {}, value, self.is_count(name))
            elif self.is_count(name):
                self._totals[name] = value + (known or 0)
            else:
                self._totals[name] = value
        return dict(self._totals)


def merged(known: dict[Any, Any], new: dict[Any, Any], adds: bool) -> dict[Any, Any]:
    """The values per key of two readings: added up, or the newer one where it has a value."""
    result = dict(known)
    for key, value in new.items():
        if value is not None:
            result[key] = result.get(key, 0) + value if adds else value
    return result


def combined(tasks: list[MetricsCollector]) -> dict[str, Any]:
    """The metrics of all tasks of a component: counts are added, others are a list by task."""
    result: dict[str, Any] = {}
    for collector in tasks:
        for name, value in collector.values().items():
            if len(tasks) == 1:
                result[name] = value
            elif not collector.is_count(name):
                result.setdefault(name, []).append(value)
            elif isinstance(value, dict):
                result[name] = merged(result.get(name, {}), value, adds=True)
            else:
                result[name] = result.get(name, 0) + value
    return result
