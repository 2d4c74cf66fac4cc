"""Metrics that user code updates and the runtime collects.

`get_value_and_reset` returns each update exactly once, except for assignable metrics, which are
gauges. A metric belongs to the thread of its task; use `heronpy.api.global_metrics` from other
threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class IMetric:
    """Interface of a metric."""

    def get_value_and_reset(self) -> Any:
        """Return the value since the last call; None if there is nothing to report. Multi-key metrics return a dict."""
        raise NotImplementedError(f"{type(self).__name__} must define get_value_and_reset()")


class MetricsCollector(Protocol):
    """The runtime's interface for collecting metrics."""

    def register_metric(self, name: str, metric: IMetric, time_bucket_in_sec: float) -> None:
        """Register a metric; `metric.get_value_and_reset()` is called every `time_bucket_in_sec` seconds."""


class CountMetric(IMetric):
    """A counter. Each report resets it to 0."""

    def __init__(self) -> None:
        self.value: int | float = 0

    def incr(self, to_add: int | float = 1) -> None:
        """Add `to_add` to the counter."""
        self.value += to_add

    def get_value_and_reset(self) -> int | float:
        value = self.value
        self.value = 0
        return value


class MultiCountMetric(IMetric):
    """One counter per key. Each report resets the counters to 0."""

    def __init__(self) -> None:
        self.value: dict[Any, CountMetric] = {}

    def add_key(self, key: Any) -> None:
        """Declare a key, so that it is reported even while its count is 0."""
        self.incr(key, to_add=0)

    def incr(self, key: Any, to_add: int | float = 1) -> None:
        """Add `to_add` to the counter of `key`."""
        counter = self.value.get(key)
        if counter is None:
            counter = self.value.setdefault(key, CountMetric())
        counter.incr(to_add)

    def get_value_and_reset(self) -> dict[Any, int | float]:
        return {key: counter.get_value_and_reset() for key, counter in list(self.value.items())}


class IReducer:
    """Interface of a reducer, which folds many values into one."""

    def init(self) -> None:
        """Reset the reducer to its initial state."""

    def reduce(self, value: Any) -> None:
        """Fold one more value into the result."""
        raise NotImplementedError(f"{type(self).__name__} must define reduce(value)")

    def extract(self) -> Any:
        """Return the result; None if there were no values."""
        raise NotImplementedError(f"{type(self).__name__} must define extract()")


class MeanReducer(IReducer):
    """A reducer that returns the arithmetic mean."""

    def __init__(self) -> None:
        self.sum = 0.0
        self.count = 0

    def init(self) -> None:
        self.sum = 0.0
        self.count = 0

    def reduce(self, value: Any) -> None:
        self.sum += float(value)
        self.count += 1

    def extract(self) -> float | None:
        return self.sum / self.count if self.count else None


class ReducedMetric(IMetric):
    """A metric that folds its values with a reducer."""

    def __init__(self, reducer_cls: Callable[[], IReducer]) -> None:
        self.reducer = reducer_cls()
        self.reducer.init()

    def update(self, value: Any) -> None:
        """Add a value."""
        self.reducer.reduce(value)

    def get_value_and_reset(self) -> Any:
        value = self.reducer.extract()
        self.reducer.init()
        return value


class MultiReducedMetric(IMetric):
    """A metric that folds the values of each key with a separate reducer."""

    def __init__(self, reducer: Callable[[], IReducer]) -> None:
        self.value: dict[Any, ReducedMetric] = {}
        self.reducer = reducer

    def update(self, key: Any, value: Any) -> None:
        """Add a value for `key`."""
        self.add_key(key)
        self.value[key].update(value)

    def add_key(self, key: Any) -> None:
        """Declare a key, so that it is reported even without values."""
        if key not in self.value:
            self.value[key] = ReducedMetric(self.reducer)

    def get_value_and_reset(self) -> dict[Any, Any]:
        return {key: metric.get_value_and_reset() for key, metric in list(self.value.items())}


class AssignableMetrics(IMetric):
    """A gauge that reports its most recent value."""

    def __init__(self, init_val: Any) -> None:
        self.value = init_val

    def update(self, value: Any) -> None:
        """Set the value."""
        self.value = value

    def get_value_and_reset(self) -> Any:
        return self.value


class MultiAssignableMetrics(IMetric):
    """One gauge per key."""

    def __init__(self) -> None:
        self.map: dict[Any, AssignableMetrics] = {}

    def update(self, key: Any, value: Any) -> None:
        """Set the value of `key`."""
        gauge = self.map.get(key)
        if gauge is None:
            self.map[key] = AssignableMetrics(value)
        else:
            gauge.update(value)

    def get_value_and_reset(self) -> dict[Any, Any]:
        return {key: gauge.get_value_and_reset() for key, gauge in list(self.map.items())}


class MeanReducedMetric(ReducedMetric):
    """A metric that reports the mean of its values."""

    def __init__(self) -> None:
        super().__init__(MeanReducer)


class MultiMeanReducedMetric(MultiReducedMetric):
    """A metric that reports the mean of the values of each key."""

    def __init__(self) -> None:
        super().__init__(MeanReducer)
