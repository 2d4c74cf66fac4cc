"""Metrics that user code registers in a batch run: a worker reports them under their names, labelled by component.

Each user object is used for one unit, so a worker adds up the counters of its objects and keeps the last value of each
gauge. Losing attempts also count, just as replayed tuples count in a stream.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from heronpy.api.metrics import CountMetric, IMetric, MultiAssignableMetrics, MultiCountMetric
from heronpy.task.user_code import UserCode

log = logging.getLogger("heron.batch")

Register = Callable[[str, IMetric, float], None]


class RunMetrics:
    """All metrics of user code in one worker; `register` is the `register_metric` of the worker's context."""

    def __init__(self, register: Register = lambda name, metric, bucket_s: None) -> None:
        self._register = register
        self._gathered: dict[str, _Counts | _Gauges] = {}

    def gathered(self, component: str, name: str, metric: IMetric, bucket_s: float) -> _Counts | _Gauges:
        """Return the sum of a metric's values. If a counter and a gauge share a name, the later one gets a prefix."""
        counts = isinstance(metric, CountMetric | MultiCountMetric) or "Count" in type(metric).__name__
        kind = _Counts if counts else _Gauges
        found = self._gathered.get(name)
        if found is not None and type(found) is not kind:
            name = f"{component}/{name}"
            found = self._gathered.get(name)
        if found is None:
            found = self._gathered[name] = kind()
            self._register(name, found, bucket_s)
        return found


class UnitMetrics:
    """The metrics collector of one user object."""

    def __init__(self, component: str, run: RunMetrics) -> None:
        self._component, self._run = component, run
        self._known: dict[str, tuple[IMetric, _Counts | _Gauges]] = {}

    def register_metric(self, name: str, metric: IMetric, time_bucket_in_sec: float) -> None:
        """Register a metric. Raises an error if the name is already registered."""
        if name in self._known:
            raise ValueError(f"metric {name!r} is already registered; give each metric a different name")
        into = self._run.gathered(self._component, name, metric, time_bucket_in_sec)
        into.sources.append((self._component, metric))
        self._known[name] = metric, into

    def close(self) -> None:
        """Collect the last values."""
        for metric, into in self._known.values():
            into.take(self._component, metric)
            into.sources.remove((self._component, metric))
        self._known.clear()


def close(user: UserCode) -> None:
    """Close the object, and collect its last values."""
    try:
        if user.initialized:
            user.close()
    finally:
        collector = user.context.get_metrics_collector()
        assert isinstance(collector, UnitMetrics)
        collector.close()


class _Gathered(ABC):
    """Combines the values of several metrics by component, or by component and key: their sum, or the last value."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[tuple[str, IMetric]] = []

    def take(self, component: str, metric: IMetric) -> None:
        try:
            value = metric.get_value_and_reset()
        except Exception:
            log.exception("a metric of %s could not be read", component)
            return
        for key, part in value.items() if isinstance(value, dict) else [(None, value)]:
            if isinstance(part, bool | int | float):
                self.put(component if key is None else f"{component}/{key}", part)

    @abstractmethod
    def put(self, label: str, value: float) -> None:
        """Add a value to the sum of a label, or replace the label's last value."""

    def get_value_and_reset(self) -> Any:
        for component, metric in self.sources:
            self.take(component, metric)
        return super().get_value_and_reset()  # type: ignore[misc]


class _Counts(_Gathered, MultiCountMetric):
    def put(self, label: str, value: float) -> None:
        self.incr(label, value)


class _Gauges(_Gathered, MultiAssignableMetrics):
    def put(self, label: str, value: float) -> None:
        self.update(label, value)
