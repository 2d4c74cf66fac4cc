"""The records of a simulation for a test's assertions: tuples, and the metrics of user code. Pure.

Values are stored encoded and decoded on each read, so a test sees them as they were emitted or received, even if user
code changed its objects afterwards. Each list keeps the newest `limit` entries.

`get_value_and_reset` of a metric returns each update once. The collector adds up counts and keeps other values, so
reading twice gives the same result.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from functools import partial
from typing import Any

from heronpy.simulator.acking import Outcome
from heronpy.simulator.tuples import Delivery

RECORDS_MAX = 100_000


class MetricsCollector:
    """The metrics of one task. Metrics whose class has "Count" in its name are summed."""

    def __init__(self) -> None:
        self._metrics: dict[str, Any] = {}
        self._totals: dict[str, Any] = {}

    def register_metric(self, name: str, metric: Any, time_bucket_in_sec: float) -> None:
        """Register a metric. Raises ValueError if the name is already registered."""
        if name in self._metrics:
            raise ValueError(f"metric {name!r} is already registered; give each metric a different name")
        self._metrics[name] = metric

    def is_count(self, name: str) -> bool:
        """Return whether the values of several tasks can be added."""
        return "Count" in type(self._metrics[name]).__name__

    def values(self) -> dict[str, Any]:
        """Return the totals of counts and the latest values of other metrics; for a multi-key metric, a dict."""
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
    """Merge two readings by key: with `adds`, values are added; otherwise newer values replace older ones."""
    result = dict(known)
    for key, value in new.items():
        if value is not None:
            result[key] = result.get(key, 0) + value if adds else value
    return result


def combined(tasks: list[MetricsCollector]) -> dict[str, Any]:
    """Combine the metrics of a component's tasks: counts are added, other values become a list with one entry per
    task."""
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


class Records:
    """Emitted and executed tuples, ended spout tuples and counters, by component."""

    def __init__(self, limit: int = RECORDS_MAX) -> None:
        newest = partial(deque[Any], maxlen=limit)
        self.emitted: dict[tuple[str, str], deque[tuple[int, bytes, int]]] = defaultdict(newest)
        self.executed: dict[str, deque[tuple[int, Delivery]]] = defaultdict(newest)
        self.acked: dict[str, deque[Any]] = defaultdict(newest)
        self.failed: dict[str, deque[Any]] = defaultdict(newest)
        self.counters: dict[int, Counter[str]] = defaultdict(Counter)
        #: Rows that Spark sinks would have passed to Spark, with their tasks. The number of rows per task, including
        #: rows that are not kept.
        self.rows: dict[str, deque[tuple[int, dict[str, Any]]]] = defaultdict(newest)
        self._rows_of: Counter[tuple[str, int]] = Counter()

    def emit(self, component: str, stream: str, task: int, payload: bytes, kind: int) -> None:
        """Record a tuple that a task emitted."""
        self.emitted[component, stream].append((task, payload, kind))
        self.count(task, f"__emit-count/{stream}")

    def execute(self, component: str, task: int, delivery: Delivery) -> None:
        """Record a tuple that was passed to a bolt."""
        self.executed[component].append((task, delivery))
        self._count_input(task, "__execute-count", delivery.component, delivery.stream)

    def row(self, component: str, task: int, row: dict[str, Any]) -> None:
        """Record a row that a sink received."""
        self.rows[component].append((task, row))
        self._rows_of[component, task] += 1

    def rows_of(self, component: str, task: int) -> int:
        """Return the number of rows that a task of a sink has received."""
        return self._rows_of[component, task]

    def keep_rows(self, component: str, task: int, count: int) -> None:
        """Keep only the first `count` rows of a task that goes back to a checkpoint."""
        surplus = self._rows_of[component, task] - count
        self._rows_of[component, task] = count
        kept: list[tuple[int, dict[str, Any]]] = []
        for owner, row in reversed(self.rows.get(component, ())):
            if owner == task and surplus > 0:
                surplus -= 1
            else:
                kept.append((owner, row))
        rows = self.rows[component]
        rows.clear()
        rows.extend(reversed(kept))

    def bolt_ack(self, task: int, component: str, stream: str) -> None:
        """Count a bolt's ack of a tuple from this source."""
        self._count_input(task, "__ack-count", component, stream)

    def bolt_fail(self, task: int, component: str, stream: str) -> None:
        """Count a bolt's fail of a tuple from this source."""
        self._count_input(task, "__fail-count", component, stream)

    def spout_end(self, component: str, task: int, tup_id: Any, outcome: Outcome) -> None:
        """Record the outcome that was reported to a spout for a tuple."""
        ended = self.acked if outcome is Outcome.ACKED else self.failed
        ended[component].append(tup_id)
        self.count(task, "__ack-count" if outcome is Outcome.ACKED else "__fail-count")
        if outcome is Outcome.TIMED_OUT:
            self.count(task, "__timeout-count")

    def count(self, task: int, name: str, by: float = 1) -> None:
        self.counters[task][name] += by  # type: ignore[assignment]

    def _count_input(self, task: int, name: str, component: str, stream: str) -> None:
        self.count(task, f"{name}/{stream}")
        self.count(task, f"{name}/{component}/{stream}")
