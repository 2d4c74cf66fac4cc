"""The pending changes of one transaction, in addition to the rows that it has read. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar, cast

import msgspec
from msgspec.structs import replace

from heronpy.common.errors import LedgerError
from heronpy.ingest.ledger.ranges import Piece, total
from heronpy.ingest.ledger.requests import Chunk, Finished
from heronpy.ingest.ledger.store import KEPT, Changes, View
from heronpy.ingest.ledger.types import (
    TEXT_MAX,
    Config,
    Pipeline,
    Row,
    Span,
    SpanState,
    Tally,
    Unit,
    UnitState,
    key_of,
)

R = TypeVar("R", bound=Row)


class Draft:
    """Pending changes: `get` includes them, but the lists of the view do not."""

    def __init__(self, view: View, now: float) -> None:
        self.view = view
        self.now = now
        self._rows: dict[tuple[type, tuple[int | str, ...]], Row | None] = {}
        self._wipe = False

    # ---- rows -------------------------------------------------------------------------------
    def get(self, kind: type[R], *key: int | str) -> R | None:
        """Return the row with this primary key, including pending changes."""
        if (kind, key) in self._rows:
            return cast("R | None", self._rows[kind, key])
        return None if self._wipe and kind not in KEPT else self.view.get(kind, *key)

    def put(self, row: Row) -> None:
        self._rows[type(row), key_of(row)] = row

    def drop(self, row: Row) -> None:
        self._rows[type(row), key_of(row)] = None

    def wipe(self) -> None:
        """Remove all rows except those of `store.KEPT`."""
        self._wipe = True

    @property
    def is_empty(self) -> bool:
        return not self._rows and not self._wipe

    def changes(self) -> Changes:
        return Changes(
            tuple(row for row in self._rows.values() if row is not None),
            tuple(key for key, row in self._rows.items() if row is None),
            self._wipe,
        )

    # ---- the pipeline -----------------------------------------------------------------------
    @property
    def pipeline(self) -> Pipeline:
        found = self.get(Pipeline)
        if found is None:
            name = self.view.name
            raise LedgerError(
                f"the ledger has no pipeline {name!r}; if the pipeline's topology is running, the ledger was emptied or"
                f" replaced, so run: heron units rebuild {name} --from TABLE; otherwise start the topology first"
            )
        return found

    @property
    def config(self) -> Config:
        try:
            return msgspec.json.decode(self.pipeline.config, type=Config)
        except msgspec.MsgspecError as error:
            raise LedgerError(
                f"the ledger's counters of the pipeline are damaged ({error}); move the ledger away, and run: heron"
                " units rebuild"
            ) from None

    def count(self, **by: int) -> None:
        """Add to the counts in the pipeline's tally."""
        known = self.get(Tally) or Tally()
        self.put(replace(known, **{name: getattr(known, name) + more for name, more in by.items()}))

    def next_unit(self) -> int:
        pipeline = self.pipeline
        self.put(replace(pipeline, next_unit=pipeline.next_unit + 1))
        return pipeline.next_unit

    # ---- units and their spans --------------------------------------------------------------
    def make_unit(
        self, pieces: Iterable[Piece], since: float, like: Unit | None = None, tries: int = 0, weight: int = 0
    ) -> int:
        """Create a ready unit from these ranges; `like`: the unit that was split."""
        pieces = list(pieces)
        number, size = self.next_unit(), total(pieces)
        root, made, error = number, self.now, ""
        if like is not None:
            root, made, error = like.root, like.made, like.error
            # The ledger does not read the list, so it assumes that all bytes of lines have the same weight.
            weight = like.weight and max(1, like.weight * size // like.bytes)
        self.put(Unit(number, root, UnitState.READY, size, since, made, tries=tries, error=error, weight=weight))
        for file, begin, end in pieces:
            self.put(Span(file, begin, end, SpanState.UNIT, number))
        return number

    def pieces_of(self, unit: int) -> list[Piece]:
        """Return the chunks of a unit as pieces; the unit must not have changed in this transaction."""
        return [(span.file, span.begin, span.end) for span in self.view.spans_of_unit(unit)]

    def make_bad(self, pieces: Iterable[Piece], root: int, tries: int, error: str) -> None:
        for file, begin, end in pieces:
            self.put(Span(file, begin, end, SpanState.BAD, root, tries, error))

    def settle(self, units: Iterable[Unit]) -> None:
        """Mark the spans of these units as done, merge them with done neighbours, and remove the units' rows."""
        done: dict[int, dict[int, Span]] = {}
        for unit in units:
            for span in (*self.view.spans_of_unit(unit.id), *self.view.done_beside(unit.id)):
                done.setdefault(span.file, {})[span.begin] = span
            self.drop(unit)
        for file, spans in done.items():
            self._merge(file, spans)

    def _merge(self, file: int, old: dict[int, Span]) -> None:
        merged: list[Span] = []
        for span in sorted(old.values(), key=lambda one: one.begin):
            if merged and merged[-1].end == span.begin:
                merged[-1] = replace(merged[-1], end=span.end)
            else:
                merged.append(Span(file, span.begin, span.end, SpanState.DONE, 0))
        for span in old.values():
            self.drop(span)
        for span in merged:
            self.put(span)

    def chunks(self, unit: int, site: str) -> tuple[Chunk, ...]:
        """Return the chunks of a unit, with their paths on a site."""
        files = {file.id: file for file in self.view.files_of_unit(unit)}
        places = {copy.file: (copy.path, copy.tail) for copy in self.view.copies_of_unit(unit, site)}
        spans = self.view.spans_of_unit(unit)
        for span in spans:
            if span.file not in files:
                raise LedgerError(
                    f"the ledger is damaged: unit {unit} has bytes of file {span.file}, which is not listed; move the"
                    " ledger away, and run: heron units rebuild"
                )
        return tuple(
            Chunk(
                span.file, file.key, file.generation, span.begin, span.end, file.head, *places.get(span.file, ("", ""))
            )
            for span in spans
            for file in (files[span.file],)
        )

    def finished(self, unit: Unit, site: str) -> Finished:
        one, chunks = self.pipeline, self.chunks(unit.id, site)
        return Finished(unit.id, unit.winner, one.generation, unit.rows, unit.bytes, chunks, one.ledger)


def shortened(text: str) -> str:
    """Return the text, cut to a length that every store can keep."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()[:TEXT_MAX]
