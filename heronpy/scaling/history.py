"""The minutes of a job in an SQLite file: the demand on its components in the last 14 days, how its promise was kept,
and all looks of the last day.

The file belongs to the job's name, so it survives deployments. Losing the file affects only sizing, so an unreadable
file is set aside and replaced by a new file.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from heronpy.common.errors import StateError
from heronpy.common.folders import open_private
from heronpy.scaling.figures import Past, Times
from heronpy.scaling.patterns import DAYS, Span, past_of

#: Number that identifies the file as a history ("hera"), and version of the format.
_APPLICATION: Final = 0x68657261
_VERSION: Final = 1
COMPONENTS_MAX: Final = 64
_BUSY_S: Final = 5.0
_BETWEEN: Final = (
    "SELECT count(*), avg(rate), max(rate), max(keys) FROM minutes WHERE component = ? AND at >= ? AND at < ?"
)


class History:
    """The minutes of one job, for use in one thread. Raises StateError if the file cannot be read or written now."""

    def __init__(self, file: Path, times: Times) -> None:
        #: A sentence if a damaged file was set aside, else "".
        self.notice = ""
        #: Number of minutes that were dropped because the job has more than `COMPONENTS_MAX` components.
        self.dropped = 0
        self._times = times
        self._pruned_at = 0.0
        self._pasts: dict[str, tuple[float, Past]] = {}
        try:
            self._database = self._opened(file)
        except sqlite3.OperationalError as error:
            raise StateError(f"the history {file} cannot be opened ({error}); check its folder and disk") from error
        except sqlite3.DatabaseError as error:
            aside = file.with_suffix(".damaged")
            os.replace(file, aside)
            remove_history(file)  # remove the auxiliary files of a file that no longer exists
            self.notice = (
                f"the history {file} is damaged ({error}), so a new history was started; the damaged file is now"
                f" {aside}"
            )
            self._database = self._opened(file)

    def _opened(self, file: Path) -> sqlite3.Connection:
        _make_private(file)
        database = sqlite3.connect(file, timeout=_BUSY_S, isolation_level=None)
        try:
            (application,) = database.execute("PRAGMA application_id").fetchone()
            (version,) = database.execute("PRAGMA user_version").fetchone()
            (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if tables and (application, version) != (_APPLICATION, _VERSION):
                raise sqlite3.DatabaseError("it is not a history of this release")
            if database.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("its pages are inconsistent")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(f"PRAGMA application_id = {_APPLICATION}")
            database.execute(f"PRAGMA user_version = {_VERSION}")
            database.execute(
                "CREATE TABLE IF NOT EXISTS looks (at REAL PRIMARY KEY, measured REAL NOT NULL, broken REAL NOT NULL,"
                " minute BLOB) WITHOUT ROWID"
            )
            database.execute(
                "CREATE TABLE IF NOT EXISTS minutes (component TEXT, at REAL, rate REAL NOT NULL, keys REAL,"
                " PRIMARY KEY (component, at)) WITHOUT ROWID"
            )
        except BaseException:
            database.close()
            raise
        return database

    def look(self, at: float, measured_s: float, broken_s: float, minute: bytes) -> None:
        """Store the figures of a look. `measured_s` and `broken_s` are the seconds since the previous look in which the
        lag was known, and in which it was too high.
        """
        with self._said():
            row = (at, measured_s, broken_s, zlib.compress(minute))
            self._forget(at)
            self._database.execute("INSERT OR REPLACE INTO looks VALUES (?, ?, ?, ?)", row)

    def add(self, now: float, rates: Mapping[str, tuple[float, float | None]]) -> None:
        """Store the demand on each component and its keys; remove old rows."""
        at = now // self._times.look_s * self._times.look_s
        kept = dict(sorted(rates.items())[:COMPONENTS_MAX])
        self.dropped += len(rates) - len(kept)
        with self._said(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(
                "INSERT OR REPLACE INTO minutes VALUES (?, ?, ?, ?)",
                [(name, at, rate, keys) for name, (rate, keys) in kept.items()],
            )
            self._forget(now)

    def _forget(self, now: float) -> None:
        """Remove minutes older than 14 days and half an hour, and looks older than a day."""
        if 0 <= now - self._pruned_at < self._times.recent_s:
            return
        # Minutes in the future were written before the clock was set back.
        oldest = now - DAYS * self._times.day_s - self._times.recent_s
        for table in ("minutes", "looks"):
            self._database.execute(f"DELETE FROM {table} WHERE at < ? OR at > ?", (oldest, now))
        self._database.execute("UPDATE looks SET minute = NULL WHERE at < ?", (now - self._times.day_s,))
        self._pruned_at = now

    def past(self, components: Collection[str], now: float) -> dict[str, Past]:
        """Return the demand on components at this time of day on other days; read once per window."""
        with self._said():
            for name in components:
                if name not in self._pasts or not 0 <= now - self._pasts[name][0] < self._times.window_s:
                    self._pasts[name] = now, past_of(partial(self._between, name), now, self._times)
        self._pasts = {name: self._pasts[name] for name in components}
        return {name: past for name, (_, past) in self._pasts.items()}

    def kept(self, since: float) -> tuple[float, float]:
        """Return the seconds since that time in which the lag was known, and the seconds in which it was too high."""
        with self._said():
            found = self._database.execute("SELECT sum(measured), sum(broken) FROM looks WHERE at >= ?", (since,))
            measured_s, broken_s = found.fetchone()
            return measured_s or 0.0, broken_s or 0.0

    def _between(self, component: str, since: float, until: float) -> Span:
        minutes, mean, most, keys = self._database.execute(_BETWEEN, (component, since, until)).fetchone()
        return Span(minutes, mean or 0.0, most or 0.0, keys)

    def close(self) -> None:
        self._database.close()

    @contextlib.contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StateError(f"the history of a job cannot be used now ({error}); check its disk") from error


def recorded_since(file: Path, since: float) -> Iterator[bytes]:
    """Yield the looks since that time, oldest first; none if there is no file. The file may be in use."""
    if not file.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", timeout=_BUSY_S, uri=True)) as database:
            seen = "SELECT minute FROM looks WHERE minute NOT NULL AND at >= ? ORDER BY at"
            for (minute,) in database.execute(seen, (since,)):
                yield zlib.decompress(minute)
    except (sqlite3.Error, zlib.error) as error:
        raise StateError(
            f"the history {file} cannot be read now ({error}); the scaler renames a damaged file"
        ) from error


def _make_private(file: Path) -> None:
    """Create the file with mode 0600; the auxiliary files of SQLite get the mode of the file."""
    try:
        descriptor = open_private(file, os.O_RDWR)
    except OSError as error:
        raise sqlite3.OperationalError(f"{error.strerror}") from None
    with contextlib.suppress(OSError):
        os.fchmod(descriptor, 0o600)  # earlier releases made it readable for other users
    os.close(descriptor)


def remove_history(file: Path) -> None:
    """Remove a history that no process has open."""
    for suffix in ("", "-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
