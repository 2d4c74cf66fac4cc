"""A ledger in memory for simulation and tests; it returns the same rows as the other stores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, TypeVar, cast

from heronpy.common.clock import MonotonicClock
from heronpy.ingest.ledger.store import KEPT, Changes, Decide, SiteScan, SiteSums, Sums
from heronpy.ingest.ledger.types import (
    ROWS,
    Client,
    Copy,
    Dispatch,
    File,
    Kind,
    Pace,
    Pipeline,
    Row,
    Scanned,
    Site,
    Span,
    SpanState,
    Unfinished,
    Unit,
    UnitState,
    key_of,
)

T = TypeVar("T")
R = TypeVar("R", bound=Row)
Key = tuple[int | str, ...]


class MemoryStore:
    """A store in memory, see `Store`; `now` is the clock."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self._now = now or MonotonicClock().now
        self._tables: dict[str, Tables] = {}
        self._turn = threading.Lock()

    def transact(self, pipeline: str, decide: Decide[T], lasting: bool = True) -> T:
        with self._turn:
            tables = self._tables.get(pipeline) or Tables(pipeline, self._tables)
            changes, answer = decide(tables, self._now())
            tables.apply(changes)
            if tables.get(Pipeline) is not None:
                self._tables[pipeline] = tables
            return answer

    def pipelines(self) -> tuple[str, ...]:
        return tuple(sorted(self._tables))

    def snapshot(self, pipeline: str) -> tuple[Row, ...]:
        with self._turn:
            found = self._tables.get(pipeline)
            return found.rows() if found is not None else ()

    def news(self, pipeline: str) -> tuple[Row, ...]:
        """Return all rows if one has changed since the last call; otherwise no rows."""
        found = self._tables.get(pipeline)
        if found is None or not found.is_new:
            return ()
        found.is_new = False
        return found.rows()

    def close(self) -> None:
        """Do nothing, because there is nothing to close."""


class Tables:
    """The rows of one pipeline, which are also its view."""

    def __init__(self, name: str, others: dict[str, Tables]) -> None:
        self.name = name
        self._others = others
        self._rows: dict[type, dict[Key, Any]] = {kind: {} for kind in ROWS}
        #: Keys of spans by file, and by unit.
        self._of_file: dict[int, set[Key]] = {}
        self._of_unit: dict[int, set[Key]] = {}
        #: Whether a row has changed; see `MemoryStore.news`.
        self.is_new = False

    # ---- all rows ---------------------------------------------------------------------------
    def rows(self) -> tuple[Row, ...]:
        """Return all rows, ordered by type and key."""
        return tuple(row for kind in ROWS for _, row in sorted(self._rows[kind].items()))

    def apply(self, changes: Changes) -> None:
        self.is_new |= changes.wipe or bool(changes.puts or changes.drops)
        if changes.wipe:
            for kind in ROWS:
                if kind not in KEPT:
                    self._rows[kind].clear()
            self._of_file.clear()
            self._of_unit.clear()
        for kind, key in changes.drops:
            self._drop(kind, key)
        for row in changes.puts:
            key = key_of(row)
            self._drop(type(row), key)
            self._rows[type(row)][key] = row
            if isinstance(row, Span):
                self._of_file.setdefault(row.file, set()).add(key)
                if row.state is SpanState.UNIT:
                    self._of_unit.setdefault(row.unit, set()).add(key)

    def _drop(self, kind: type, key: Key) -> None:
        row = self._rows[kind].pop(key, None)
        if isinstance(row, Span):
            for index, of in ((self._of_file, row.file), (self._of_unit, row.unit)):
                index.get(of, set()).discard(key)
                if not index.get(of):
                    index.pop(of, None)

    def every(self, kind: type[R]) -> Iterator[R]:
        return iter(self._rows[kind].values())

    def get(self, kind: type[R], *key: int | str) -> R | None:
        return cast("R | None", self._rows[kind].get(key))

    # ---- files ------------------------------------------------------------------------------
    def files(self, after: int, limit: int) -> list[File]:
        return sorted((one for one in self.every(File) if one.id > after), key=key_of)[:limit]

    def files_of(self, key: str) -> list[File]:
        return sorted((one for one in self.every(File) if one.key == key), key=lambda one: one.generation)

    def waiting(self, limit: int, sites: Set[str] = frozenset()) -> list[File]:
        found = [
            (one.since, one.id)
            for one in self.every(File)
            if one.since is not None
            and (not sites or any(copy.site in sites and copy.size > one.cut for copy in self.copies(one.id)))
        ]
        return [self._rows[File][(number,)] for _, number in sorted(found)[:limit]]

    def gone(self, before: float, limit: int) -> list[File]:
        return sorted((one for one in self.every(File) if one.gone is not None and one.gone <= before), key=key_of)[
            :limit
        ]

    def vanished(self, before: float, limit: int) -> list[File]:
        found = self.gone(before, len(self._rows[File]))
        return [one for one in found if one.cut < one.size or self._in_units(one.id)][:limit]

    def _in_units(self, file: int) -> bool:
        return any(span.state is SpanState.UNIT for span in self.spans(file))

    def copies(self, file: int) -> list[Copy]:
        return sorted((one for one in self.every(Copy) if one.file == file), key=key_of)

    def copies_on(self, site: str, limit: int) -> list[Copy]:
        return sorted((one for one in self.every(Copy) if one.site == site), key=key_of)[:limit]

    def copies_of_waiting(self, limit: int, sites: Set[str] = frozenset()) -> list[Copy]:
        files = {one.id for one in self.waiting(limit, sites)}
        return sorted((one for one in self.every(Copy) if one.file in files), key=key_of)

    # ---- spans ------------------------------------------------------------------------------
    def _spans(self, keys: Iterable[Key]) -> list[Span]:
        return [self._rows[Span][key] for key in sorted(keys)]

    def spans_of_unit(self, unit: int) -> list[Span]:
        return self._spans(self._of_unit.get(unit, ()))

    def files_of_unit(self, unit: int) -> list[File]:
        numbers = {span.file for span in self.spans_of_unit(unit)}
        return [self._rows[File][(number,)] for number in sorted(numbers)]

    def copies_of_unit(self, unit: int, site: str) -> list[Copy]:
        copies = (self.get(Copy, file.id, site) for file in self.files_of_unit(unit))
        return [copy for copy in copies if copy is not None]

    def done_beside(self, unit: int) -> list[Span]:
        chunks = self.spans_of_unit(unit)
        begins = {(chunk.file, chunk.begin) for chunk in chunks}
        ends = {(chunk.file, chunk.end) for chunk in chunks}
        keys = {key for chunk in chunks for key in self._of_file[chunk.file]}
        done = (span for span in self._spans(keys) if span.state is SpanState.DONE)
        return [span for span in done if (span.file, span.end) in begins or (span.file, span.begin) in ends]

    def spans(self, file: int) -> list[Span]:
        return self._spans(self._of_file.get(file, ()))

    def bad(self, after: tuple[int, int], limit: int, root: int | None = None) -> list[Span]:
        found = [span for span in self._bad(root) if (span.file, span.begin) > after]
        return sorted(found, key=key_of)[:limit]

    def _bad(self, root: int | None) -> Iterator[Span]:
        return (one for one in self.every(Span) if one.state is SpanState.BAD and root in (None, one.unit))

    def bad_count(self, root: int | None = None) -> int:
        return sum(1 for _ in self._bad(root))

    # ---- units ------------------------------------------------------------------------------
    def _units(self, state: UnitState) -> list[Unit]:
        return sorted((one for one in self.every(Unit) if one.state is state), key=lambda one: (one.root, one.id))

    def units(self, state: UnitState, after: tuple[int, int], limit: int) -> list[Unit]:
        return [one for one in self._units(state) if (one.root, one.id) > after][:limit]

    def expired(self, before: float, limit: int) -> list[Unit]:
        return [one for one in self._units(UnitState.LEASED) if one.until <= before][:limit]

    def orphans(self, before: float, limit: int) -> list[Unit]:
        seen = {one.name for one in self.every(Client) if one.seen >= before}
        return [one for one in self._units(UnitState.LEASED) if one.holder not in seen][:limit]

    def held(self, task: str) -> list[Unit]:
        names = f"{task}#"
        return sorted((one for one in self._units(UnitState.LEASED) if one.holder.startswith(names)), key=key_of)

    def ready_on(self, site: str) -> list[int]:
        def has_all(unit: Unit) -> bool:
            sizes = {copy.file: copy.size for copy in self.copies_of_unit(unit.id, site)}
            return all(sizes.get(span.file, 0) >= span.end for span in self.spans_of_unit(unit.id))

        return sorted(unit.id for unit in self._units(UnitState.READY) if has_all(unit))

    def totals(self) -> dict[UnitState, tuple[int, int]]:
        found: dict[UnitState, tuple[int, int]] = {}
        for one in self.every(Unit):
            count, size = found.get(one.state, (0, 0))
            found[one.state] = count + 1, size + one.size
        return found

    def oldest_open(self, pipeline: str) -> float | None:
        tables = self._others.get(pipeline)
        if tables is None:
            return float("-inf")
        since = [one.since for one in tables.every(File) if one.since is not None]
        return min([*since, *(one.since for one in tables.every(Unit))], default=None)

    def scans(self, pipeline: str) -> list[SiteScan]:
        tables = self._others.get(pipeline)
        return [] if tables is None else [tables.site_scan(one) for one in sorted(tables.every(Scanned), key=key_of)]

    def site_scan(self, scan: Scanned) -> SiteScan:
        site = self.get(Site, scan.site)
        seen = (one.seen for one in self.every(Client) if one.site == scan.site and not _is_command(one))
        return SiteScan(scan, site is None or site.up, max(seen, default=float("-inf")))

    # ---- other rows --------------------------------------------------------------------------
    def dispatches(self) -> list[Dispatch]:
        return sorted(self.every(Dispatch), key=key_of)

    def clients_of(self, task: str) -> list[Client]:
        return sorted((one for one in self.every(Client) if one.task == task), key=key_of)

    def silent(self, before: float, limit: int) -> list[Client]:
        return sorted((one for one in self.every(Client) if one.seen < before), key=key_of)[:limit]

    def seen(self, kind: Kind, after: float) -> int:
        return sum(1 for one in self.every(Client) if one.kind is kind and one.seen >= after)

    def last(self, kind: Kind) -> Client | None:
        found = (one for one in self.every(Client) if one.kind is kind)
        return max(found, key=lambda one: (one.seen, one.name), default=None)

    def site_seen(self, site: str) -> float:
        workers = (one.seen for one in self.every(Client) if one.kind is Kind.WORKER and one.site == site)
        return max(workers, default=float("-inf"))

    def worker_sites(self, after: float) -> list[str]:
        return sorted({one.site for one in self.every(Client) if one.kind is Kind.WORKER and one.seen >= after})

    def site_sums(self, after: float) -> dict[str, SiteSums]:
        names = {one.site for one in self.every(Copy)}
        names |= {one.site for one in self.every(Client) if not _is_command(one)}
        found = {}
        for name in sorted(names):
            copies = [one for one in self.every(Copy) if one.site == name]
            clients = [one for one in self.every(Client) if one.site == name and not _is_command(one)]
            live = [one.kind for one in clients if one.seen >= after]
            found[name] = SiteSums(
                files=len(copies),
                bytes=sum(one.size for one in copies),
                workers=live.count(Kind.WORKER),
                keepers=live.count(Kind.KEEPER),
                seen=max((one.seen for one in clients), default=float("-inf")),
                leased=sum(1 for one in self._units(UnitState.LEASED) if one.site == name),
            )
        return found

    def has_other(self, site: str, container: str, after: float) -> bool:
        workers = (one for one in self.every(Client) if one.kind is Kind.WORKER and one.seen >= after)
        return any(one.site == site and one.container != container for one in workers)

    def sites(self) -> list[Site]:
        return sorted(self.every(Site), key=key_of)

    def paces(self) -> list[Pace]:
        return sorted(self.every(Pace), key=key_of)

    def unfinished(self) -> list[Unfinished]:
        return sorted(self.every(Unfinished), key=key_of)

    def configs(self) -> dict[str, str]:
        found = {name: tables.get(Pipeline) for name, tables in self._others.items()}
        return {name: one.config for name, one in found.items() if one is not None}

    def sums(self) -> Sums:
        files: dict[str, int] = {}
        for file in self.every(File):
            files[file.state.value] = files.get(file.state.value, 0) + 1
        sizes = {state: 0 for state in SpanState}
        for span in self.every(Span):
            sizes[span.state] += span.end - span.begin
        return Sums(
            files=files,
            known_bytes=sum(file.size for file in self.every(File)),
            waiting_bytes=sum(file.size - file.cut for file in self.every(File) if file.since is not None),
            done_bytes=sizes[SpanState.DONE],
            bad_bytes=sizes[SpanState.BAD],
        )


def _is_command(client: Client) -> bool:
    return client.kind is Kind.COMMAND
