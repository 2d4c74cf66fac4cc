"""The micro-batch that a sink task is filling: its rows as Arrow columns, and the tuples of the rows. Pure.

Rows are converted to columns a few hundred at a time, so that no Python code runs per value and the size of the
batch is known while it grows. For tuples that arrive as batches, no code runs per row, and no tuple object is created.
Until the schema is known (it may be inferred from the first batch), the values are kept unconverted.

A batch is handed over when it is full or old enough, or later while Spark is behind. A batch costs Spark about the
same, regardless of its size. So while batches of a task wait for Spark, the next batch grows instead of queuing behind
them, and a backlog is processed in a few large jobs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from heronpy.connectors.spark.rows import RowShape, arrow, row_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from heronpy.api.batch import Batch


#: Number of uncommitted batches of a task that keep Spark busy: one in progress and one waiting.
AHEAD = 2
#: A growing batch contains at most this multiple of `rows`, because the task keeps the tuples of its batch in memory.
GROWTH_MAX = 16


class Step(Enum):
    """The next step for the current batch."""

    FILL = "fill"
    HAND_OVER = "hand over"
    #: Take no more tuples until an earlier batch has its outcome, then hand over the current batch.
    WAIT = "wait"


class Limits(Struct, frozen=True):
    """Limits for the batches of one task. `age_s` is infinite if checkpoints end the batches."""

    rows: int
    bytes: int
    age_s: float
    #: Size up to which a batch grows while Spark is behind; batches grow only if this is above `bytes`.
    bytes_max: int
    #: Maximum number of batches without an outcome.
    uncommitted_max: int

    @property
    def grows(self) -> bool:
        """Whether a batch may grow beyond its normal size."""
        return self.bytes_max > self.bytes

    @property
    def rows_max(self) -> int:
        """The number of rows up to which a batch grows while Spark is behind."""
        return self.rows * GROWTH_MAX


def next_step(rows: int, size_bytes: int, age_s: float, uncommitted: int, limits: Limits) -> Step:
    """Return the next step for a batch of this size and age. `uncommitted`: number of batches without an outcome."""
    is_due = rows >= limits.rows or size_bytes >= limits.bytes or age_s >= limits.age_s
    if rows == 0 or not is_due:
        return Step.FILL
    if uncommitted < min(AHEAD, limits.uncommitted_max):
        return Step.HAND_OVER
    if limits.grows and rows < limits.rows_max and size_bytes < limits.bytes_max:
        return Step.FILL
    return Step.HAND_OVER if uncommitted < limits.uncommitted_max else Step.WAIT


def room_rows(rows: int, size_bytes: int, row_bytes: float, limits: Limits) -> int:
    """Return how many rows of `row_bytes` bytes may be added before the next decision, without exceeding a limit."""
    next_rows = limits.rows if rows < limits.rows else limits.rows_max
    next_bytes = limits.bytes if size_bytes < limits.bytes else limits.bytes_max
    return max(1, min(next_rows - rows, int((next_bytes - size_bytes) / max(row_bytes, 1.0))))


class Refused(Struct, frozen=True):
    """A tuple that does not fit the sink's schema, and the reason."""

    tuple: Any
    reason: str


class Filling:
    """One batch; `take` adds tuples, `close` ends it."""

    def __init__(self, shape: RowShape, row_bytes: float = math.inf) -> None:
        self._shape = shape
        self._width = len(shape.fields)
        #: The tuples of the rows, without refused tuples; batches of tuples are not unpacked.
        self.tuples: list[Any] = []
        self._rows = 0
        #: Size of the rows in bytes: the size of the columns, or an estimate while the schema is unknown.
        self.size_bytes = 0
        #: Mean size of the most recent rows in bytes, initially from the previous batch; infinite before the first row.
        self.row_bytes = row_bytes
        self._tables: list[pa.Table] = []
        #: Rows that are not in a table yet, because the schema is unknown.
        self._values: list[Sequence[Any]] = []

    def __len__(self) -> int:
        return self._rows

    def take_batches(self, batches: list[Batch]) -> list[Refused]:
        """Add batches of tuples; return the tuples that do not fit, which are not added."""
        refused: list[Refused] = []
        for as_arrow, some in groupby(batches, lambda batch: batch.record_batch is not None):
            if as_arrow:
                for batch in some:
                    refused += self.take_arrow(batch, batch.record_batch)
            else:
                refused += self._take_columns(list(some))
        return refused

    def _take_columns(self, batches: list[Batch]) -> list[Refused]:
        table = None
        if self._shape.schema is not None and all(len(batch.fields) == self._width for batch in batches):
            columns = zip(*(batch.columns.values() for batch in batches), strict=True)
            table = self._shape.table_of([list(chain.from_iterable(parts)) for parts in columns])
        if table is None:
            # Perhaps only some rows do not fit.
            return self.take(list(chain.from_iterable(batches)))
        self._add(table, batches, table.num_rows)
        return []

    def take_arrow(self, batch: Any, columns: pa.RecordBatch) -> list[Refused]:
        """Add a batch of tuples whose values are these columns; return the tuples that do not fit and were left out."""
        if columns.num_columns != self._width:
            reason = f"the row has {columns.num_columns} values, but the sink has {self._width} columns"
            return [Refused(tup, reason) for tup in batch]
        refused = []
        if self._shape.schema is None:
            self._shape.settle(columns.schema.types)
            refused = self._close_values()
        table = self._shape.cast(columns)
        if table is None:
            # Perhaps only some rows do not fit.
            return refused + self.take(list(batch))
        self._add(table, [batch], len(batch))
        return refused

    def take(self, tuples: list[Any]) -> list[Refused]:
        """Add tuples; return the tuples that do not fit, which are not added."""
        values = [tup.values for tup in tuples]
        refused: list[Refused] = []
        if set(map(len, values)) - {self._width}:
            tuples, values, refused = self._of_width(tuples)
        if self._shape.schema is None:
            self.tuples += tuples
            self._values += values
            self._rows += len(tuples)
            self._measure(sum(map(row_bytes, values)), len(values))
            return refused
        table, kept, misfits = self._convert(values, tuples)
        if kept:
            self._add(table, kept, len(kept))
        return refused + misfits

    def close(self) -> tuple[pa.Table, list[Refused]]:
        """Return all rows as one table, and the tuples that do not fit. The batch must not be empty."""
        refused = self._close_values()
        return arrow().concat_tables(self._tables).combine_chunks(), refused

    def _close_values(self) -> list[Refused]:
        """Make a table of the values that waited for the schema; return the tuples that do not fit."""
        if not self._values:
            return []
        # All tuples of the batch belong to waiting values.
        table, self.tuples, refused = self._convert(self._values, self.tuples)
        self._values = []
        self._tables.append(table)
        self._rows = len(self.tuples)
        return refused

    def _convert(self, values: list[Sequence[Any]], tuples: list[Any]) -> tuple[pa.Table, list[Any], list[Refused]]:
        table, misfits = self._shape.table(values)
        if not misfits:
            return table, tuples, []
        unfit = {misfit.index for misfit in misfits}
        kept = [tup for index, tup in enumerate(tuples) if index not in unfit]
        return table, kept, [Refused(tuples[misfit.index], misfit.reason) for misfit in misfits]

    def _add(self, table: pa.Table, tuples: Sequence[Any], rows: int) -> None:
        self._tables.append(table)
        self.tuples += tuples
        self._rows += rows
        self._measure(table.nbytes, rows)

    def _measure(self, size_bytes: int, rows: int) -> None:
        self.size_bytes += size_bytes
        if rows:
            self.row_bytes = size_bytes / rows

    def _of_width(self, tuples: list[Any]) -> tuple[list[Any], list[Sequence[Any]], list[Refused]]:
        """Return the tuples with a value for each column, their values, and the other tuples."""
        fitting = [tup for tup in tuples if len(tup.values) == self._width]
        refused = [
            Refused(tup, f"the row has {len(tup.values)} values, but the sink has {self._width} columns")
            for tup in tuples
            if len(tup.values) != self._width
        ]
        return fitting, [tup.values for tup in fitting], refused
