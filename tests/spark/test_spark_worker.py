"""The gateway's worker without Spark: what it does when another gateway, a sink, a disk or the store interferes."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heronpy.common.errors import FencedError
from heronpy.connectors.durable_files import run_token
from heronpy.connectors.spark.handover import Outcome
from heronpy.connectors.spark.options import encode_aggregate
from heronpy.connectors.spark.outbox import Outbox
from heronpy.connectors.spark.records import GatewayPlace, RunRecords
from heronpy.procs.exit_reason import UNCOUNTED, ExitHints, classify
from heronpy.spark import __main__ as gateway_main
from heronpy.spark.batch import Batch
from heronpy.spark.inbox import Inbox
from heronpy.spark.lanes import Ticket
from heronpy.spark.outage import outage_of
from heronpy.spark.reports import Reports
from heronpy.spark.worker import DEATHS_MAX, Lost, Result, Worker, full_traceback
from heronpy.storage.objects.folder import FolderObjects
from heronpy.storage.objects.port import Objects, ObjectsError, Trouble
from tests.spark.support import NoSpark, make_launch
from tests.support.full_disk import fill, full_disk
from tests.support.memory_objects import MemoryObjects

__all__ = ["full_disk"]

RUN = run_token("T-1")
ROWS = pa.table({"n": [1, 2]})


class Flaky(MemoryObjects):
    """A store that is away for the next few writes."""

    away = 0

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if self.away:
            self.away -= 1
            raise ObjectsError(self.name, Trouble.AWAY)
        return super().put_if_absent(key, data)


class World:
    def __init__(self, table: Path, objects: Objects | None = None) -> None:
        self.table = table
        self.objects = Flaky()
        self.shared = RunRecords(objects or self.objects, "T", RUN)
        self.box = Outbox(self.shared.folder("store"), "store", 3, RUN, keep_leftovers=False)
        CALLS.clear()
        aggregate = encode_aggregate("tests.spark.test_spark_worker.store")
        options = {"table": str(table)}
        record = {"component": "store", "aggregate": aggregate, "options": options}
        self.shared.folder("store").write_sink(json.dumps(record).encode())
        self.workers: list[Worker] = []

    def worker(self, epoch: int) -> tuple[Inbox, Worker]:
        assert self.shared.announce(GatewayPlace(epoch, f"tcp://h:{epoch}"))
        inbox = Inbox(self.shared, epoch)
        worker = Worker(inbox, NoSpark(), 1, lambda: None, 1, partial(Batch, epoch=epoch))
        worker.start()
        self.workers.append(worker)
        return inbox, worker

    def one(self, worker: Worker, ticket: Ticket) -> Result | Lost:
        worker.submit(ticket)
        return worker.results.get(timeout=30)

    def result(self, worker: Worker, ticket: Ticket) -> Result:
        found = self.one(worker, ticket)
        assert isinstance(found, Result)
        return found

    def outcome(self, worker: Worker, ticket: Ticket) -> Outcome:
        found = self.result(worker, ticket).outcome
        assert found is not None
        return found

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()

    def published(self) -> list[int]:
        return sorted(pq.read_table(self.table)["n"].to_pylist()) if list(self.table.glob("batch=*")) else []


#: What the aggregate function does before it writes, one call each.
CALLS: list[Callable[[], None]] = []


def store(spark: Any, df: pa.Table, batch: Batch) -> None:
    if CALLS:
        CALLS.pop(0)()
    batch.write_parquet(df, batch.options["table"])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path / "table")
    yield found
    found.close()


def test_what_another_gateway_decided_is_published_and_committed(world: World) -> None:
    _, old = world.worker(1)
    world.box.write(ROWS)
    (ticket,) = world.shared.folder("store").stems("batches")
    ticket = Ticket("store", ticket)

    def another_works() -> None:
        _, new = world.worker(2)
        assert world.outcome(new, ticket).committed

    CALLS.append(another_works)
    lost = world.one(old, ticket)
    assert isinstance(lost, Lost) and isinstance(lost.error, FencedError), "it sees its successor"
    assert world.published() == [1, 2] and not (world.table / "_staging").exists()


def test_a_sink_that_withdraws_while_spark_works_is_heard(world: World) -> None:
    _, worker = world.worker(1)
    world.box.write(ROWS)
    ticket = Ticket("store", world.shared.folder("store").stems("batches")[0])
    CALLS.append(lambda: Outbox(world.box.folder, "store", 3, RUN, False) and None)
    result = world.result(worker, ticket)
    assert result.outcome is None and result.retry_in_s is None
    assert world.published() == [] and not list(world.table.glob("**/*.parquet"))


def test_a_batch_waits_for_a_store_that_is_away(world: World) -> None:
    inbox, worker = world.worker(1)
    world.box.write(ROWS)
    ticket = Ticket("store", world.shared.folder("store").stems("batches")[0])
    CALLS.append(lambda: setattr(world.objects, "away", 1))
    assert world.result(worker, ticket).retry_in_s and inbox.outcome(ticket) is None
    assert world.outcome(worker, ticket).committed and world.published() == [1, 2]


def test_a_full_disk_below_the_table_takes_no_attempt_from_a_batch(full_disk: Path) -> None:
    world = World(full_disk / "table")
    inbox, worker = world.worker(1)
    world.box.write(ROWS)
    (ticket,) = inbox.scan()
    for _ in range(12):  # more than there are attempts and deaths
        result = world.result(worker, ticket)
        assert result.retry_in_s and "No space left on device" in result.outage
    (full_disk / "ballast").unlink()
    outcome = world.outcome(worker, ticket)
    assert outcome.committed and outcome.attempts == 1 and world.published() == [1, 2]
    world.close()


def test_a_full_disk_below_the_records_takes_no_attempt_from_a_batch(full_disk: Path, tmp_path: Path) -> None:
    ballast = full_disk / "ballast"
    ballast.unlink()
    world = World(tmp_path / "table", FolderObjects(full_disk / "spark"))
    inbox, worker = world.worker(1)
    world.box.write(ROWS)
    (ticket,) = inbox.scan()
    CALLS.append(lambda: fill(ballast))
    for _ in range(12):
        result = world.result(worker, ticket)
        assert result.retry_in_s and "full or read-only" in result.outage
    ballast.unlink()
    assert world.outcome(worker, ticket).committed and world.published() == [1, 2]
    world.close()


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (RuntimeError("Job aborted.\nCaused by: java.io.IOException: No space left on device"), True),
        (ObjectsError("s3://b", Trouble.AWAY), True),
        (FileNotFoundError(errno.ENOENT, "No such file"), False),
        (ValueError("no luck"), False),
    ],
)
def test_what_is_waited_for(error: Exception, waits: bool) -> None:
    assert (outage_of(error) is not None) == waits
    wrapped = RuntimeError("it failed")
    wrapped.__cause__ = error
    assert (outage_of(wrapped) is not None) == waits


def test_an_error_of_the_jvm_is_told_when_the_jvm_has_ended(world: World) -> None:
    """py4j asks the JVM for the text of its errors."""

    class OfTheJvm(Exception):
        jvm = "lives"

        def __str__(self) -> str:
            if self.jvm == "lives":
                return "Task 0 in stage 0.0 failed 4 times"
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    class Refused(NoSpark):
        def start(self) -> None:
            raise error

    error = OfTheJvm()
    worker = Worker(Inbox(world.shared, 1), Refused(), 1, lambda: None, 1, partial(Batch, epoch=1))
    worker.start()
    lost = worker.results.get(timeout=10)
    OfTheJvm.jvm = "gone"
    assert isinstance(lost, Lost) and lost.error is not None
    assert outage_of(error) is None and outage_of(lost.error) is None
    assert "failed 4 times" in str(lost.error) and "OfTheJvm" in full_traceback(lost.error)


def test_the_loss_of_executors_is_no_attempt_of_the_function_until_it_goes_on_and_on(world: World) -> None:
    """Spark cannot tell whether the function made them end: it counts as a death of the driver does."""
    inbox, worker = world.worker(1)
    world.box.write(ROWS)
    (ticket,) = inbox.scan()

    def loses() -> None:
        raise RuntimeError(
            "An error occurred while calling o1.parquet.\n: org.apache.spark.SparkException: Job aborted due to stage"
            " failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in stage 1.0 (TID 4)"
            " (10.0.0.7 executor 3): ExecutorLostFailure (executor 3 exited caused by one of the running tasks)"
        )

    CALLS.extend([loses] * DEATHS_MAX)
    for _ in range(DEATHS_MAX):  # more than there are attempts
        result = world.result(worker, ticket)
        assert result.retry_in_s and "executors" in result.outage
    assert world.outcome(worker, ticket).committed and world.published() == [1, 2]
    world.box.write(ROWS)
    (ticket,) = inbox.scan()
    CALLS.extend([loses] * (DEATHS_MAX + 1))
    for _ in range(DEATHS_MAX + 1):
        assert world.result(worker, ticket).outage
    assert "or its executors died 6 times" in world.outcome(worker, ticket).error


def test_a_function_that_raises_fails_its_batch_alone(world: World) -> None:
    inbox, worker = world.worker(1)
    world.box.write(ROWS)
    world.box.write(ROWS)
    first, second = inbox.scan()

    def raises() -> None:
        raise ValueError("no luck")

    CALLS.extend([raises, raises])
    assert world.result(worker, first).retry_in_s is not None
    assert "no luck" in world.outcome(worker, first).error
    assert world.outcome(worker, second).committed
    assert world.published() == [1, 2] and list(inbox.scan()) == []


@pytest.mark.parametrize("refused", [OSError(errno.ENOSPC, "No space left on device"), ObjectsError("s", Trouble.FULL)])
def test_a_gateway_that_starts_on_a_full_disk_names_it_and_its_restart_is_not_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Exception
) -> None:
    told: list[str] = []

    def start(*_: object) -> None:
        raise refused

    (tmp_path / "s").mkdir(mode=0o700)
    monkeypatch.setattr(gateway_main, "Gateway", start)
    monkeypatch.setattr(gateway_main, "check_spark", lambda master: None)
    monkeypatch.setattr(gateway_main, "AGAIN_S", 0.0)
    monkeypatch.setattr(gateway_main.sampler, "install", lambda sockets: None)
    monkeypatch.setattr(gateway_main.logs, "setup", lambda *_: None)
    monkeypatch.setattr(Reports, "send", lambda self, body: told.append(body.waits_for))
    code = gateway_main.main(["--launch", str(make_launch(tmp_path, tmp_path / "s")), "--epoch", "1"])
    assert told == [outage_of(refused)]
    assert classify(code << 8, ExitHints()) in UNCOUNTED
