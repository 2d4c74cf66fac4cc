"""A ledger in an SQLite file, for the processes of one host.

When a lasting commit returns, the commit and all earlier commits are on disk. A power failure may undo other commits,
but also ends all processes that rely on them. Time is the host's time since boot, including sleep. After a reboot, time
continues from the latest time in the rows, all leases are void, and all processes are forgotten.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import sqlite3
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from heronpy.common.disk_space import full_folder, is_full_error
from heronpy.common.errors import ConfigError, LedgerAwayError, LedgerError, RemovedLedgerError
from heronpy.common.folders import check_root, make_folders
from heronpy.common.host import this_host
from heronpy.ingest.ledger import sql
from heronpy.ingest.ledger.store import Decide
from heronpy.ingest.ledger.types import VERSION, Row
from heronpy.statemgr.file_locks import OF_ONE_HOST, file_system_of

T = TypeVar("T")

DIALECT: Final = sql.Dialect("TEXT", " WITHOUT ROWID")
#: SQLite's application id of a ledger ("heru").
APPLICATION: Final = 0x68657275
#: Seconds that a transaction waits for others before the ledger counts as unreachable.
BUSY_S: Final = 10.0
#: The write-ahead log is truncated to this size after a checkpoint.
LOG_BYTES: Final = 16 << 20
#: Queries of the latest time in each frequently written column.
_TIMES: Final = (
    *("SELECT max(born) FROM pipelines", "SELECT max(seen) FROM clients", "SELECT max(made) FROM units"),
    *("SELECT max(since) FROM files", "SELECT max(gone) FROM files", "SELECT max(seen) FROM copies"),
)
#: Connections from before a fork. Closing such a connection in the child would release the parent's locks.
_of_parents: list[sqlite3.Connection] = []


#: SQLite does not signal when the file is free, so waiting processes poll. A process polls more often the longer it has
#: waited, and a new process pauses once before its first attempt, so that no process waits very long.
#: Range of the initial pause between two attempts, and the waiting time that halves the pause, in seconds.
TURN_S: Final = (0.0005, 0.003)
HALVED_S: Final = 0.004


def pause_s(waited_s: float, drawn_s: float) -> float:
    """Return the next pause: `drawn_s`, a random value from the range `TURN_S`, shortened as `waited_s` grows."""
    return max(TURN_S[0], drawn_s / (1 + waited_s / HALVED_S))


class Waiters:
    """The processes that wait for their turn. Each has a shared lock on the folder, which ends with the process.

    This lock only keeps the processes in order; SQLite ensures exclusion. One object per connection and process.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def is_empty(self) -> bool:
        """Whether no process is waiting; a waiting process must not call this."""
        if not self._lock(fcntl.LOCK_EX):
            return False
        self.leave()
        return True

    def join(self) -> None:
        """Register as waiting until `leave`; idempotent. A concurrent `is_empty` may prevent this: repeat the call."""
        self._lock(fcntl.LOCK_SH)

    def leave(self) -> None:
        """End the wait, because the process has got its turn or has stopped waiting."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the descriptor. In a child process, this does not release the parent's lock."""
        os.close(self._descriptor)

    def _lock(self, how: int) -> bool:
        try:
            fcntl.flock(self._descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class SqliteStore:
    """A `Store` in an SQLite file. The first call creates the file with mode 0600, in a folder with mode 0700."""

    def __init__(self, path: Path, busy_s: float = BUSY_S) -> None:
        self._path = Path(path).absolute()
        self._busy_s = busy_s
        self._connection: sqlite3.Connection | None = None
        self._waiters: Waiters | None = None
        self._pid = 0
        #: Device and inode of the open file; an inode of an open file is not reused.
        self._inode: tuple[int, int] | None = None
        #: Whether the connection syncs each commit.
        self._lasting = True
        #: Seconds to be added to the time since boot.
        self._offset = 0.0
        self._turn = threading.Lock()

    # ---- the contract -----------------------------------------------------------------------
    def transact(self, pipeline: str, decide: Decide[T], lasting: bool = True) -> T:
        with self._turn, self._transaction("BEGIN IMMEDIATE", lasting) as connection:
            view = sql.SqlView(pipeline, _execute(connection))
            changes, answer = decide(view, self._now())
            sql.apply(changes, pipeline, _execute(connection), _execute_many(connection))
            return answer

    def pipelines(self) -> tuple[str, ...]:
        with self._turn, self._transaction("BEGIN") as connection:
            found = connection.execute("SELECT pipeline FROM pipelines ORDER BY pipeline").fetchall()
            return tuple(name for (name,) in found)

    def snapshot(self, pipeline: str) -> tuple[Row, ...]:
        with self._turn, self._transaction("BEGIN") as connection:
            return sql.snapshot(pipeline, _execute(connection))

    def close(self) -> None:
        with self._turn:
            self._close()

    def look(self) -> dict[str, tuple[str, str]] | None:
        """Return each pipeline's configuration and ledger name; None if the ledger is unreachable or being created.

        Nothing is created or changed. Raises LedgerError for an unusable file: a link, a file that others may write, a
        file on a network file system, a ledger of another release, or not a ledger.
        """
        try:
            self._check_place()
            self._check_file()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._unopened(error) from None
        try:
            with contextlib.closing(sqlite3.connect(f"{self._path.as_uri()}?mode=rw", timeout=1.0, uri=True)) as found:
                if self._is_current(found):
                    rows = found.execute("SELECT pipeline, config, ledger FROM pipelines").fetchall()
                    return {name: (config, ledger) for name, config, ledger in rows}
        except sqlite3.OperationalError:
            pass  # unreachable, or being created
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from None
        return None

    # ---- transactions -----------------------------------------------------------------------
    @contextlib.contextmanager
    def _transaction(self, begin: str, lasting: bool = True) -> Iterator[sqlite3.Connection]:
        try:
            connection, waiters = self._open()
            self._refuse_removed()
            if lasting is not self._lasting:
                # Otherwise the log is written without a sync; a later synced commit syncs the whole log.
                connection.execute(f"PRAGMA synchronous = {'FULL' if lasting else 'NORMAL'}")
                self._lasting = lasting
            self._begin(connection, waiters, begin)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.OperationalError as error:
            self._close()
            raise LedgerAwayError(
                f"the ledger {self._path} cannot be used now ({self._why(error)}); workers and keepers retry"
            ) from None
        except sqlite3.DatabaseError as error:
            self._close()
            raise self._damaged(error) from None

    def _why(self, error: sqlite3.OperationalError) -> str:
        """Return the reason for an error; on a full disk, SQLite may report only a disk error."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        without_space = code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and full_folder(self._path.parent)
        return "its disk is full: free space on it" if code == sqlite3.SQLITE_FULL or without_space else str(error)

    def _begin(self, connection: sqlite3.Connection, waiters: Waiters, begin: str) -> None:
        """Wait for a turn with short pauses, because SQLite's own pauses grow to 100 ms and often favour the latest
        process.
        """
        began, waited_s = time.monotonic(), 0.0
        tries = waiters.is_empty()
        try:
            while not (tries and self._has_begun(connection, begin, waited_s < self._busy_s)):
                waiters.join()
                time.sleep(pause_s(waited_s, random.uniform(*TURN_S)))
                tries, waited_s = True, time.monotonic() - began
        finally:
            waiters.leave()

    @staticmethod
    def _has_begun(connection: sqlite3.Connection, begin: str, may_wait: bool) -> bool:
        """Try to begin a transaction; return False if another process has the turn.

        Without `may_wait`, raise sqlite3.OperationalError instead.
        """
        try:
            connection.execute(begin)
            # A reader may also have to wait, while the whole file is recovered or locked.
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        except sqlite3.OperationalError as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or not may_wait:
                raise
            return False
        return True

    def _now(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self._offset

    # ---- the file ---------------------------------------------------------------------------
    def _close(self) -> None:
        if self._connection is not None:
            if self._pid == os.getpid():
                with contextlib.suppress(sqlite3.Error):
                    self._connection.close()
            else:
                _of_parents.append(self._connection)
            self._connection = None
        if self._waiters is not None:
            self._waiters.close()
            self._waiters = None

    def _refuse_removed(self) -> None:
        """Raise RemovedLedgerError if the open file was removed or replaced.

        Otherwise SQLite would continue in a file that no other process can find. A process that has used a removed
        file does not create a new file, which would be empty.
        """
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            raise self._removed() from None
        except OSError as error:
            raise LedgerAwayError(f"the ledger {self._path} cannot be accessed now ({error.strerror})") from None
        if (status.st_dev, status.st_ino) != self._inode:
            self._close()
            raise RemovedLedgerError(
                f"the ledger {self._path} was replaced by another file while this task used it; the task checks"
                " whether the new ledger has all units of the table"
            )

    def _removed(self) -> RemovedLedgerError:
        return RemovedLedgerError(
            f"the ledger {self._path} was removed while this task used it; put it back, or kill the topology and"
            " run: heron units rebuild"
        )

    def _open(self) -> tuple[sqlite3.Connection, Waiters]:
        if self._connection is not None and self._waiters is not None and self._pid == os.getpid():
            return self._connection, self._waiters
        self._close()
        if self._inode is not None and not self._path.exists():
            raise self._removed()
        self._prepare()
        status = os.stat(self._path)
        connection = sqlite3.connect(
            self._path, timeout=self._busy_s, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        waiters: Waiters | None = None
        try:
            waiters = Waiters(self._path.parent)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            self._lasting = True
            connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
            connection.execute("PRAGMA busy_timeout = 0")
            self._begin(connection, waiters, "BEGIN IMMEDIATE")
            self._make_tables(connection)
            self._offset = self._void_if_rebooted(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            if waiters is not None:
                waiters.close()
            raise
        self._connection, self._waiters, self._pid = connection, waiters, os.getpid()
        self._inode = status.st_dev, status.st_ino
        return connection, waiters

    def _prepare(self) -> None:
        folder = self._path.parent
        try:
            make_folders(folder)
            self._check_place()
            self._make_file()
        except OSError as error:
            raise self._unopened(error) from None

    def _unopened(self, error: OSError) -> LedgerError:
        why = f"the ledger {self._path} cannot be opened: {error.strerror}"
        if is_full_error(error):
            return LedgerAwayError(f"{why}; free space on its disk")
        return LedgerError(why)

    def _check_place(self) -> None:
        try:
            check_root(self._path.parent, "the folder of the ledger")
        except ConfigError as error:
            raise LedgerError(str(error)) from None
        kind = file_system_of(self._path.parent)
        if kind not in OF_ONE_HOST:
            raise LedgerError(
                f"the ledger {self._path} is on a file system of type {kind or 'unknown'}, where SQLite's locks may not"
                " work; use a folder on a disk of this host, or PostgreSQL"
            )

    def _damaged(self, error: sqlite3.DatabaseError) -> LedgerError:
        return LedgerError(f"the ledger {self._path} is damaged ({error}); move it away and run: heron units rebuild")

    def _make_file(self) -> None:
        """Create a file with mode 0600; SQLite gives its auxiliary files the same mode.

        An existing file is examined but never opened: closing it would release the locks of all connections of this
        process, and another process would then remove the write-ahead log.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            os.close(os.open(self._path, flags, 0o600))
        except FileExistsError:
            self._check_file()

    def _check_file(self) -> None:
        status = os.lstat(self._path)
        if not stat.S_ISREG(status.st_mode):
            raise LedgerError(f"the ledger {self._path} cannot be opened: it is not a regular file")
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise LedgerError(f"other users can write to the ledger {self._path}; run: chmod 600 {self._path}")

    def _is_current(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is a ledger of this release; False if it is empty. Raises LedgerError for any other file."""
        version, application = _marks(connection)
        if application == APPLICATION and version == VERSION:
            return True
        if application == APPLICATION and version:
            raise LedgerError(
                f"the ledger {self._path} was written by another release (its version is {version}, this release"
                f" supports {VERSION}); use that release"
            )
        if application or version or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise LedgerError(f"{self._path} is a database but not a ledger; give another path")
        return False

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        if self._is_current(connection):
            return
        for statement in sql.statements(DIALECT):
            connection.execute(statement)
        connection.execute("CREATE TABLE boots (boot TEXT NOT NULL, offset_s DOUBLE PRECISION NOT NULL)")
        connection.execute("INSERT INTO boots VALUES (?, 0.0)", (this_host().boot,))
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")

    def _void_if_rebooted(self, connection: sqlite3.Connection) -> float:
        """Return the offset to add to the time since boot; void all leases after a reboot."""
        boot, offset_s = connection.execute("SELECT boot, offset_s FROM boots").fetchone()
        if boot == this_host().boot:
            return float(offset_s)
        times = [connection.execute(statement).fetchone()[0] for statement in _TIMES]
        latest = max((one for one in times if one is not None), default=0.0)
        offset = float(latest - time.clock_gettime(time.CLOCK_BOOTTIME))
        connection.execute("UPDATE boots SET boot = ?, offset_s = ?", (this_host().boot, offset))
        connection.execute("DELETE FROM clients")
        connection.execute("DELETE FROM answers")
        connection.execute(
            "UPDATE units SET state = 'ready', holder = '', container = '', until = 0, site_until = 0"
            " WHERE state = 'leased'"
        )
        return offset


def _marks(connection: sqlite3.Connection) -> tuple[int, int]:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    return version, connection.execute("PRAGMA application_id").fetchone()[0]


def _execute(connection: sqlite3.Connection) -> sql.Execute:
    def execute(statement: str, values: sql.Values) -> list[Any]:
        return connection.execute(statement, tuple(values)).fetchall()

    return execute


def _execute_many(connection: sqlite3.Connection) -> sql.ExecuteMany:
    def execute_many(statement: str, rows: Iterable[sql.Values]) -> None:
        connection.executemany(statement, rows)

    return execute_many
