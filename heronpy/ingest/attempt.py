"""One attempt at a unit: its bytes through the user's function into a stage."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from heronpy.ingest.ledger.requests import Commit, Line, Work
from heronpy.ingest.options import Rows, UnitOptions
from heronpy.ingest.outputs.base import Writer
from heronpy.ingest.outputs.lineage import Lineage, Range
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.page import SuspectPage
from heronpy.ingest.unit import LogUnit, MovedError


class RowError(Exception):
    """User code, or a row of it, is to blame: `__cause__` says how; `line` where, if that is known."""

    def __init__(self, line: Line | None) -> None:
        super().__init__()
        self.line = line


class Attempt:
    """See the module. Work in slices, so that the task stays reachable while a unit takes long."""

    def __init__(self, work: Work, options: UnitOptions, rows: Rows, stages: Stages, page: SuspectPage) -> None:
        self.work = work
        self._options = options
        self._stages = stages
        self._rows_of = rows
        self._unit = LogUnit(
            work, options.pattern.root, options.decoder(), options.line_bytes_max, page if work.tries else None
        )
        self._began = time.monotonic()
        self._stage: Path | None = None
        self._writer: Writer | None = None
        self._rows: Iterator[object] | None = None
        self._count = 0

    def go_on(self, until: float) -> Commit | None:
        """Work until that time (monotonic) or the end; then the commit to ask for.

        RowError, MovedError, OSError of the disk of the table.
        """
        try:
            if self._writer is None:
                self._stage = self._stages.make(self.work.generation, self.work.unit, self.work.attempt)
                self._writer = self._options.output.open(self._stage, self._lineage(()).to_json())
                self._rows = iter(_iterable(self._rows_of(self._unit)))
            assert self._rows is not None
            for row in self._rows:
                self._count += self._writer.write(row)
                if time.monotonic() >= until:
                    return None
            return self._finish(self._writer)
        except (MovedError, MemoryError):
            raise
        except OSError as error:
            if self._is_ours(error):
                raise
            raise RowError(self._unit.suspect) from error
        except Exception as error:
            raise RowError(self._unit.suspect) from error

    def discard(self) -> None:
        """It does not count: remove what it has staged."""
        if self._writer is not None:
            try:
                self._writer.discard()
            except Exception:
                pass
        if self._stage is not None:
            self._stages.discard(self._stage)

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
        return Lineage(self._options.pipeline, work.generation, work.unit, work.attempt, self._count, chunks)

    def _is_ours(self, error: OSError) -> bool:
        """Whether an error is one of the table's disk, and not of the user's function."""
        named = error.filename if isinstance(error.filename, str) else ""
        return self._stage is None or not named or any(named.startswith(str(home)) for home in self._stages.homes)


def _iterable(rows: object) -> Iterable[object]:
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise TypeError(f"rows(unit) must give rows, such as a generator or a list, not {type(rows).__name__}")
    return rows
