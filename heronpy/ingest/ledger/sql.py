"""A ledger's tables and queries, the same for SQLite and PostgreSQL.

Each type of row has one table, with the pipeline's name before the row's key. Statements are built from field names
and pass all values as parameters; a dialect defines how types and parameters are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, cast, get_args, get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.errors import LedgerError
from heronpy.ingest.ledger.store import KEPT, Changes, SiteScan, SiteSums, Sums
from heronpy.ingest.ledger.types import (
    ROWS,
    Client,
    Copy,
    Dispatch,
    File,
    Kind,
    Pace,
    Row,
    Scanned,
    Site,
    Span,
    SpanState,
    Tally,
    Unfinished,
    Unit,
    UnitState,
    key_of,
)

R = TypeVar("R", bound=Row)
N = TypeVar("N")
Values = Sequence[Any]
#: Runs one statement with "?" for each parameter and returns its rows.
Execute = Callable[[str, Values], list[Any]]
ExecuteMany = Callable[[str, Iterable[Values]], None]


class Dialect(Struct, frozen=True):
    """`text`: a type that sorts by code points; `suffix`: the clause for a table without hidden row numbers."""

    text: str
    suffix: str = ""


_NAMES: Final[dict[type, str]] = {
    Copy: "copies",
    Dispatch: "dispatches",
    Scanned: "looks",
    Tally: "tallies",
    Unfinished: "unfinished",
}


class _Table:
    """The table for one type of row; each column is a field of the type."""

    def __init__(self, kind: type[Row]) -> None:
        hints = get_type_hints(kind)
        self.kind = kind
        self.name = _NAMES.get(kind, f"{kind.__name__.lower()}s")
        self.columns = list(kind.__struct_fields__)
        self.types = [hints[name] for name in self.columns]
        #: Columns whose values must be converted from the database's type.
        self.converted = [
            (index, convert) for index, one in enumerate(self.types) if (convert := _converter(one)) is not None
        ]
        #: Combinations of value types that were found valid. Rows with such a combination are not checked again.
        self._shapes: set[tuple[type, ...]] = set()
        self.keys = ["pipeline", *self.columns[: kind.KEY]]
        listed = ", ".join(f'"{name}"' for name in self.columns)
        self.select = f"SELECT {listed} FROM {self.name} WHERE pipeline = ?"
        keys = ", ".join(f'"{name}"' for name in self.keys)
        marks = ", ".join("?" for _ in range(1 + len(self.columns)))
        changed = ", ".join(f'"{name}" = excluded."{name}"' for name in self.columns[kind.KEY :])
        self.put = (
            f"INSERT INTO {self.name} (pipeline, {listed}) VALUES ({marks})"
            f" ON CONFLICT ({keys}) DO UPDATE SET {changed}"
        )
        self.drop = f"DELETE FROM {self.name} WHERE " + " AND ".join(f'"{name}" = ?' for name in self.keys)
        self.get = f"{self.select}" + "".join(f' AND "{name}" = ?' for name in self.keys[1:])
        self.order = " ORDER BY " + ", ".join(f'"{name}"' for name in self.keys)

    def create(self, dialect: Dialect) -> str:
        columns = ", ".join(f'"{name}" {_sql_type(kind, dialect)}' for name, kind in zip(self.columns, self.types))
        keys = ", ".join(f'"{name}"' for name in self.keys)
        columns = f"pipeline {dialect.text} NOT NULL, {columns}, PRIMARY KEY ({keys})"
        return f"CREATE TABLE {self.name} ({columns}){dialect.suffix}"

    def row(self, values: Values) -> Any:
        try:
            shape = tuple(map(type, values))
            if shape not in self._shapes:
                self._check(values)
                self._shapes.add(shape)
            if not self.converted:
                return self.kind(*values)
            found = list(values)
            for index, convert in self.converted:
                found[index] = convert(found[index])
            return self.kind(*found)
        except (TypeError, ValueError) as error:
            raise _damaged(f"a row of its table {self.name}: {error}") from None

    def _check(self, values: Values) -> None:
        """Raise TypeError if a value does not fit its column, because SQLite stores any type in any column."""
        converted = {index for index, _ in self.converted}
        for index, (value, kind) in enumerate(zip(values, self.types, strict=True)):
            if index not in converted and not isinstance(value, kind):
                raise TypeError(f"{value!r:.100} is not of type {getattr(kind, '__name__', kind)}")


def _damaged(what: str) -> LedgerError:
    return LedgerError(f"the ledger is damaged ({what}); move it away, and run: heron units rebuild")


def _text(value: Any) -> str:
    """Return a name from a row. Raises LedgerError if it is not text, because SQLite stores any type in any column."""
    if not isinstance(value, str):
        raise _damaged(f"{value!r:.100} is not a name")
    return value


def _number(kind: Callable[[Any], N], value: Any) -> N:
    """Return a count, a time or a state from a row. Raises LedgerError for an invalid value."""
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise _damaged(f"{error!s:.100}") from None


def _sql_type(kind: Any, dialect: Dialect) -> str:
    if isinstance(kind, UnionType):
        return _sql_type(next(one for one in get_args(kind) if one is not NoneType), dialect).removesuffix(" NOT NULL")
    names = {int: "BIGINT", float: "DOUBLE PRECISION", bool: "BOOLEAN"}
    return f"{names.get(kind, dialect.text)} NOT NULL"


def _to_sql(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    return msgspec.json.encode(value).decode() if isinstance(value, tuple) else value


def _converter(kind: Any) -> Callable[[Any], Any] | None:
    """Return a function that converts a database value to a type; None if no conversion is needed."""
    if isinstance(kind, type) and issubclass(kind, (StrEnum, bool)):
        return kind
    if kind == tuple[int, ...]:
        return lambda value: msgspec.json.decode(value, type=tuple[int, ...])
    return None


_TABLES: Final[dict[type, _Table]] = {kind: _Table(kind) for kind in ROWS}
#: The files of the chunks of a live unit.
_OF_UNIT: Final = "SELECT file FROM spans WHERE pipeline = ? AND unit = ? AND state = 'unit'"
_INDEXES: Final = (
    'CREATE UNIQUE INDEX files_key ON files (pipeline, "key", generation)',
    "CREATE INDEX files_waiting ON files (pipeline, since, id) WHERE since IS NOT NULL",
    "CREATE INDEX files_gone ON files (pipeline, gone) WHERE gone IS NOT NULL",
    "CREATE INDEX spans_unit ON spans (pipeline, unit) WHERE state = 'unit'",
    "CREATE INDEX spans_bad ON spans (pipeline, unit) WHERE state = 'bad'",
    "CREATE INDEX units_state ON units (pipeline, state, root, id)",
    "CREATE INDEX clients_task ON clients (pipeline, task)",
)


def statements(dialect: Dialect) -> list[str]:
    """Return the statements that create an empty ledger."""
    return [*(table.create(dialect) for table in _TABLES.values()), *_INDEXES]


def apply(changes: Changes, pipeline: str, execute: Execute, many: ExecuteMany) -> None:
    if changes.wipe:
        for kind, table in _TABLES.items():
            if kind not in KEPT:
                execute(f"DELETE FROM {table.name} WHERE pipeline = ?", (pipeline,))
    dropped: dict[type, list[Values]] = {}
    for kind, key in changes.drops:
        dropped.setdefault(kind, []).append((pipeline, *key))
    for kind, keys in dropped.items():
        many(_TABLES[kind].drop, keys)
    put: dict[type, list[Values]] = {}
    for row in changes.puts:
        values = [_to_sql(getattr(row, name)) for name in _TABLES[type(row)].columns]
        put.setdefault(type(row), []).append((pipeline, *values))
    for kind, rows in put.items():
        many(_TABLES[kind].put, rows)


def snapshot(pipeline: str, execute: Execute) -> tuple[Row, ...]:
    """Return all rows, by type and key."""
    rows: list[Row] = []
    for table in _TABLES.values():
        found = [table.row(values) for values in execute(table.select, (pipeline,))]
        rows.extend(sorted(found, key=key_of))
    return tuple(rows)


def _on_sites(sites: Set[str]) -> tuple[str, list[str]]:
    """Return an SQL condition (a site has uncut bytes of a file) and its parameters; both are empty without sites."""
    if not sites:
        return "", []
    marks = ", ".join("?" for _ in sites)
    copy = "SELECT 1 FROM copies WHERE copies.pipeline = files.pipeline AND copies.file = files.id"
    return f" AND EXISTS ({copy} AND copies.site IN ({marks}) AND copies.size > files.cut)", sorted(sites)


class SqlView:
    def __init__(self, name: str, execute: Execute) -> None:
        self.name = name
        self._execute = execute

    def _rows(self, kind: type[R], rest: str = "", *values: Any) -> list[R]:
        table = _TABLES[kind]
        return [table.row(found) for found in self._execute(table.select + rest, (self.name, *values))]

    def _one(self, statement: str, *values: Any) -> Any:
        return self._execute(statement, (self.name, *values))[0][0]

    def get(self, kind: type[R], *key: int | str) -> R | None:
        table = _TABLES[kind]
        found = self._execute(table.get, (self.name, *key))
        return cast(R, table.row(found[0])) if found else None

    # ---- files ------------------------------------------------------------------------------
    def files(self, after: int, limit: int) -> list[File]:
        return self._rows(File, " AND id > ? ORDER BY id LIMIT ?", after, limit)

    def files_of(self, key: str) -> list[File]:
        return self._rows(File, ' AND "key" = ? ORDER BY generation', key)

    def waiting(self, limit: int, sites: Set[str] = frozenset()) -> list[File]:
        there, names = _on_sites(sites)
        return self._rows(File, f" AND since IS NOT NULL{there} ORDER BY since, id LIMIT ?", *names, limit)

    def copies_on(self, site: str, limit: int) -> list[Copy]:
        return self._rows(Copy, " AND site = ? ORDER BY file LIMIT ?", site, limit)

    def copies_of_waiting(self, limit: int, sites: Set[str] = frozenset()) -> list[Copy]:
        there, names = _on_sites(sites)
        first = f"SELECT id FROM files WHERE pipeline = ? AND since IS NOT NULL{there} ORDER BY since, id LIMIT ?"
        return self._rows(Copy, f" AND file IN ({first}) ORDER BY file, site", self.name, *names, limit)

    def gone(self, before: float, limit: int) -> list[File]:
        return self._rows(File, " AND gone IS NOT NULL AND gone <= ? ORDER BY id LIMIT ?", before, limit)

    def vanished(self, before: float, limit: int) -> list[File]:
        of_file = "spans.pipeline = files.pipeline AND spans.file = files.id"
        open_bytes = f"SELECT 1 FROM spans WHERE {of_file} AND spans.state = 'unit'"
        rest = f" AND gone IS NOT NULL AND gone <= ? AND (cut < size OR EXISTS ({open_bytes})) ORDER BY id LIMIT ?"
        return self._rows(File, rest, before, limit)

    def copies(self, file: int) -> list[Copy]:
        return self._rows(Copy, " AND file = ? ORDER BY site", file)

    # ---- spans ------------------------------------------------------------------------------
    def spans_of_unit(self, unit: int) -> list[Span]:
        return self._rows(Span, " AND unit = ? AND state = 'unit' ORDER BY file, \"begin\"", unit)

    def files_of_unit(self, unit: int) -> list[File]:
        return self._rows(File, f" AND id IN ({_OF_UNIT}) ORDER BY id", self.name, unit)

    def copies_of_unit(self, unit: int, site: str) -> list[Copy]:
        return self._rows(Copy, f" AND site = ? AND file IN ({_OF_UNIT}) ORDER BY file", site, self.name, unit)

    def done_beside(self, unit: int) -> list[Span]:
        chunk = (
            "chunk.pipeline = spans.pipeline AND chunk.file = spans.file AND chunk.unit = ? AND chunk.state = 'unit'"
        )
        beside = 'chunk."begin" = spans."end" OR chunk."end" = spans."begin"'
        touches = f"EXISTS (SELECT 1 FROM spans AS chunk WHERE {chunk} AND ({beside}))"
        rest = f" AND state = 'done' AND file IN ({_OF_UNIT}) AND {touches} ORDER BY file, \"begin\""
        return self._rows(Span, rest, self.name, unit, unit)

    def spans(self, file: int) -> list[Span]:
        return self._rows(Span, ' AND file = ? ORDER BY "begin"', file)

    def bad(self, after: tuple[int, int], limit: int, root: int | None = None) -> list[Span]:
        of_root, values = (" AND unit = ?", (root,)) if root is not None else ("", ())
        rest = f' AND state = \'bad\'{of_root} AND (file, "begin") > (?, ?) ORDER BY file, "begin" LIMIT ?'
        return self._rows(Span, rest, *values, *after, limit)

    def bad_count(self, root: int | None = None) -> int:
        of_root, values = (" AND unit = ?", (root,)) if root is not None else ("", ())
        return int(self._one(f"SELECT count(*) FROM spans WHERE pipeline = ? AND state = 'bad'{of_root}", *values))

    # ---- units ------------------------------------------------------------------------------
    def units(self, state: UnitState, after: tuple[int, int], limit: int) -> list[Unit]:
        rest = " AND state = ? AND (root, id) > (?, ?) ORDER BY root, id LIMIT ?"
        return self._rows(Unit, rest, state.value, *after, limit)

    def expired(self, before: float, limit: int) -> list[Unit]:
        return self._rows(Unit, " AND state = 'leased' AND until <= ? ORDER BY root, id LIMIT ?", before, limit)

    def orphans(self, before: float, limit: int) -> list[Unit]:
        holder = "clients.pipeline = units.pipeline AND clients.name = units.holder"
        seen = f"SELECT 1 FROM clients WHERE {holder} AND seen >= ?"
        rest = f" AND state = 'leased' AND NOT EXISTS ({seen}) ORDER BY root, id LIMIT ?"
        return self._rows(Unit, rest, before, limit)

    def held(self, task: str) -> list[Unit]:
        rest = " AND state = 'leased' AND substr(holder, 1, ?) = ? ORDER BY id"
        return self._rows(Unit, rest, len(task) + 1, f"{task}#")

    def ready_on(self, site: str) -> list[int]:
        copy = (
            "SELECT 1 FROM copies WHERE copies.pipeline = spans.pipeline AND copies.file = spans.file"
            ' AND copies.site = ? AND copies.size >= spans."end"'
        )
        missing = (
            "SELECT 1 FROM spans WHERE spans.pipeline = units.pipeline AND spans.unit = units.id"
            f" AND spans.state = 'unit' AND NOT EXISTS ({copy})"
        )
        statement = (
            f"SELECT id FROM units WHERE pipeline = ? AND state = 'ready' AND NOT EXISTS ({missing}) ORDER BY id"
        )
        return [int(number) for (number,) in self._execute(statement, (self.name, site))]

    def totals(self) -> dict[UnitState, tuple[int, int]]:
        found = self._execute(
            "SELECT state, count(*), sum(CASE WHEN weight > 0 THEN weight ELSE bytes END) FROM units"
            " WHERE pipeline = ? GROUP BY state",
            (self.name,),
        )
        return {_number(UnitState, state): (int(count), _number(int, size)) for state, count, size in found}

    def oldest_open(self, pipeline: str) -> float | None:
        if not self._execute("SELECT 1 FROM pipelines WHERE pipeline = ?", (pipeline,)):
            return float("-inf")
        found = [
            *self._execute("SELECT min(since) FROM files WHERE pipeline = ? AND since IS NOT NULL", (pipeline,)),
            *self._execute("SELECT min(since) FROM units WHERE pipeline = ?", (pipeline,)),
        ]
        return min((_number(float, one[0]) for one in found if one[0] is not None), default=None)

    def scans(self, pipeline: str) -> list[SiteScan]:
        table, found = _TABLES[Scanned], []
        for values in self._execute(f"{table.select} ORDER BY site", (pipeline,)):
            scan: Scanned = table.row(values)
            down = self._execute(
                "SELECT 1 FROM sites WHERE pipeline = ? AND name = ? AND NOT up", (pipeline, scan.site)
            )
            [(seen,)] = self._execute(
                "SELECT max(seen) FROM clients WHERE pipeline = ? AND site = ? AND kind <> ?",
                (pipeline, scan.site, Kind.COMMAND.value),
            )
            found.append(SiteScan(scan, not down, _number(float, seen) if seen is not None else float("-inf")))
        return found

    # ---- other rows ---------------------------------------------------------------------------
    def dispatches(self) -> list[Dispatch]:
        return self._rows(Dispatch, " ORDER BY id")

    def clients_of(self, task: str) -> list[Client]:
        return self._rows(Client, " AND task = ? ORDER BY name", task)

    def silent(self, before: float, limit: int) -> list[Client]:
        return self._rows(Client, " AND seen < ? ORDER BY name LIMIT ?", before, limit)

    def seen(self, kind: Kind, after: float) -> int:
        statement = "SELECT count(*) FROM clients WHERE pipeline = ? AND kind = ? AND seen >= ?"
        return int(self._one(statement, kind.value, after))

    def last(self, kind: Kind) -> Client | None:
        found = self._rows(Client, " AND kind = ? ORDER BY seen DESC, name DESC LIMIT 1", kind.value)
        return found[0] if found else None

    def site_seen(self, site: str) -> float:
        statement = "SELECT max(seen) FROM clients WHERE pipeline = ? AND kind = 'worker' AND site = ?"
        found = self._one(statement, site)
        return _number(float, found) if found is not None else float("-inf")

    def worker_sites(self, after: float) -> list[str]:
        statement = "SELECT DISTINCT site FROM clients WHERE pipeline = ? AND kind = 'worker' AND seen >= ?"
        return sorted(_text(site) for (site,) in self._execute(statement, (self.name, after)))

    def site_sums(self, after: float) -> dict[str, SiteSums]:
        copies = "SELECT site, count(*), sum(size) FROM copies WHERE pipeline = ? GROUP BY site"
        found = {
            _text(site): SiteSums(files=int(count), bytes=_number(int, size))
            for site, count, size in self._execute(copies, (self.name,))
        }
        clients = (
            "SELECT site, kind, count(CASE WHEN seen >= ? THEN 1 END), max(seen) FROM clients"
            " WHERE kind <> 'command' AND pipeline = ? GROUP BY site, kind"
        )
        for site, kind, count, seen in self._execute(clients, (after, self.name)):
            one = found.get(_text(site), SiteSums())
            number = {"workers" if kind == Kind.WORKER else "keepers": int(count)}
            found[site] = replace(one, seen=max(one.seen, _number(float, seen)), **number)
        leased = "SELECT site, count(*) FROM units WHERE pipeline = ? AND state = 'leased' GROUP BY site"
        for site, count in self._execute(leased, (self.name,)):
            found[site] = replace(found.get(_text(site), SiteSums()), leased=int(count))
        return dict(sorted(found.items()))

    def has_other(self, site: str, container: str, after: float) -> bool:
        rest = " AND kind = 'worker' AND site = ? AND container <> ? AND seen >= ? LIMIT 1"
        return bool(self._rows(Client, rest, site, container, after))

    def sites(self) -> list[Site]:
        return self._rows(Site, " ORDER BY name")

    def paces(self) -> list[Pace]:
        return self._rows(Pace, " ORDER BY slot")

    def unfinished(self) -> list[Unfinished]:
        return self._rows(Unfinished, " ORDER BY site")

    def configs(self) -> dict[str, str]:
        return {name: config for name, config in self._execute("SELECT pipeline, config FROM pipelines", ())}

    def sums(self) -> Sums:
        files = self._execute(
            "SELECT state, count(*), sum(size) FROM files WHERE pipeline = ? GROUP BY state", (self.name,)
        )
        spans = self._execute(
            'SELECT state, sum("end" - "begin") FROM spans WHERE pipeline = ? GROUP BY state', (self.name,)
        )
        sizes = {state: _number(int, size) for state, size in spans}
        waiting = self._one("SELECT sum(size - cut) FROM files WHERE pipeline = ? AND since IS NOT NULL")
        return Sums(
            files={state: int(count) for state, count, _ in files},
            known_bytes=sum(_number(int, size) for _, _, size in files),
            waiting_bytes=_number(int, waiting or 0),
            done_bytes=sizes.get(SpanState.DONE.value, 0),
            bad_bytes=sizes.get(SpanState.BAD.value, 0),
        )
