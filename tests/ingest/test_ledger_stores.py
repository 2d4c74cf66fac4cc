"""The contract of the stores of a ledger, and what is each one's own."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from heronpy.common.errors import LedgerAwayError, LedgerError
from heronpy.common.host import Host
from heronpy.ingest.ledger import sql, sqlite
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.commands import RetryFailed, Show
from heronpy.ingest.ledger.reaching import open_store
from heronpy.ingest.ledger.requests import (
    Commit,
    Cut,
    Lease,
    ListFinished,
    MakeDispatch,
    Open,
    Published,
    ReportScan,
    SeenFile,
    Who,
    Work,
)
from heronpy.ingest.ledger.sqlite import SqliteStore
from heronpy.ingest.ledger.store import Changes, Decide, Store, View
from heronpy.ingest.ledger.types import (
    REPORT_MAX,
    VERSION,
    Answer,
    Client,
    Config,
    Kind,
    Row,
    Span,
    SpanState,
    Unit,
    UnitState,
)
from heronpy.ingest.ledger.validate import validate
from tests.support.command import REPO
from tests.support.postgres import PostgresServer
from tests.support.waiting import wait_for

CONFIG = Config(pattern="*.log", unit_bytes=100, unit_wait_s=0.0)
KEEPER = Who("k", "1", Kind.KEEPER)


def _worker(number: int = 0) -> Who:
    return Who(f"w{number}", "1", Kind.WORKER, container=str(number))


def _filled(store: Store, pipeline: str, size: int = 300, config: Config = CONFIG) -> Ledger:
    """A keeper of a pipeline with one file that is cut."""
    keeper = Ledger(store, pipeline, KEEPER)
    keeper.ask(Open(config))
    keeper.ask(ReportScan((SeenFile("a", 1, "a", size, "1:1", "h"),)))
    keeper.ask(Cut())
    return keeper


def _name(request: pytest.FixtureRequest) -> str:
    """PostgreSQL is one for all tests."""
    return request.node.name


# ---- the contract ---------------------------------------------------------------------------
def test_from_a_report_to_publication(store: Store, request: pytest.FixtureRequest) -> None:
    name = _name(request)
    keeper, worker = _filled(store, name), Ledger(store, name, _worker())
    for _ in range(3):
        work = worker.ask(Lease())
        assert isinstance(work, Work)
        assert worker.ask(Commit(work.unit, work.attempt, 1, 2, 0.1)).lost is None
    assert len(keeper.ask(ListFinished()).units) == 3
    assert keeper.ask(Published((1, 2, 3), 1)).units == 3
    figures = keeper.ask(Show())
    assert (figures.done_bytes, figures.known_bytes, figures.units, figures.oldest_s) == (300, 300, {}, None)
    assert name in store.pipelines()
    assert validate(store.snapshot(name)) == []


def test_a_transaction_is_whole_or_nothing(store: Store, request: pytest.FixtureRequest) -> None:
    name = _name(request)
    _filled(store, name)
    before = store.snapshot(name)

    def breaks(view: View, now: float) -> tuple[Changes, None]:
        raise LedgerError("it changes its mind")

    with pytest.raises(LedgerError, match="changes its mind"):
        store.transact(name, breaks)
    assert store.snapshot(name) == before


def test_time_never_stands_still_for_long_nor_goes_back(store: Store, request: pytest.FixtureRequest) -> None:
    times = [store.transact(_name(request), lambda view, now: (Changes(), now)) for _ in range(5)]
    assert times == sorted(times)
    wait_for(lambda: store.transact(_name(request), lambda view, now: (Changes(), now)) > times[-1])


@pytest.mark.parametrize("lose", ["before", "after"])
def test_a_lost_answer_is_given_again(lose: str, store: Store, request: pytest.FixtureRequest) -> None:
    """Both outcomes: the transaction was carried out, or it was not."""
    name = _name(request)
    keeper = _filled(store, name)
    losing = _Losing(store)
    worker = Ledger(losing, name, _worker())
    losing.lose = lose
    with pytest.raises(LedgerAwayError):
        worker.ask(Lease())
    work = worker.ask(Lease())
    assert isinstance(work, Work)
    leased = [row for row in store.snapshot(name) if isinstance(row, Unit) and row.state is UnitState.LEASED]
    assert [(unit.id, unit.attempt) for unit in leased] == [(work.unit, 1)]
    commit = Commit(work.unit, work.attempt, 1, 1, 0.1)
    losing.lose = lose
    with pytest.raises(LedgerAwayError):
        worker.ask(commit)
    if lose == "after":
        # Then it may even be published before it is asked again.
        assert keeper.ask(Published((work.unit,), 1)).units == 1
    assert worker.ask(commit).lost is None


class _Losing:
    """A store of which one transaction does not happen, or its answer is lost."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lose = ""

    def transact(self, pipeline: str, decide: Decide[Any], lasting: bool = True) -> Any:
        lose, self.lose = self.lose, ""
        if lose != "before":
            answer = self._store.transact(pipeline, decide)
            if not lose:
                return answer
        raise LedgerAwayError("the connection is gone")

    def pipelines(self) -> tuple[str, ...]:
        return self._store.pipelines()

    def snapshot(self, pipeline: str) -> tuple[Row, ...]:
        return self._store.snapshot(pipeline)

    def close(self) -> None:
        self._store.close()


def test_texts_of_all_kinds_are_kept(store: Store, request: pytest.FixtureRequest) -> None:
    name = _name(request)
    keeper = Ledger(store, name, KEEPER)
    keeper.ask(Open(CONFIG))
    keys = ["a'b\"c;--", "ü\n\x1b[31m", "%s ? $1", "\\", " "]
    seen = tuple(SeenFile(key, 1, key, 10, str(number), "h") for number, key in enumerate(keys))
    assert [one.file.key for one in keeper.ask(ReportScan(seen)).known] == keys


def test_a_child_of_a_fork_has_a_connection_of_its_own(store: Store, request: pytest.FixtureRequest) -> None:
    name = _name(request)
    if name.endswith("[memory]"):
        pytest.skip("it has no connection")
    keeper = _filled(store, name)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if isinstance(Ledger(store, name, _worker()).ask(Lease()), Work) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert keeper.ask(Show()).units["leased"] == (1, 100)


# ---- how much is read -----------------------------------------------------------------------
def test_ten_thousand_quiet_files_cost_a_lease_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    store = SqliteStore(tmp_path / "l" / "ledger.db")
    keeper = Ledger(store, "p", KEEPER)
    keeper.ask(Open(CONFIG))
    rows = []
    read = sql.SqlView.__init__

    def counting(self: sql.SqlView, name: str, execute: sql.Execute) -> None:
        def counted(statement: str, values: sql.Values) -> list[Any]:
            found = execute(statement, values)
            rows.append(len(found))
            return found

        read(self, name, counted)

    monkeypatch.setattr(sql.SqlView, "__init__", counting)
    request.addfinalizer(store.close)
    worker = Ledger(store, "p", _worker())

    def most(asked: Callable[[], object]) -> int:
        rows.clear()
        asked()
        return sum(rows)

    seen: list[dict[str, int]] = []
    for count in (10, 10_000):
        files = [SeenFile(f"q{n}", 1, f"q{n}", 0, str(n), "h") for n in range(count)]
        for first in range(0, count, REPORT_MAX):
            keeper.ask(ReportScan(tuple(files[first : first + REPORT_MAX])))
        keeper.ask(ReportScan((SeenFile(f"busy{count}", 1, "b", 100, f"b{count}", "h"),)))
        costs = {"cut": most(lambda: keeper.ask(Cut())), "lease": most(lambda: worker.ask(Lease()))}
        unit = next(row for row in store.snapshot("p") if isinstance(row, Unit) and row.state is UnitState.LEASED)
        costs["commit"] = most(lambda unit=unit: worker.ask(Commit(unit.id, unit.attempt, 1, 1, 0.1)))
        costs["publish"] = most(lambda unit=unit: keeper.ask(Published((unit.id,), 1)))
        costs["idle"] = most(lambda: worker.ask(Lease()))
        seen.append(costs)
    few, many = seen
    assert all(many[name] <= few[name] + 10 for name in few), seen
    store.close()
    assert (tmp_path / "l" / "ledger.db").stat().st_size < 10_000 * 1024


# ---- SQLite ---------------------------------------------------------------------------------
def test_a_ledger_file_is_private(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "new" / "ledger.db")
    _filled(store, "p")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").iterdir()}
    assert modes and set(modes.values()) == {0o600}
    store.close()


def test_only_what_can_be_asked_again_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "l" / "ledger.db")
    synced = []

    class Watched(SqliteStore):
        def transact(self, pipeline: str, decide: Decide[Any], lasting: bool = True) -> Any:
            def decided(view: View, now: float) -> tuple[Changes, Any]:
                [(level,)] = store._connection.execute("PRAGMA synchronous").fetchall()
                synced.append(level == 2)
                return decide(view, now)

            return store.transact(pipeline, decided, lasting)

    watched = Watched(tmp_path / "l" / "ledger.db")
    keeper, worker = _filled(watched, "p"), Ledger(watched, "p", _worker())
    work = worker.ask(Lease())
    assert isinstance(work, Work)
    worker.ask(Commit(work.unit, work.attempt, 1, 2, 0.1))
    keeper.ask(Published((work.unit,), 1))
    keeper.ask(MakeDispatch())
    worker.ask(RetryFailed())
    # Open, report, cut; lease, commit; published; dispatch; retry.
    assert synced == [True, False, False, False, True, False, True, True]
    store.close()


def test_a_full_disk_of_the_ledger_is_named(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "ledger.db")
    with pytest.raises(LedgerAwayError, match=r"ledger\.db cannot be used now \(its disk is full: free space on it\)"):
        with store._transaction("BEGIN IMMEDIATE") as connection:
            connection.execute("CREATE TABLE large (value)")
            connection.execute("PRAGMA max_page_count = 1")
            connection.execute("INSERT INTO large VALUES (zeroblob(1000000))")
    store.close()


def test_the_log_of_sqlite_is_lost_from_its_end_only(tmp_path: Path) -> None:
    """As after a cut of the power: whatever part of the log is left, the rows are sound, and what lasts is there."""
    path = tmp_path / "l" / "ledger.db"
    store = SqliteStore(path)
    keeper, worker = _filled(store, "p"), Ledger(store, "p", _worker())
    synced, log = {}, path.with_name("ledger.db-wal")
    for _ in range(2):
        work = worker.ask(Lease())
        assert isinstance(work, Work)
        worker.ask(Commit(work.unit, work.attempt, 1, 2, 0.1))
        synced[work.unit] = log.stat().st_size
        keeper.ask(Published((work.unit,), 1))
    data, size = log.read_bytes(), log.stat().st_size
    base = path.read_bytes()
    for number, left in enumerate(range(0, size + 1, 4096 + 24)):
        copied = tmp_path / f"c{number}"
        copied.mkdir(mode=0o700)
        for name, content in (("ledger.db", base), ("ledger.db-wal", data[:left])):
            (copied / name).write_bytes(content)
            (copied / name).chmod(0o600)
        after = SqliteStore(copied / "ledger.db")
        if "p" in after.pipelines():
            rows = after.snapshot("p")
            assert validate(rows) == []
            done = [row for row in rows if isinstance(row, Span) and row.state is SpanState.DONE]
            committed = {row.id for row in rows if isinstance(row, Unit) and row.state is UnitState.COMMITTED}
            published = sum(row.end - row.begin for row in done) // 100
            assert len(committed) + published >= sum(left >= at for at in synced.values())
        after.close()
    store.close()


def test_what_is_no_ledger_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "l" / "ledger.db"
    first = SqliteStore(path)
    _filled(first, "p")
    first.close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    with pytest.raises(LedgerError, match="another release"):
        SqliteStore(path).pipelines()
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    with pytest.raises(LedgerError, match="not a ledger"):
        SqliteStore(other).pipelines()
    (tmp_path / "text.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(LedgerError, match="damaged"):
        SqliteStore(tmp_path / "text.db").pipelines()
    (tmp_path / "link.db").symlink_to(path)
    with pytest.raises(LedgerError, match="cannot be opened"):
        SqliteStore(tmp_path / "link.db").pipelines()
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(LedgerError, match="chmod go-w"):
        SqliteStore(tmp_path / "open" / "ledger.db").pipelines()
    monkeypatch.setattr("heronpy.ingest.ledger.sqlite.file_system_of", lambda folder: "nfs4")
    with pytest.raises(LedgerError, match="nfs4"):
        SqliteStore(tmp_path / "nfs" / "ledger.db").pipelines()


def test_another_boot_voids_leases_and_time_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "l" / "ledger.db"
    store = SqliteStore(path)
    _filled(store, "p")
    assert isinstance(Ledger(store, "p", _worker()).ask(Lease()), Work)
    before = store.transact("p", lambda view, now: (Changes(), now))
    store.close()
    monkeypatch.setattr("heronpy.ingest.ledger.sqlite.this_host", lambda: Host("here", "m", "another boot"))
    monkeypatch.setattr("time.clock_gettime", lambda clock: 5.0)
    store = SqliteStore(path)
    rows = store.snapshot("p")
    assert [row.state for row in rows if isinstance(row, Unit)] == [UnitState.READY] * 3
    assert not [row for row in rows if isinstance(row, (Client, Answer))]
    after = store.transact("p", lambda view, now: (Changes(), now))
    assert before - 5.0 < after <= before + 1.0
    assert validate(rows) == []
    store.close()


def test_a_ledger_that_somebody_keeps_locked_is_away(tmp_path: Path) -> None:
    path = tmp_path / "l" / "ledger.db"
    store = SqliteStore(path, busy_s=0.05)
    keeper = _filled(store, "p")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerAwayError, match="locked"):
        keeper.ask(Cut())
    other.execute("ROLLBACK")
    other.close()
    keeper.ask(Cut())
    store.close()


def test_a_process_that_comes_new_waits_for_its_turn_as_the_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's own pauses grow to 100 ms: among processes that poll each millisecond it would starve for long."""
    path = tmp_path / "l" / "ledger.db"
    first = SqliteStore(path)
    _filled(first, "p")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    pauses: list[float] = []

    def rest(seconds: float) -> None:
        pauses.append(seconds)
        other.execute("ROLLBACK")

    monkeypatch.setattr(sqlite, "time", SimpleNamespace(**{**vars(time), "sleep": rest}))
    newcomer = SqliteStore(path, busy_s=0.05)
    assert newcomer.pipelines() == ("p",)
    assert len(pauses) == 1
    for one in (first, newcomer, other):
        one.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_processes_commit_each_unit_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, shared_postgres: object
) -> None:
    if kind == "sqlite":
        url = f"sqlite:{tmp_path}/l/ledger.db"
    else:
        url = request.getfixturevalue("postgres").url
    units, count = (80, 8) if kind == "sqlite" else (40, 3)
    store = open_store(url)
    keeper = _filled(store, "p", units * 100, replace(CONFIG, ready_per_worker=1_000, unpublished_units=1_000))
    while sum(1 for row in store.snapshot("p") if isinstance(row, Unit)) < units:
        keeper.ask(Cut())
    command = [sys.executable, "-m", "tests.ingest.ledger_worker", url]
    workers = [
        subprocess.Popen([*command, f"w{number}"], cwd=REPO, stdout=subprocess.PIPE, text=True)
        for number in range(count)
    ]
    try:

        def published() -> bool:
            done = keeper.ask(ListFinished())
            keeper.ask(Published(tuple(one.unit for one in done.units), 1))
            return keeper.ask(Show()).done_bytes == units * 100

        wait_for(published, 120.0, "the publication of all units")
        committed = [int(line) for worker in workers for line in worker.communicate(timeout=60.0)[0].split()]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            assert worker.stdout is not None
            worker.stdout.close()
    assert sorted(committed) == list(range(1, units + 1))
    assert validate(store.snapshot("p")) == []
    store.close()


# ---- PostgreSQL -----------------------------------------------------------------------------
def test_urls_that_give_away_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.delenv("PGHOST", raising=False)
    for url, why in (
        ("postgresql://me:secret@localhost/db", "password"),
        ("postgresql://me@db.example/db?sslmode=require", "verify"),
        ("postgresql://me@db.example/db?sslmode=prefer", "verify"),
        ("postgresql://me@localhost/db?hostaddr=10.0.0.1&sslmode=disable", "verify"),
        ("postgresql://me@localhost,db.example/db?sslmode=disable", "verify"),
        ("postgresql:///db?service=other", "service"),
        ("postgresql://me@localhost/db?sslmode", "cannot be read"),
        *(("mysql://x", "mysql"), ("ledger.db", "has no scheme"), ("sqlite:ledger.db", "does not name a file")),
    ):
        with pytest.raises(LedgerError, match=why) as caught:
            open_store(url)
        assert "secret" not in str(caught.value)
    monkeypatch.setenv("PGHOST", "db.example")
    with pytest.raises(LedgerError, match="verify"):
        open_store("postgresql:///db?sslmode=disable")


def test_postgres_goes_away_and_comes_back(postgres: PostgresServer, request: pytest.FixtureRequest) -> None:
    server = PostgresServer()
    request.addfinalizer(server.close)
    store = open_store(server.url)
    _filled(store, "away")
    worker = Ledger(store, "away", _worker())
    assert isinstance(worker.ask(Lease()), Work)
    server.stop()
    try:
        for _ in range(2):
            with pytest.raises(LedgerAwayError, match="PostgreSQL cannot be used now"):
                worker.ask(Lease())
    finally:
        server.start()
    assert isinstance(worker.ask(Lease()), Work)
    assert validate(store.snapshot("away")) == []
    store.close()


def test_postgres_begins_again_what_it_could_not_order(postgres: PostgresServer) -> None:
    import psycopg

    store = open_store(postgres.url)
    _filled(store, "order")
    tries = []

    def decide(view: View, now: float) -> tuple[Changes, int]:
        tries.append(now)
        if len(tries) < 3:
            raise psycopg.errors.SerializationFailure("could not serialize access")
        return Changes(), len(tries)

    assert store.transact("order", decide) == 3

    def never(view: View, now: float) -> tuple[Changes, None]:
        raise psycopg.errors.DeadlockDetected("deadlock detected")

    with pytest.raises(LedgerAwayError, match="could not serialize"):
        store.transact("order", never)
    store.close()


def test_a_later_release_of_postgres_is_refused(postgres: PostgresServer) -> None:
    import psycopg

    open_store(postgres.url).pipelines()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("UPDATE heron_units.version SET version = version + 1")
        try:
            with pytest.raises(LedgerError, match="another release"):
                open_store(postgres.url).pipelines()
        finally:
            connection.execute("UPDATE heron_units.version SET version = version - 1")


def test_only_open_and_rebuild_make_a_pipeline(store: Store, request: pytest.FixtureRequest) -> None:
    name = _name(request)
    with pytest.raises(LedgerError, match="has no pipeline"):
        Ledger(store, name, KEEPER).ask(RetryFailed())
    assert name not in store.pipelines()


def test_the_page_of_the_ledger_names_every_column() -> None:
    page = (REPO / "docs" / "ledger.md").read_text(encoding="utf-8")
    for statement in sql.statements(sql.Dialect("TEXT")):
        if statement.startswith("CREATE TABLE"):
            table = statement.split()[2]
            row = next(line for line in page.splitlines() if line.startswith(f"| `{table}` |"))
            columns = [name for name in re.findall(r'"(\w+)"', statement.partition(", PRIMARY KEY")[0])]
            assert columns and [name for name in columns if f"`{name}`" not in row] == []


def test_a_second_store_in_a_process_keeps_the_locks_of_the_first(tmp_path: Path) -> None:
    """A process that ends must not take the write-ahead log of another one for nobody's."""
    path = tmp_path / "ledger.db"
    first, second = SqliteStore(path), SqliteStore(path)
    with closing(first), closing(second):
        first.pipelines()
        second.pipelines()
        code = (
            "import sys; from pathlib import Path; from heronpy.ingest.ledger.sqlite import SqliteStore;"
            " store = SqliteStore(Path(sys.argv[1])); store.pipelines(); store.close()"
        )
        subprocess.run([sys.executable, "-c", code, path], check=True, timeout=60)
        beside = {name for name in os.listdir(tmp_path) if name.startswith("ledger.db-")}
        assert beside == {"ledger.db-wal", "ledger.db-shm"}
