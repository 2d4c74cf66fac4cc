"""One attempt at a unit: its bytes through the user's function into a stage."""

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

#: Rows that are taken at once, at most, and the time that they should take.
MANY_MAX, MANY_S = 512, 0.005


class RowError(Exception):
    """User code, or a row of it, is to blame: `__cause__` says how; `line` where, if that is known."""

    def __init__(self, line: Line | None) -> None:
        super().__init__()
        self.line = line


class Attempt:
    """See the module. Work in slices, so that the task stays reachable while a unit takes long."""

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
        #: Rows are taken one by one, so that an error is that of the line which was given out last.
        self._exact = work.tries > 0
        self._many = 1
        self._unit = self._unit_of()

    @property
    def rows(self) -> int:
        """How many rows the function has given so far that could be used."""
        return self._count

    def go_on(self, until: float) -> Commit | None:
        """Work until that time (monotonic) or the end; then the commit to ask for.

        RowError, MovedError; OSError of the disk of the table, which nothing that the function raises is taken for.
        """
        if self._writer is None:
            self._stages.refuse_other_ledger(self.work.ledger)
            self._stage = self._stages.make(self.work.generation, self.work.unit, self.work.attempt)
            self._writer = self._opened(self._stage)
        while True:
            began = time.monotonic()
            rows = self._taken()
            try:
                if not rows:
                    return self._finish(self._writer)
                self._count += self._writer.write(rows[0]) if self._exact else self._writer.write_many(rows)
            except (OSError, MovedError, MemoryError):
                raise
            except Exception as error:
                if self._exact:
                    # What is many rows was made of many lines.
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
        """The next rows of the function; none behind the last one."""
        try:
            if self._rows is None:
                self._rows = iter(rows_of(self._rows_of(self._unit)))
            return list(islice(self._rows, self._many))
        except MemoryError:
            raise
        except Exception as error:
            raise row_error(self._unit, error) from error

    def discard(self) -> None:
        """It does not count: remove what it has staged."""
        self._unit.close()
        if self._writer is not None:
            try:
                self._writer.discard()
            except Exception:
                pass
        if self._stage is not None:
            self._stages.discard(self._stage)

    def _unit_of(self) -> LogUnit:
        options, work = self._options, self.work
        page = self._page if work.tries else None
        return LogUnit(work, options.pattern.root, options.decoder(), options.line_bytes_max, page)

    def _begin_anew(self) -> None:
        """One of several rows cannot be written: find out which."""
        self.discard()
        self._writer = self._rows = None
        self._count, self._exact, self._many = 0, True, 1
        self._unit = self._unit_of()

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


def _next_many(many: int, took_s: float) -> int:
    """How many rows to take at once: few enough to stay reachable, and bounded."""
    if took_s > MANY_S * 4:
        return max(1, many // 4)
    return min(many * 2, MANY_MAX) if took_s < MANY_S else many


def rows_of(rows: object) -> Iterable[object]:
    """What the user's function has given, if it can be rows; TypeError."""
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise TypeError(f"rows(unit) must give rows, such as a generator or a list, not {type(rows).__name__}")
    return rows


def row_error(unit: LogUnit, error: Exception) -> RowError | MovedError:
    """What an error of the user's function means: of it, or of a file that cannot be read, also if it was caught."""
    try:
        unit.check()
    except MovedError as moved:
        return moved
    except HeronError:
        pass
    return RowError(unit.suspect)
