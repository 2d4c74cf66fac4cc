"""What a simulation records for the assertions of a test. Pure.

Values are kept encoded and decoded on each read, so a test sees them as they were emitted or
received, whatever user code did to its objects afterwards. Each list keeps the newest
`limit` entries.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from heronpy.simulator.acking import Outcome
from heronpy.simulator.tuples import Delivery

RECORDS_MAX = 100_000


class Records:
    """Emitted and executed tuples, ended spout tuples and counters, by component."""

    def __init__(self, limit: int = RECORDS_MAX) -> None:
        self._limit = limit
        self.emitted: dict[tuple[str, str], deque[tuple[int, bytes, int]]] = {}
        self.executed: dict[str, deque[tuple[int, Delivery]]] = {}
        self.acked: dict[str, deque[Any]] = {}
        self.failed: dict[str, deque[Any]] = {}
        self.counters: dict[int, Counter[str]] = {}
        #: Rows that Spark sinks would have handed over, with the task; and the count per task, kept or not.
        self.rows: dict[str, deque[tuple[int, dict[str, Any]]]] = {}
        self._rows_of: Counter[tuple[str, int]] = Counter()

    def emit(self, component: str, stream: str, task: int, payload: bytes, kind: int) -> None:
        """A task emitted a tuple."""
        self._list(self.emitted, (component, stream)).append((task, payload, kind))
        self.count(task, f"__emit-count/{stream}")

    def execute(self, component: str, task: int, delivery: Delivery) -> None:
        """A bolt was given a tuple."""
        self._list(self.executed, component).append((task, delivery))
        self._count_input(task, "__execute-count", delivery.component, delivery.stream)

    def row(self, component: str, task: int, row: dict[str, Any]) -> None:
        """A sink took a row."""
        self._list(self.rows, component).append((task, row))
        self._rows_of[component, task] += 1

    def rows_of(self, component: str, task: int) -> int:
        """Number of rows a task of a sink has taken."""
        return self._rows_of[component, task]

    def keep_rows(self, component: str, task: int, count: int) -> None:
        """Keep only the first `count` rows of a task: it goes back to a checkpoint."""
        surplus = self._rows_of[component, task] - count
        self._rows_of[component, task] = count
        kept: list[tuple[int, dict[str, Any]]] = []
        for owner, row in reversed(self.rows.get(component, ())):
            if owner == task and surplus > 0:
                surplus -= 1
            else:
                kept.append((owner, row))
        rows = self._list(self.rows, component)
        rows.clear()
        rows.extend(reversed(kept))

    def bolt_ack(self, task: int, component: str, stream: str) -> None:
        """A bolt acked a tuple of this source."""
        self._count_input(task, "__ack-count", component, stream)

    def bolt_fail(self, task: int, component: str, stream: str) -> None:
        """A bolt failed a tuple of this source."""
        self._count_input(task, "__fail-count", component, stream)

    def spout_end(self, component: str, task: int, tup_id: Any, outcome: Outcome) -> None:
        """A spout was told how a tuple ended."""
        ended = self.acked if outcome is Outcome.ACKED else self.failed
        self._list(ended, component).append(tup_id)
        self.count(task, "__ack-count" if outcome is Outcome.ACKED else "__fail-count")
        if outcome is Outcome.TIMED_OUT:
            self.count(task, "__timeout-count")

    def count(self, task: int, name: str, by: float = 1) -> None:
        """Add to a counter of a task."""
        self.counters.setdefault(task, Counter())[name] += by  # type: ignore[assignment]

    def _count_input(self, task: int, name: str, component: str, stream: str) -> None:
        self.count(task, f"{name}/{stream}")
        self.count(task, f"{name}/{component}/{stream}")

    def _list(self, lists: dict[Any, deque[Any]], key: Any) -> deque[Any]:
        found = lists.get(key)
        if found is None:
            found = lists[key] = deque(maxlen=self._limit)
        return found
