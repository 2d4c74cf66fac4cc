"""One attempt at a unit whose rows go to bolts: each is emitted with an id, again if it fails, until all are acked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any

from heronpy.common.errors import HeronError
from heronpy.ingest.attempt import RowError, row_error, rows_of
from heronpy.ingest.ledger.requests import Commit, Work
from heronpy.ingest.options import Rows, UnitOptions
from heronpy.ingest.unit import LogUnit, SuspectPage

#: A row that has failed is emitted again after so long, doubled each time.
AGAIN_S, AGAIN_MAX_S = 0.1, 10.0
#: How long there is nothing to do while rows are not acked; an ack or a fail ends the wait.
REST_S = 1.0
#: A row is given up, and its unit with it, after so many failures in a row; as long as no other row of the attempt was
#: acked the bolts may be what is broken, and not the row.
ROW_FAILS, ROW_FAILS_ALONE = 5, 100

#: Ids over all attempts of this process, so that a late ack of an earlier one means nothing.
_IDS = count(1)


class RefusedRowError(HeronError):
    """Bolts fail a row each time."""


class EmittedAttempt:
    """See the module. What is neither acked nor given out is bounded by `topology.max.spout.pending`: a call of `go_on`
    emits one row at most, and the runtime makes none above it."""

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
        self._unit = LogUnit(
            work, options.pattern.root, options.decoder(), options.line_bytes_max, page if work.tries else None
        )
        self._began = time.monotonic()
        self._rows: Iterator[object] | None = None
        self._is_read = False
        self._count = 0
        #: What is neither acked nor given up, and how often each of it has failed.
        self._pending: dict[int, tuple[Sequence[Any], int]] = {}
        self._acked = 0
        #: Why a row was given up; "" as long as none was.
        self._refused = ""
        #: When what has failed is emitted again.
        self._again: list[tuple[float, int]] = []
        #: How long there is nothing to emit; 0: the last call has emitted.
        self.rest_s = 0.0

    @property
    def rows(self) -> int:
        """How many rows the function has given so far that could be used."""
        return self._count

    def go_on(self, until: float) -> Commit | None:
        """Emit a row; the commit once all rows are acked. RowError, MovedError."""
        self.rest_s = 0.0
        if self._refused:
            # Which line it was made of is not known: `rows` may have taken many before it gave the first row.
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
        """A row is processed; one of an earlier attempt is ignored."""
        self._acked += self._pending.pop(number, None) is not None

    def failed(self, number: int) -> None:
        """A row failed or timed out; it is emitted again later."""
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
        """It does not count: what is not acked is forgotten, and the files are closed."""
        self._pending.clear()
        self._again.clear()
        self._is_read = True
        close = getattr(self._rows, "close", None)
        if close is not None:
            close()
        self._unit.close()

    def _next(self) -> Sequence[Any] | None:
        """The values of the next row; None behind the last one."""
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
    """The values of a row in the order of the fields; TypeError or ValueError when it does not fit them."""
    if isinstance(row, Mapping):
        if row.keys() != set(fields):
            raise ValueError(f"a row has {sorted(map(str, row))}, and the stream has the fields {list(fields)}")
        return [row[name] for name in fields]
    if not isinstance(row, list | tuple):
        raise TypeError(f"a row that goes to bolts is a list, tuple or dict, not {type(row).__name__}: {row!r:.200}")
    if len(row) != len(fields):
        raise ValueError(f"a row has {len(row)} values, and the stream {len(fields)} fields: {row!r:.200}")
    return row
