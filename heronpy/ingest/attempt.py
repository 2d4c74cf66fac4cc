"""One attempt at a unit: the user's function turns the bytes into rows, which are written to a stage."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from heronpy.common.errors import HeronError
from heronpy.ingest.ledger.requests import Commit, Line, Work
from heronpy.ingest.options import Rows, UnitOptions
from heronpy.ingest.outputs.base import Writer
from heronpy.ingest.outputs.lineage import Lineage, Range
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.unit import LogUnit, MovedError, SuspectPage

#: Maximum number of rows in one step, and the target duration of a step in seconds.
MANY_MAX, MANY_S = 512, 0.005


class RowError(Exception):
    """User code or one of its rows is at fault. `__cause__` is the error; `line` is the failed line, if known."""

    def __init__(self, line: Line | None) -> None:
        super().__init__()
        self.line = line


class Attempt:
    """One attempt at a unit, processed in slices, so that the task can answer requests during a long unit."""

    def __init__(self, work: Work, options: UnitOptions, rows: Rows, stages: Stages, page: SuspectPage) -> None:
        self.work = work
        assert options.output is not None
        self._options, self._output = options, options.output
        self._stages = stages
        self._rows_of = rows
        self._page = page
        self._began = time.monotonic()
        self._stage: Path | None = None
        self._writer: Writer | None = None
        self._rows: Iterator[object] | None = None
        self._count = 0
        #: Whether rows are taken one by one, so that an error belongs to the last line that was read.
        self._exact = work.tries > 0
        self._many = 1
        self._unit = unit_of(self.work, self._options, self._page)

    @property
    def rows(self) -> int:
        """Number of usable rows that the function has returned so far."""
        return self._count

    def go_on(self, until: float) -> Commit | None:
        """Process rows until the monotonic time `until`; return the commit request once the unit is finished.

        Raises RowError, MovedError, and OSError for the table's disk, but never an OSError from the function.
        """
        if self._writer is None:
            self._stages.refuse_other_ledger(self.work.ledger)
            self._stage = self._stages.make(self.work.generation, self.work.unit, self.work.attempt)
            self._writer = self._opened(self._stage)
        while True:
            began = time.monotonic()
            try:
                rows = self._taken()
            except RowError:
                if not self._begins_apart():
                    raise
                return None
            try:
                if not rows:
                    return self._finish(self._writer)
                self._count += self._writer.write(rows[0]) if self._exact else self._writer.write_many(rows)
            except (OSError, MovedError, MemoryError):
                raise
            except Exception as error:
                if self._begins_apart():
                    return None
                if self._exact:
                    # A batch of rows usually comes from many lines, so no single line is suspect.
                    of_many = bool(rows) and getattr(rows[0], "num_rows", 1) != 1
                    raise RowError(None if of_many else self._unit.suspect) from error
                self._begin_anew()
                return None
            now = time.monotonic()
            if not self._exact:
                self._many = _next_many(self._many, now - began)
            if now >= until:
                return None

    def _opened(self, stage: Path) -> Writer:
        try:
            return self._output.open(stage, self._lineage(()).to_json())
        except (OSError, MemoryError):
            raise
        except Exception as error:
            raise RowError(None) from error

    def _taken(self) -> list[object]:
        """Return the function's next rows; an empty list after the last row."""
        try:
            if self._rows is None:
                self._rows = iter(rows_of(self._rows_of(self._unit)))
            return list(islice(self._rows, self._many))
        except MemoryError:
            raise
        except Exception as error:
            raise row_error(self._unit, error) from error

    def discard(self) -> None:
        """Abandon the attempt and remove its stage."""
        self._unit.close()
        if self._writer is not None:
            try:
                self._writer.discard()
            except Exception:
                pass
        if self._stage is not None:
            self._stages.discard(self._stage)

    def _begins_apart(self) -> bool:
        """If lines that were processed together have failed, restart line by line; return whether it restarts."""
        first = self._unit.together
        if not self._exact or first is None or self._unit.apart is not None:
            return False
        self._begin_anew()
        self._unit.apart = first
        return True

    def _begin_anew(self) -> None:
        """Restart the attempt row by row, to find the row that cannot be written."""
        self.discard()
        self._writer = self._rows = None
        self._count, self._exact, self._many = 0, True, 1
        self._unit = unit_of(self.work, self._options, self._page)

    def _finish(self, writer: Writer) -> Commit:
        assert self._stage is not None
        writer.prepare()
        self._stages.finish(self._stage, self._lineage(self._unit.digests()))
        work = self.work
        return Commit(work.unit, work.attempt, work.generation, self._count, time.monotonic() - self._began)

    def _lineage(self, digests: Iterable[str]) -> Lineage:
        found = list(digests) or [""] * len(self.work.chunks)
        chunks = tuple(
            Range(chunk.key, chunk.generation, chunk.begin, chunk.end, chunk.head, digest)
            for chunk, digest in zip(self.work.chunks, found, strict=True)
        )
        work = self.work
        pipeline = self._options.pipeline
        return Lineage(pipeline, work.generation, work.unit, work.attempt, self._count, chunks, ledger=work.ledger)


def unit_of(work: Work, options: UnitOptions, page: SuspectPage) -> LogUnit:
    """Create the unit of an attempt. Only retries record their current line in the shared page."""
    return LogUnit(
        work,
        options.files.root,
        options.decoder(),
        options.line_bytes_max,
        page if work.tries else None,
        header_lines=options.header_lines,
        whole=options.whole,
    )


def _next_many(many: int, took_s: float) -> int:
    """Return the number of rows to take in one step, which is small enough that the task can answer requests."""
    if took_s > MANY_S * 4:
        return max(1, many // 4)
    return min(many * 2, MANY_MAX) if took_s < MANY_S else many


def rows_of(rows: object) -> Iterable[object]:
    """Return the result of the user's function as an iterable of rows. Raises TypeError if it cannot contain rows."""
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise TypeError(f"rows(unit) must return rows, such as a generator or a list, not {type(rows).__name__}")
    return rows


def row_error(unit: LogUnit, error: Exception) -> RowError | MovedError:
    """Return the error to report after an error in the user's function, which may have caught a read error."""
    try:
        unit.check()
    except MovedError as moved:
        return moved
    except HeronError:
        pass
    # A function that reads ahead marks the error, because no line is more suspect than other lines.
    return RowError(None if getattr(error, "of_many", False) else unit.suspect)
