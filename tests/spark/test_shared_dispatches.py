"""Dispatches of work units: each row in each table once, whoever dies at which change of a file.

The keepers' side, the gateway's inbox and its worker are the real ones; Spark is not: a DataFrame is a table.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heronpy.common.errors import ConfigError, LedgerError
from heronpy.connectors.spark.records import RunRecords
from heronpy.ingest import LogUnit, LogUnits, SparkBatches, checking
from heronpy.ingest.attempt import Attempt
from heronpy.ingest.dispatching import Dispatcher
from heronpy.ingest.keys import OPTIONS_KEY
from heronpy.ingest.ledger import reaching
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.commands import ListDispatches, RetryFailed, Show
from heronpy.ingest.ledger.requests import Cut, Lease, ListFiles, Open, ReportScan, Who, Work
from heronpy.ingest.ledger.types import Kind
from heronpy.ingest.ledger.validate import validate
from heronpy.ingest.options import UnitOptions, logs_at
from heronpy.ingest.outputs.lineage import batches
from heronpy.ingest.outputs.stages import About, Stages
from heronpy.ingest.unit import SuspectPage
from heronpy.ingest.watch import Watch
from heronpy.spark.batch import Batch
from heronpy.spark.inbox import DispatchInbox, Inbox, inboxes_of
from heronpy.spark.lanes import Ticket
from heronpy.spark.worker import Lost, Result, Worker
from heronpy.storage.objects.folder import FolderObjects
from tests.spark.support import NoSpark
from tests.support.memory_ledger import MemoryStore

#: What the aggregate function does before and after it writes its first table; one call each.
BEFORE: list[Callable[[], None]] = []
BETWEEN: list[Callable[[], None]] = []


class Died(BaseException):
    """The process is gone."""


class Deaths:
    """Raises `Died` before or after the n-th change of a file; the process changes nothing any more then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        for name in ("rename", "link", "unlink"):
            monkeypatch.setattr(os, name, partial(self._change, getattr(os, name)))
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)

    def _change(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.left < 0:
            raise Died
        is_before, self.left = self.left == 1, self.left - 2 if self.left else 0
        if is_before:
            self.left = -1
            raise Died
        found = call(*args, **kwargs)
        if self.left == 0 and not is_before and self._armed:
            self.left = -1
            raise Died
        return found

    _armed = False

    def during(self, places: int, call: Callable[[], Any]) -> bool:
        """Carry out; whether it died at that place (0: nowhere)."""
        before = self.left, self._armed
        self.left, self._armed = places, bool(places)
        try:
            call()
            return False
        except Died:
            return True
        finally:
            self.left, self._armed = before


class Reader:
    def parquet(self, *paths: str) -> pa.Table:
        return pa.concat_tables([pq.read_table(path.removeprefix("file://")) for path in paths])


class Session:
    read = Reader()


class Driver(NoSpark):
    session = Session()


class Context:
    def __init__(self, topology_id: str, task: int) -> None:
        self._topology_id, self._task = topology_id, task

    def get_component_id(self) -> str:
        return "p-keeper"

    def get_topology_id(self) -> str:
        return self._topology_id

    def get_task_id(self) -> int:
        return self._task


def store(spark: Any, df: pa.Table, batch: Batch) -> None:
    if BEFORE:
        BEFORE.pop(0)()
    batch.write_parquet(df, batch.options["table"])
    if BETWEEN:
        BETWEEN.pop(0)()
    batch.write_parquet(df.slice(0, df.num_rows), batch.options["other"])


def rows(unit: LogUnit) -> Iterator[list[Any]]:
    for line in unit.lines():
        yield [int(line)]


class World:
    """Logs, a ledger, keepers and gateways of two submissions that share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs, self.table, self.other = folder / "logs", folder / "table", folder / "other"
        self.logs.mkdir()
        self.now, self.written = 1000.0, 0
        self.errors: list[Exception] = []
        output = SparkBatches(
            "tests.spark.test_shared_dispatches.store", {"n": "int64"}, home=str(folder / "home"),
            dispatch_bytes=60, dispatch_wait_s=3.0, table=self.table, other=self.other,
        )  # fmt: skip
        specs = LogUnits.specs("p", logs=f"{self.logs}/*.log", rows=rows, output=output, unit_bytes=24, unit_wait_s=0.0,
                               ledger=f"sqlite:{folder}/none.db")  # fmt: skip
        self.options: UnitOptions = specs[1].custom_config[OPTIONS_KEY]
        self.stages = Stages(output.table)
        self.begin(MemoryStore(lambda: self.now))
        self._inboxes: list[DispatchInbox] = []
        self.keepers = [self.keeper(number) for number in range(2)]
        self.gateways = [self.gateway(number, 1) for number in range(2)]

    def begin(self, store: MemoryStore) -> None:
        self.store = store
        self.ledger = Ledger(store, "p", Who("k", "1", Kind.KEEPER))
        self.worker = Ledger(store, "p", Who("w", "1", Kind.WORKER))

    def open(self) -> None:
        self.generation = self.ledger.ask(Open(self.options.config)).generation
        self.stages.claim(About("p", self.options.config))
        self.watch = Watch(logs_at(self.options.logs, ""), 7.0, self.ledger.ask(ListFiles()).files, "")

    def keeper(self, number: int) -> Dispatcher:
        output = self.options.output
        assert isinstance(output, SparkBatches)
        return Dispatcher(self.options, output, self.stages, Context(f"T-{number}", number), self.errors.append)

    def gateway(self, number: int, epoch: int) -> tuple[Inbox, Worker]:
        run = f"run{number}"
        pipelines = inboxes_of({"p-keeper": str(self.stages.home)}, run, epoch)
        inbox = Inbox(RunRecords(FolderObjects(self.folder / f"spark-{number}"), "T", run), epoch, pipelines)
        self._inboxes += pipelines.values()
        return inbox, Worker(inbox, Driver(), 1, lambda: None)

    def close(self) -> None:
        for inbox in self._inboxes:
            inbox.close()
        self._inboxes = []

    # ---- steps ------------------------------------------------------------------------------
    def write(self, lines: int) -> None:
        with open(self.logs / "a.log", "a") as file:
            for _ in range(lines):
                file.write(f"{self.written:07}\n")
                self.written += 1

    def stage(self, most: int = 1000) -> int:
        """Look at the log, cut, and process some units; how many."""
        self.watch.look(self.now)
        seen, gone = self.watch.changes(1000)
        if seen or gone:
            assert self.watch.answered(self.ledger.ask(ReportScan(seen, gone)))
        self.ledger.ask(Cut())
        page = SuspectPage(self.stages.home / "pages", "w")
        count = 0
        while count < most and isinstance(work := self.worker.ask(Lease()), Work):
            commit = Attempt(work, self.options, rows, self.stages, page).go_on(float("inf"))
            assert commit is not None
            self.worker.ask(commit)
            count += 1
        return count

    def keep(self, number: int) -> bool | None:
        return self.keepers[number].turn(self.ledger.ask, self.generation, self.now)

    def tickets(self, number: int) -> list[Ticket]:
        return list(self.gateways[number][0].scan())

    def work(self, number: int, ticket: Ticket) -> Result | Lost:
        result = self.gateways[number][1]._work(ticket)
        assert isinstance(result, Result), result
        return result

    # ---- what must hold ---------------------------------------------------------------------
    def published(self, table: Path) -> Counter[int]:
        found: Counter[int] = Counter()
        for file in table.glob("batch=*/*.parquet"):
            found.update(pq.read_table(file)["n"].to_pylist())
        return found

    def check(self) -> None:
        assert validate(self.store.snapshot("p")) == []
        for table in (self.table, self.other):
            assert not self.published(table) or max(self.published(table).values()) == 1

    def drain(self) -> None:
        """Everybody works, and nobody dies: then each row is in each table once."""
        BEFORE.clear(), BETWEEN.clear()
        for _ in range(400):
            self.now += 1.0
            self.stage()
            self.ledger.ask(RetryFailed())
            for number in range(2):
                self.keep(number)
                for ticket in self.tickets(number):
                    self.work(number, ticket)
                self.keep(number)
            figures = self.ledger.ask(Show())
            if not any(count for count, _ in figures.units.values()) and not figures.waiting_bytes:
                break
        self.check()
        expected = Counter(range(self.written))
        assert self.published(self.table) == expected
        assert self.published(self.other) == expected


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> Deaths:
    return Deaths(monkeypatch)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: Deaths) -> Iterator[World]:
    monkeypatch.delenv("HERON_LAUNCH", raising=False)
    BEFORE.clear(), BETWEEN.clear()
    found = World(tmp_path)
    monkeypatch.setattr(reaching, "open_store", lambda url, must_exist=False: found.store)
    found.open()
    yield found
    found.close()


def raises() -> None:
    raise ValueError("no luck")


def test_a_dispatch_is_published_once_with_the_lineage_of_its_units(world: World) -> None:
    world.write(9)
    assert world.stage() == 3
    assert world.keep(0) is False
    assert world.keep(1) is False, "the other keeper hands the same over"
    (ticket,) = world.tickets(0)
    assert world.tickets(1) == [ticket]
    result = world.work(0, ticket)
    assert result.outcome is not None and result.outcome.committed and result.outcome.rows == 9
    (folder,) = world.table.glob("batch=*")
    assert folder.name == "batch=p-1-1" and json.loads((folder / "_batch.json").read_bytes())["pipeline"] == "p"
    (batch,) = batches(str(world.table))
    assert [unit.rows for unit in batch.units] == [3, 3, 3] and batch.home == str(world.folder / "home")
    # Another gateway that has seen the same ticket has nothing to do.
    assert world.work(1, ticket).outcome is None and world.tickets(1) == []
    assert world.keep(0) is True and world.keep(1) is not None
    figures = world.ledger.ask(Show())
    assert figures.done_bytes == 72 and figures.dispatches_open == 0
    assert world.stages.staged_units(1) == {}, "the rows that waited are gone"
    found = checking.check("", "p", str(world.table))
    assert found.problems == [] and (found.units, found.rows, found.bytes) == (3, 9, 72)


def test_what_fails_for_good_waits_for_a_user_and_is_then_published(world: World) -> None:
    world.write(9)
    world.stage()
    world.keep(0)
    (ticket,) = world.tickets(0)
    BETWEEN.extend([raises, raises])
    assert world.work(0, ticket).retry_in_s is not None
    result = world.work(0, ticket)
    assert result.outcome is not None and "no luck" in result.outcome.error
    world.now += 1.0
    assert world.keep(0) is True
    assert "heron units retry p" in str(world.errors[-1])
    (shown,) = world.ledger.ask(ListDispatches()).dispatches
    assert (shown.state, shown.rows, shown.bytes) == ("failed", 9, 72) and "no luck" in shown.error
    assert world.ledger.ask(Show()).units_held == 3
    assert world.tickets(0) == [] and not list(world.table.glob("batch=*"))
    assert world.ledger.ask(RetryFailed()).dispatches == (2,)
    world.drain()
    assert [path.name for path in world.table.iterdir()] == ["batch=p-1-2"], "nothing is left of what failed"


def test_a_table_of_another_life_of_the_ledger_is_never_replaced(world: World) -> None:
    world.write(9)
    world.stage()
    world.keep(0)
    world.work(0, world.tickets(0)[0])
    before = world.published(world.table)
    # The ledger is lost, and the pipeline started without a rebuild, with other units.
    (world.logs / "a.log").unlink()
    world.write(6)
    world.begin(MemoryStore(lambda: world.now))
    world.open()
    world.keepers = [world.keeper(0), world.keeper(1)]
    world.stage()
    world.now += 4.0
    world.keep(0)
    (ticket,) = world.tickets(0)
    world.work(0, ticket)
    result = world.work(0, ticket)
    assert result.outcome is not None and "heron units rebuild" in result.outcome.error
    assert world.published(world.table) == before and not (world.table / "_staging").exists()


def test_a_ledger_is_rebuilt_from_what_spark_has_written(world: World) -> None:
    world.write(18)
    world.stage(3)
    world.keep(0)
    world.work(0, world.tickets(0)[0])
    # One more is decided and not published yet when its gateway dies.
    world.stage(3)
    world.now += 1.0
    world.keep(0)
    (ticket,) = world.tickets(0)
    publish = os.rename

    def dies(source: Any, target: Any) -> None:
        if "batch=" in str(target) and "other" in str(target):
            raise Died
        publish(source, target)

    os.rename = dies  # type: ignore[assignment]
    try:
        with pytest.raises(Died):
            world.work(0, ticket)
    finally:
        os.rename = publish
    assert sum(world.published(world.table).values()) == 18 and sum(world.published(world.other).values()) == 9
    world.begin(MemoryStore(lambda: world.now))
    with pytest.raises(ConfigError, match="kill its topology first"):
        checking.rebuild("", "p", str(world.table))
    world.close()
    with pytest.raises(LedgerError, match="give the folder to which your function writes"):
        checking.rebuild("", "p", str(world.folder / "home"))
    with pytest.raises(LedgerError, match="no batch of pipeline 'q'"):
        checking.rebuild("", "q", str(world.table))
    answer = checking.rebuild("", "p", str(world.other))
    assert (answer.generation, answer.done_bytes, answer.units) == (2, 144, 0)
    assert checking.check("", "p", str(world.table)).problems == []
    world.open()
    world.keepers = [world.keeper(0), world.keeper(1)]
    world.gateways = [world.gateway(number, 2) for number in range(2)]
    world.write(5)
    world.drain()
    assert (
        sorted(path.name for path in world.table.glob("batch=p-2-*")) == ["batch=p-2-3"]
        or len(list(world.table.glob("batch=*"))) == 3
    )


def test_a_batch_that_was_removed_from_the_table_is_named_and_made_again(world: World) -> None:
    import shutil

    world.write(9)
    world.drain()
    shutil.rmtree(next(world.table.glob("batch=*")))
    (problem,) = checking.check("", "p", str(world.table)).problems
    assert problem == "a.log 0-72 is done in the ledger, but not in the table"
    assert checking.check("", "p", str(world.other)).problems == []


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(3, 40))])
def test_each_row_once_whoever_dies_at_any_change_of_a_file(world: World, deaths: Deaths, seed: int) -> None:
    chance = random.Random(seed)
    epochs = [1, 1]
    died = 0

    def place() -> int:
        return chance.randrange(1, 30) if chance.random() < 0.6 else 0

    def keeper(number: int, inside: bool = False) -> None:
        nonlocal died
        if deaths.during(0 if inside else place(), lambda: world.keep(number)):
            died += 1
            world.keepers[number] = world.keeper(number)

    def gateway(number: int, inside: bool = False) -> None:
        nonlocal died
        tickets = world.tickets(number)
        if not tickets:
            return
        ticket = chance.choice(tickets)
        if deaths.during(0 if inside else place(), lambda: world.work(number, ticket)):
            died += 1
            epochs[number] += 1
            world.gateways[number] = world.gateway(number, epochs[number])

    for _ in range(60):
        world.now += 1.0
        act = chance.random()
        if act < 0.2:
            world.write(chance.randint(1, 9))
            world.stage(chance.randint(1, 3))
        elif act < 0.5:
            keeper(chance.randrange(2))
        elif act < 0.55:
            world.ledger.ask(RetryFailed())
        else:
            # Meanwhile the function fails, or the other gateway or a keeper does something.
            if chance.random() < 0.3:
                (BEFORE if chance.random() < 0.5 else BETWEEN).append(
                    chance.choice(
                        [raises, partial(gateway, 0, True), partial(gateway, 1, True), partial(keeper, 0, True)]
                    )
                )
            gateway(chance.randrange(2))
            BEFORE.clear(), BETWEEN.clear()
        world.check()
    world.drain()
    assert died
