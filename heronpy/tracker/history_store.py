"""`history.db`: what was, in SQLite, so that it outlives topologies and trackers.

Invariants: the file and its folder are private to the user; it stays within `BYTES_MAX`, the oldest goes first; a
topology has at most `EVENTS_MAX` events, and at most `ENDED_MAX` ended topologies are kept; a file that is damaged or
of another release is set aside, and a new one begun; an error of the disk never ends the tracker: what could not be
kept is said once. Not for several threads at a time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from heronpy.common.folders import open_private
from heronpy.tracker.history import KEPT, MINUTES_KEPT, STEP, Layout, Row, compacted, origin_of
from heronpy.views.past import Event

log = logging.getLogger("heronpy.tracker")

T = TypeVar("T")

FILE, ASIDE = "history.db", "history.db.damaged"
BYTES_MAX = 512 << 20
EVENTS_MAX, ENDED_MAX = 10_000, 200
#: Rows that go at once when there is no room.
PRUNED = 2_000
PAGE_BYTES = 4096
#: Names of rows that are kept in memory.
LAYOUTS_MAX = 1_000
BUSY_S = 2.0
#: Changes with the tables.
VERSION = 1
_TABLES = """
CREATE TABLE runs (
  key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, cluster TEXT NOT NULL, name TEXT NOT NULL,
  record BLOB NOT NULL, seen_at REAL NOT NULL, ended_at REAL
);
CREATE TABLE documents (run INTEGER, kind TEXT, body BLOB NOT NULL, PRIMARY KEY (run, kind)) WITHOUT ROWID;
CREATE TABLE layouts (id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, names TEXT NOT NULL,
  UNIQUE (run, names));
CREATE TABLE minutes (
  run INTEGER, number INTEGER, step INTEGER NOT NULL, layout INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE INDEX ages ON minutes (number);
CREATE TABLE events (
  run INTEGER, number INTEGER, origin TEXT NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (run, number), UNIQUE (run, origin)
) WITHOUT ROWID;
"""
_OF_A_RUN = ("documents", "layouts", "minutes", "events")


@dataclass(frozen=True, slots=True)
class Run:
    """A topology from its submit to its end."""

    #: The topology's id.
    id: str
    cluster: str
    name: str
    #: The execution state, as the state manager had it.
    record: bytes
    #: When it was last seen running, seconds since 1970.
    seen_at: float
    #: None while it has not ended.
    ended_at: float | None


class _UnusableError(Exception):
    """The file holds what this release cannot have written."""


class Store:
    """See the module."""

    def __init__(self, folder: Path, bytes_max: int = BYTES_MAX) -> None:
        self._path = folder / FILE
        self._bytes_max = bytes_max
        self._connection: sqlite3.Connection | None = None
        self._layouts: dict[int, Layout] = {}
        #: Why nothing can be kept now; empty when it can.
        self.trouble = ""

    # ---- the file ---------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._connection = self._opened()
            except (sqlite3.Error, _UnusableError) as error:
                if not _is_damage(error):
                    raise
                self._set_aside(str(error))
                self._connection = self._opened()
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        os.close(open_private(self._path, os.O_RDWR))  # SQLite gives the files beside it the same mode
        connection = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    raise _UnusableError("it was written by another release")
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
                connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA journal_size_limit = {16 << 20}")
            connection.execute(f"PRAGMA max_page_count = {self._bytes_max // PAGE_BYTES}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_aside(self, why: str) -> None:
        self.close()
        log.warning("%s cannot be read (%s); it is now %s, and a new history begins", self._path, why, ASIDE)
        os.replace(self._path, self._path.with_name(ASIDE))
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self._path}{suffix}")

    def close(self) -> None:
        """Idempotent; the next use opens the file again."""
        self._layouts.clear()
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _do(self, what: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """The result; `otherwise` when the disk or the file refuses, which is said once."""
        try:
            try:
                found = what(self._open())
            except (sqlite3.Error, _UnusableError) as error:
                if not _is_damage(error):
                    raise
                self._set_aside(str(error))
                return otherwise
        except (sqlite3.Error, OSError) as error:
            # Without a transaction left open; a full disk may be free at the next try.
            self.close()
            if not self.trouble:
                log.error("the history %s cannot be used, and the tracker goes on without: %s", self._path, error)
            self.trouble = f"the history cannot be used: {error}"
            return otherwise
        self.trouble = ""
        return found

    def _change(self, what: Callable[[sqlite3.Connection], None]) -> bool:
        """Do it whole or not at all; whether it was done."""

        def do(connection: sqlite3.Connection) -> bool:
            with _transaction(connection):
                what(connection)
            return True

        return self._do(do, False)

    # ---- runs and their documents -----------------------------------------------------------

    def see(self, run: Run) -> bool:
        """Note that a topology runs, or has ended."""

        def do(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO runs (id, cluster, name, record, seen_at, ended_at) VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, ended_at = excluded.ended_at",
                (run.id, run.cluster, run.name, run.record, run.seen_at, run.ended_at),
            )
            old = "SELECT key FROM runs WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT -1 OFFSET ?"
            for (key,) in connection.execute(old, (ENDED_MAX,)).fetchall():
                _forget(connection, key)

        return self._change(do)

    def runs(self) -> list[Run]:
        """All, those that ended last first."""
        query = (
            "SELECT id, cluster, name, record, seen_at, ended_at FROM runs ORDER BY coalesce(ended_at, seen_at) DESC"
        )
        return self._do(lambda connection: [Run(*row) for row in connection.execute(query)], [])

    def put(self, run: str, documents: Iterable[tuple[str, bytes]]) -> bool:
        """Keep what was answered last, by kind."""
        query = "INSERT OR REPLACE INTO documents SELECT key, ?, ? FROM runs WHERE id = ?"
        rows = [(kind, body, run) for kind, body in documents]
        return self._change(lambda connection: _none(connection.executemany(query, rows)))

    def document(self, run: str, kind: str) -> bytes | None:
        """What was kept last of this kind; None if nothing was."""
        query = "SELECT body FROM documents WHERE run = (SELECT key FROM runs WHERE id = ?) AND kind = ?"
        return self._do(lambda connection: _first(connection.execute(query, (run, kind)).fetchone()), None)

    # ---- minutes ----------------------------------------------------------------------------

    def add_minutes(self, run: str, rows: Iterable[Row]) -> bool:
        """Add rows; those of a minute that is known are replaced."""
        return self._change(lambda connection: self._add(connection, _key(connection, run), rows))

    def _add(self, connection: sqlite3.Connection, key: int | None, rows: Iterable[Row]) -> None:
        known: dict[Layout, int] = {}
        for row in rows:
            if key is None:
                return
            if row.layout not in known:
                names = json.dumps([row.layout.components, row.layout.series])
                connection.execute("INSERT OR IGNORE INTO layouts (run, names) VALUES (?, ?)", (key, names))
                query = "SELECT id FROM layouts WHERE run = ? AND names = ?"
                known[row.layout] = connection.execute(query, (key, names)).fetchone()[0]
            values = (key, row.number, row.step, known[row.layout], row.data)
            connection.execute("INSERT OR REPLACE INTO minutes VALUES (?, ?, ?, ?, ?)", values)

    def span(self, run: str) -> tuple[int, int] | None:
        """The first minute that is known, and that after the last; None when there is none."""
        query = "SELECT min(number), max(number + step) FROM minutes WHERE run = (SELECT key FROM runs WHERE id = ?)"
        found = self._do(lambda connection: connection.execute(query, (run,)).fetchone(), None)
        return (found[0], found[1]) if found is not None and found[0] is not None else None

    def minutes(self, run: str, first: int, end: int) -> list[Row]:
        """The rows that begin within this span, the oldest first."""

        def do(connection: sqlite3.Connection) -> list[Row]:
            query = (
                "SELECT number, step, layout, data FROM minutes WHERE run = ? AND number >= ? AND number < ?"
                " ORDER BY number"
            )
            found = connection.execute(query, (_key(connection, run), first, end))
            return [Row(number, step, self._layout(connection, at), data) for number, step, at, data in found]

        return self._do(do, [])

    def _layout(self, connection: sqlite3.Connection, number: int) -> Layout:
        found = self._layouts.get(number)
        if found is None:
            names = connection.execute("SELECT names FROM layouts WHERE id = ?", (number,)).fetchone()
            try:
                components, series = json.loads(names[0])
            except (TypeError, ValueError):
                raise _UnusableError("the names of a row are damaged") from None
            if len(self._layouts) >= LAYOUTS_MAX:
                self._layouts.clear()
            found = self._layouts[number] = Layout(tuple(components), tuple(series))
        return found

    # ---- events -----------------------------------------------------------------------------

    def add_events(self, run: str, events: Iterable[Event]) -> bool:
        """Add events; a repeated one takes the place of what it repeats, and the oldest beyond `EVENTS_MAX` go."""
        rows = [(event.number, "|".join(map(str, origin_of(event))), msgspec.json.encode(event)) for event in events]

        def do(connection: sqlite3.Connection) -> None:
            key = _key(connection, run)
            if key is not None:
                connection.executemany(f"INSERT OR REPLACE INTO events VALUES ({key}, ?, ?, ?)", rows)
                old = "SELECT number FROM events WHERE run = ? ORDER BY number DESC LIMIT 1 OFFSET ?"
                last = _first(connection.execute(old, (key, EVENTS_MAX)).fetchone())
                if last is not None:
                    connection.execute("DELETE FROM events WHERE run = ? AND number <= ?", (key, last))

        return self._change(do)

    def last_event(self, run: str) -> int:
        """The highest number; 0 when there is none."""
        query = "SELECT max(number) FROM events WHERE run = (SELECT key FROM runs WHERE id = ?)"
        return self._do(lambda connection: _first(connection.execute(query, (run,)).fetchone()), None) or 0

    def events(self, run: str, after: int, before: int, limit: int) -> list[bytes]:
        """The newest of those between two numbers, the oldest first."""
        query = (
            "SELECT body FROM events WHERE run = (SELECT key FROM runs WHERE id = ?) AND number > ? AND number < ?"
            " ORDER BY number DESC LIMIT ?"
        )
        asked = (run, after, before, limit)
        return self._do(lambda connection: [row[0] for row in connection.execute(query, asked)], [])[::-1]

    # ---- bounds -----------------------------------------------------------------------------

    def tidy(self, now: float) -> None:
        """Join old minutes, drop what is too old, and what does not fit."""
        minute = int(now // 60)
        # Of a cluster that nobody asks for any more.
        unseen = "UPDATE runs SET ended_at = seen_at WHERE ended_at IS NULL AND seen_at < ?"
        self._change(lambda connection: _none(connection.execute(unseen, ((minute - KEPT) * 60.0,))))
        for run in self.runs():
            if run.ended_at is None or now - run.ended_at < (KEPT + STEP) * 60:
                self._change(lambda connection, run=run: self._compact(connection, run.id, minute))  # type: ignore[misc]
        self._change(
            lambda connection: _none(connection.execute("DELETE FROM minutes WHERE number < ?", (minute - KEPT,)))
        )
        for _ in range(1000):
            if not self._do(self._shrunk, False):
                break

    def _compact(self, connection: sqlite3.Connection, run: str, minute: int) -> None:
        key, end = _key(connection, run), (minute - MINUTES_KEPT) // STEP * STEP
        query = (
            "SELECT number, step, layout, data FROM minutes WHERE run = ? AND number < ? AND step = 1 ORDER BY number"
        )
        found = connection.execute(query, (key, end)).fetchall()
        rows = [Row(number, step, self._layout(connection, at), data) for number, step, at, data in found]
        if rows:
            connection.execute("DELETE FROM minutes WHERE run = ? AND number < ? AND step = 1", (key, end))
            self._add(connection, key, compacted(rows))

    def _shrunk(self, connection: sqlite3.Connection) -> bool:
        """Remove something if less than an eighth is free; whether it did. Ended topologies go before minutes."""
        pages, free = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count"))
        if (pages - free) * PAGE_BYTES <= self._bytes_max * 7 // 8:
            connection.execute("PRAGMA incremental_vacuum")
            return False
        with _transaction(connection):
            query = "SELECT key FROM runs WHERE ended_at IS NOT NULL ORDER BY ended_at LIMIT 1"
            oldest = _first(connection.execute(query).fetchone())
            if oldest is not None:
                _forget(connection, oldest)
                return True
            query = "SELECT run, number FROM minutes ORDER BY number LIMIT ?"
            rows = connection.execute(query, (PRUNED,)).fetchall()
            connection.executemany("DELETE FROM minutes WHERE run = ? AND number = ?", rows)
        return bool(rows)


def _is_damage(error: Exception) -> bool:
    """Whether another try with the same file is of no use."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, _UnusableError) or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # a full disk may have ended it already
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _key(connection: sqlite3.Connection, run: str) -> int | None:
    return _first(connection.execute("SELECT key FROM runs WHERE id = ?", (run,)).fetchone())


def _forget(connection: sqlite3.Connection, key: int) -> None:
    for table in _OF_A_RUN:
        connection.execute(f"DELETE FROM {table} WHERE run = ?", (key,))
    connection.execute("DELETE FROM runs WHERE key = ?", (key,))


def _first(row: tuple[T, ...] | None) -> T | None:
    return row[0] if row is not None else None


def _none(_: object) -> None:
    """A statement has no result."""
