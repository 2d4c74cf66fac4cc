"""When a micro-batch is handed over: as soon as it is full or old, or later while Spark is behind. Pure.

Each batch costs Spark about the same, whatever its size. So while batches of a task wait for Spark, the next
one grows instead of queuing behind them, and a backlog is processed in a few large jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

#: Uncommitted batches of a task that keep Spark busy: one in progress, and the next one.
AHEAD = 2
#: A growing batch holds at most this many times `rows`: the task keeps its tuples, which small rows make many.
GROWTH_MAX = 16


class Step(Enum):
    """What to do with the batch that is being filled."""

    FILL = "fill"
    HAND_OVER = "hand over"
    #: Take no more tuples until a batch has its outcome, then hand over.
    WAIT = "wait"


@dataclass(slots=True, frozen=True)
class Limits:
    """Of the batches of one task. `age_s` is infinite where checkpoints end batches."""

    rows: int
    bytes: int
    age_s: float
    #: Size up to which a batch grows while Spark is behind; unless it is above `bytes`, none grows.
    bytes_max: int
    #: Most batches without outcome.
    uncommitted_max: int

    @property
    def grows(self) -> bool:
        """Whether a batch may grow beyond its normal size."""
        return self.bytes_max > self.bytes

    @property
    def rows_max(self) -> int:
        """Rows up to which a batch grows while Spark is behind."""
        return self.rows * GROWTH_MAX


def next_step(rows: int, size_bytes: int, age_s: float, uncommitted: int, limits: Limits) -> Step:
    """What to do with a batch of this size and age, `uncommitted` others of its task being without outcome."""
    is_due = rows >= limits.rows or size_bytes >= limits.bytes or age_s >= limits.age_s
    if rows == 0 or not is_due:
        return Step.FILL
    if uncommitted < min(AHEAD, limits.uncommitted_max):
        return Step.HAND_OVER
    if limits.grows and rows < limits.rows_max and size_bytes < limits.bytes_max:
        return Step.FILL
    return Step.HAND_OVER if uncommitted < limits.uncommitted_max else Step.WAIT


def room_rows(rows: int, size_bytes: int, row_bytes: float, limits: Limits) -> int:
    """How many rows of `row_bytes` to take before the next decision, so that no limit is passed unnoticed."""
    next_rows = limits.rows if rows < limits.rows else limits.rows_max
    next_bytes = limits.bytes if size_bytes < limits.bytes else limits.bytes_max
    return max(1, min(next_rows - rows, int((next_bytes - size_bytes) / max(row_bytes, 1.0))))
