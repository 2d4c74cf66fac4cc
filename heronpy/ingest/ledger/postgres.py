"""A ledger in PostgreSQL, for several hosts and sites; needs the extra `postgres` (psycopg 3).

Each transaction locks the row of its pipeline, so that transactions of one pipeline are serialised, and different
pipelines do not wait for each other. Time is the server's time. Other servers that speak this protocol are not tested.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pwd
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from heronpy.common.errors import LedgerAwayError, LedgerError
from heronpy.ingest.ledger import sql
from heronpy.ingest.ledger.store import Decide
from heronpy.ingest.ledger.types import VERSION, Row

try:
    import psycopg
    from psycopg import conninfo
except ImportError as missing:  # pragma: no cover - depends on what is installed
    raise LedgerError(
        "a ledger in PostgreSQL needs psycopg, which is not installed; run: pip install 'heronpy[postgres]'"
    ) from missing

T = TypeVar("T")

DIALECT: Final = sql.Dialect('TEXT COLLATE "C"')
SCHEMA: Final = "heron_units"
CONNECT_S: Final = 10
#: Timeouts of a statement, and of a session that is idle inside a transaction.
STATEMENT_S: Final = 60
STOPPED_S: Final = 15
#: Number of times that a transaction is repeated after a serialisation failure.
RETRIES: Final = 5
#: Key of the advisory lock for creating tables and pipelines.
_MAKING: Final = 0x68657275
_SETTINGS: Final = (
    f"-c search_path={SCHEMA} -c statement_timeout={STATEMENT_S}s -c lock_timeout={STATEMENT_S}s"
    f" -c idle_in_transaction_session_timeout={STOPPED_S}s"
)
#: Whether the tables exist. The query reads the catalog as rows, because `to_regclass` does not find tables that
#: another session has created since this transaction began.
_MADE: Final = (
    "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = ? AND c.relname = 'version'"
)
#: Default folders of servers' sockets.
SOCKET_FOLDERS: Final = ("/var/run/postgresql", "/tmp")
#: Selects a reason to refuse the ledger: its role is a superuser, or other roles can change its content.
_OWN: Final = f"""
    SELECT 'the role ' || current_user || ' is a superuser; give the ledger its own role, which owns nothing else'
      FROM pg_roles WHERE rolname = current_user AND rolsuper
    UNION ALL
    SELECT 'the schema {SCHEMA} belongs to ' || pg_get_userbyid(nspowner) || '; use another database, or that role'
      FROM pg_namespace WHERE nspname = '{SCHEMA}' AND pg_get_userbyid(nspowner) <> current_user
    UNION ALL
    SELECT CASE
        WHEN pg_get_userbyid(c.relowner) <> current_user
        THEN c.relname || ' in schema {SCHEMA} belongs to ' || pg_get_userbyid(c.relowner) || '; use another database'
        WHEN c.relkind NOT IN ('r', 'i') THEN c.relname || ' in schema {SCHEMA} is not a table of a ledger; remove it'
        ELSE 'table ' || c.relname || ' of schema {SCHEMA} has triggers or rules; remove them' END
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = '{SCHEMA}' AND (pg_get_userbyid(c.relowner) <> current_user OR c.relkind NOT IN ('r', 'i')
        OR EXISTS (SELECT 1 FROM pg_rewrite r WHERE r.ev_class = c.oid)
        OR EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgrelid = c.oid))
     LIMIT 1"""
#: Connections of a process that has forked since. Closing one in the child would end the parent's session.
_of_parents: list[Any] = []


def checked(url: str) -> dict[str, Any]:
    """Return a connection's parameters. Raises LedgerError if they contain a password, or if TLS is not verified."""
    try:
        given: dict[str, Any] = dict(conninfo.conninfo_to_dict(url))
    except psycopg.Error as error:
        raise LedgerError(f"the URL of the ledger cannot be read: {str(error).strip()}") from None
    if "password" in given or "sslpassword" in given:
        raise LedgerError(
            "the URL of the ledger contains a password, which other users could see; put it into ~/.pgpass (mode 0600)"
        )
    for name in ("service", "options"):
        if name in given:
            raise LedgerError(
                f"the URL of the ledger contains {name!r}, which is not supported; give host, user and database"
            )
    for name, place in (("hostaddr", "PGHOSTADDR"), ("host", "PGHOST")):
        given.setdefault(name, os.environ.get(place, ""))
    hosts = [one for name in ("host", "hostaddr") for one in str(given[name]).split(",") if one]
    if not all(_is_here(host) for host in hosts):
        mode = given.setdefault("sslmode", "verify-full")
        if mode != "verify-full":
            raise LedgerError(
                f"the ledger at {', '.join(hosts)} would be reached with sslmode={mode}, which does not verify the"
                " server; leave sslmode out, or use verify-full"
            )
    # An impostor of the server gets neither a plain-text password nor a digest for guessing it.
    given.setdefault("require_auth", "!password,!md5")
    if not hosts:
        given["host"] = _default_folder(str(given.get("port", "")))
    sockets = [host for host in str(given["host"]).split(",") if host.startswith(("/", "@"))]
    if sockets and "requirepeer" not in given:
        given["requirepeer"] = _peer(sockets)
    return {name: value for name, value in given.items() if value != ""}


def _default_folder(port: str) -> str:
    """Return the default folder for the server's socket."""
    name = f".s.PGSQL.{port or os.environ.get('PGPORT') or 5432}"
    return next((folder for folder in SOCKET_FOLDERS if os.path.exists(f"{folder}/{name}")), SOCKET_FOLDERS[0])


def _peer(folders: Sequence[str]) -> str:
    """Return the only user who can create a socket in these folders, hence the server's owner; "" if no folder exists.

    Raises LedgerError if other users can also create a socket.
    """
    owners = set()
    for folder in folders:
        try:
            status = os.stat(folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise LedgerError(f"the socket of PostgreSQL in {folder} cannot be examined: {error.strerror}") from None
        if status.st_mode & 0o002:
            raise LedgerError(
                f"all users may create a socket in {folder}, so another user could impersonate PostgreSQL; name the"
                " user who runs the server: ...&requirepeer=postgres"
            )
        owners.add(pwd.getpwuid(status.st_uid).pw_name)
    if len(owners) > 1:
        raise LedgerError(
            f"the sockets of PostgreSQL belong to {', '.join(sorted(owners))}; name one user: ...&requirepeer=postgres"
        )
    return owners.pop() if owners else ""


def _is_here(host: str) -> bool:
    """Whether a host is a local socket or a loopback address."""
    if host.startswith(("/", "@")) or host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


class PostgresStore:
    """A `Store` in PostgreSQL, which connects at the first call."""

    def __init__(self, url: str) -> None:
        self._parameters = checked(url)
        self._connection: psycopg.Connection[Any] | None = None
        self._pid = 0
        self._turn = threading.Lock()

    # ---- the contract -----------------------------------------------------------------------
    def transact(self, pipeline: str, decide: Decide[T], lasting: bool = True) -> T:
        # `lasting` is ignored: clients survive a crash of the server, so its commits must survive as well.
        with self._turn:
            for _ in range(RETRIES):
                with contextlib.suppress(psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                    return self._once(pipeline, decide)
            raise LedgerAwayError(f"PostgreSQL could not serialize a transaction of {pipeline} after {RETRIES} tries")

    def _once(self, pipeline: str, decide: Decide[T]) -> T:
        with self._transaction() as cursor:
            execute = _execute(cursor)
            _lock(execute, pipeline)
            now = float(execute("SELECT extract(epoch FROM clock_timestamp())::float8", ())[0][0])
            changes, answer = decide(sql.SqlView(pipeline, execute), now)
            sql.apply(changes, pipeline, execute, lambda text, rows: cursor.executemany(_marked(text), list(rows)))
            return answer

    def pipelines(self) -> tuple[str, ...]:
        with self._turn, self._transaction() as cursor:
            found = _execute(cursor)("SELECT pipeline FROM pipelines ORDER BY pipeline", ())
            return tuple(name for (name,) in found)

    def snapshot(self, pipeline: str) -> tuple[Row, ...]:
        with self._turn, self._transaction() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            return sql.snapshot(pipeline, _execute(cursor))

    def close(self) -> None:
        with self._turn:
            self._close()

    # ---- transactions -----------------------------------------------------------------------
    @contextlib.contextmanager
    def _transaction(self) -> Iterator[psycopg.Cursor[Any]]:
        try:
            connection = self._open()
            with connection.transaction(), connection.cursor() as cursor:
                yield cursor
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            raise
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self._close()
            raise LedgerAwayError(f"the ledger in PostgreSQL cannot be used now: {_first_line(error)}") from None
        except psycopg.Error as error:
            self._close()
            raise LedgerError(f"PostgreSQL refuses a request of the ledger: {_first_line(error)}") from None

    def _close(self) -> None:
        if self._connection is not None:
            if self._pid == os.getpid():
                with contextlib.suppress(psycopg.Error):
                    self._connection.close()
            else:
                _of_parents.append(self._connection)
            self._connection = None

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is not None and self._pid == os.getpid() and not self._connection.closed:
            return self._connection
        self._close()
        settings: dict[str, Any] = {
            "connect_timeout": CONNECT_S,
            "tcp_user_timeout": STOPPED_S * 1000,
            "options": _SETTINGS,
        }
        connection = psycopg.connect(**(settings | self._parameters), autocommit=True, client_encoding="utf8")
        try:
            with connection.transaction(), connection.cursor() as cursor:
                _refuse_others(_execute(cursor))
                _make_tables(_execute(cursor))
        except BaseException:
            connection.close()
            raise
        self._connection, self._pid = connection, os.getpid()
        return connection


def _lock(execute: sql.Execute, pipeline: str) -> None:
    """Lock this pipeline, or the creation of pipelines, until the end of the transaction."""
    statement = "SELECT 1 FROM pipelines WHERE pipeline = ? FOR UPDATE"
    if not execute(statement, (pipeline,)):
        execute(f"SELECT pg_advisory_xact_lock({_MAKING})", ())
        execute(statement, (pipeline,))


def _refuse_others(execute: sql.Execute) -> None:
    """Raise LedgerError if other roles can change the ledger, or if our role can change more than the ledger."""
    found = execute(_OWN, ())
    if found:
        raise LedgerError(f"the ledger in PostgreSQL was refused: {found[0][0]}")


def _make_tables(execute: sql.Execute) -> None:
    if not execute(_MADE, (SCHEMA,)):
        execute(f"SELECT pg_advisory_xact_lock({_MAKING})", ())
        if not execute(_MADE, (SCHEMA,)):
            execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}", ())
            for statement in sql.statements(DIALECT):
                execute(statement, ())
            execute("CREATE TABLE version (version BIGINT NOT NULL)", ())
            execute("INSERT INTO version VALUES (?)", (VERSION,))
    version = execute("SELECT version FROM version", ())[0][0]
    if version != VERSION:
        raise LedgerError(
            f"the ledger in PostgreSQL was written by another release (its version is {version}, this release supports"
            f" {VERSION}); use that release"
        )


def _marked(statement: str) -> Any:
    return statement.replace("?", "%s")


def _execute(cursor: psycopg.Cursor[Any]) -> sql.Execute:
    def execute(statement: str, values: sql.Values) -> list[Any]:
        cursor.execute(_marked(statement), tuple(values))
        return cursor.fetchall() if cursor.description is not None else []

    return execute


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
