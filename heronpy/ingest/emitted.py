"""One attempt at a unit whose rows go to bolts. Each row is emitted with an id, and re-emitted each time it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any

from heronpy.common.errors import HeronError
from heronpy.ingest.attempt import RowError, row_error, rows_of, unit_of
from heronpy.ingest.ledger.requests import Commit, Work
from heronpy.ingest.options import Rows, UnitOptions
from heronpy.ingest.unit import SuspectPage

#: Pauses in seconds before a failed row is emitted again: the first and the longest. Each pause is twice as long as the
#: previous one.
AGAIN_S, AGAIN_MAX_S = 0.1, 10.0
#: Longest wait for acks in seconds; an ack or a failure ends the wait.
REST_S = 1.0
#: Number of failures of one row after which the attempt fails. The higher limit applies until a row of the attempt is
#: acked, because the bolts may be broken instead of the row.
ROW_FAILS, ROW_FAILS_ALONE = 5, 100

#: Ids for all attempts of this process, so that late acks of earlier attempts are ignored.
_IDS = count(1)


class RefusedRowError(HeronError):
    """Bolts have failed a row too often."""


class EmittedAttempt:
    """One attempt at a unit whose rows go to bolts.

    `topology.max.spout.pending` bounds the unacked rows: a call of `go_on` emits at most one row, and the runtime
    makes no calls above the limit."""

    def __init__(
        self,
        work: Work,
        options: UnitOptions,
        rows: Rows,
        page: SuspectPage,
        emit: Callable[[Sequence[Any], int], object],
    ) -> None:
        self.work = work
        self._rows_of = rows
        self._fields = options.fields
        self._emit = emit
        self._unit = unit_of(work, options, page)
        self._began = time.monotonic()
        self._rows: Iterator[object] | None = None
        self._is_read = False
        self._count = 0
        #: Unacked rows, with their numbers of failures.
        self._pending: dict[int, tuple[Sequence[Any], int]] = {}
        self._acked = 0
        #: The reason why the attempt fails, if a row has failed too often; otherwise "".
        self._refused = ""
        #: The times at which failed rows are emitted again.
        self._again: list[tuple[float, int]] = []
        #: Seconds without anything to emit; 0 if the last call has emitted a row.
        self.rest_s = 0.0

    @property
    def rows(self) -> int:
        """Number of usable rows that the function has returned so far."""
        return self._count

    def go_on(self, until: float) -> Commit | None:
        """Emit at most one row; return the commit request once all rows are acked. Raises RowError and MovedError."""
        self.rest_s = 0.0
        if self._refused:
            # The line of a row is unknown: `rows` may have read many lines before it returned the first row.
            raise RowError(None) from RefusedRowError(self._refused)
        now = time.monotonic() if self._again else 0.0
        if self._again and self._again[0][0] <= now:
            _, number = heappop(self._again)
            if number in self._pending:
                self._emit(self._pending[number][0], number)
            return None
        values = None if self._is_read else self._next()
        if values is not None:
            number = next(_IDS)
            self._pending[number] = values, 0
            self._count += 1
            self._emit(values, number)
            return None
        if self._pending:
            self.rest_s = min(REST_S, self._again[0][0] - now) if self._again else REST_S
            return None
        work = self.work
        return Commit(work.unit, work.attempt, work.generation, self._count, time.monotonic() - self._began)

    def acked(self, number: int) -> None:
        """Record that a row has been processed; rows of earlier attempts are ignored."""
        self._acked += self._pending.pop(number, None) is not None

    def failed(self, number: int) -> None:
        """Record that a row failed or timed out; the row is emitted again later."""
        known = self._pending.get(number)
        if known is not None:
            values, failures = known
            self._pending[number] = values, failures + 1
            if failures + 1 >= (ROW_FAILS if self._acked else ROW_FAILS_ALONE):
                self._refused = f"bolts have failed this row {failures + 1} times: {values!r:.200}"
                return
            pause_s = min(AGAIN_MAX_S, AGAIN_S * 2.0 ** min(failures, 20))
            heappush(self._again, (time.monotonic() + pause_s, number))

    def discard(self) -> None:
        """Abandon the attempt: forget unacked rows and close the files."""
        self._pending.clear()
        self._again.clear()
        self._is_read = True
        close = getattr(self._rows, "close", None)
        if close is not None:
            close()
        self._unit.close()

    def _next(self) -> Sequence[Any] | None:
        """Return the values of the next row; None after the last row."""
        try:
            if self._rows is None:
                self._rows = iter(rows_of(self._rows_of(self._unit)))
            for row in self._rows:
                return values_of(row, self._fields)
            self._unit.check()
        except MemoryError:
            raise
        except Exception as error:
            raise row_error(self._unit, error) from error
        self._is_read = True
        return None


def values_of(row: object, fields: Sequence[str]) -> Sequence[Any]:
    """Return the values of a row in field order. Raises TypeError or ValueError if the row does not fit the fields."""
    if isinstance(row, Mapping):
        if row.keys() != set(fields):
            raise ValueError(f"a row has keys {sorted(map(str, row))}, but the stream has the fields {list(fields)}")
        return [row[name] for name in fields]
    if not isinstance(row, list | tuple):
        raise TypeError(f"a row for bolts must be a list, tuple or dict, not {type(row).__name__}: {row!r:.200}")
    if len(row) != len(fields):
        raise ValueError(f"a row has {len(row)} values, but the stream has {len(fields)} fields: {row!r:.200}")
    return row
