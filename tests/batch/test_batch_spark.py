"""SparkSinks of a batch run in this process: the gateway is the real one, and a table stands for a DataFrame."""

from __future__ import annotations

import importlib.util
import pkgutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from heronpy import Grouping, TopologyBuilder
from heronpy.batch.compare import compare, files_of_run, rows_of
from heronpy.batch.mending import mend
from heronpy.batch.record import RunState
from heronpy.batch.stages import BatchRefusedError, divide
from heronpy.batch.topology import run_topology
from heronpy.common.errors import ConfigError, GaveUpError
from heronpy.common.settings import resolve
from heronpy.connectors.durable_files import run_token
from heronpy.connectors.files import FileSink
from heronpy.connectors.spark import SparkSink
from heronpy.connectors.spark.requirements import dispatch_homes, needs_spark
from heronpy.connectors.spark.run_end import PARTITION_BYTES, shuffle_partitions
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from heronpy.launching.on_batch import check_sinks
from heronpy.spark import run_sinks
from heronpy.spark.batch import Batch
from heronpy.spark.inbox import inboxes_of
from heronpy.spark.worker import Lost, Worker
from tests.batch.inside import InsideRun
from tests.batch.programs.splits import Numbers
from tests.batch.programs.visits import Count, Parse, topology
from tests.batch.test_batch_inside import KilledError, write
from tests.spark.support import NoSpark

SCHEMA = {"visitor": "string", "visits": "int64"}
#: What the functions were called with: the id of the batch and the number of its rows.
CALLS: list[tuple[str, int]] = []


class Session:
    conf = type("Conf", (), {"set": lambda *_: None})()


class Driver(NoSpark):
    session = Session()


class Gateway:
    """A gateway that works while a keeper waits."""

    def __init__(self, folder: Path, epoch: int) -> None:
        homes = dispatch_homes(run_topology(topology("visits", "/logs", "/out", spark="1").build(), str(folder), 2))
        (self.inbox,) = inboxes_of(homes, run_token("visits-1"), epoch).values()
        self.worker = Worker(self.inbox, Driver(), 0, lambda: None)

    def turn(self, *_: object) -> None:
        for ticket in list(self.inbox.scan()):
            result = self.worker._work(ticket)  # noqa: SLF001
            assert not isinstance(result, Lost), result


class SparkRun(InsideRun):
    epoch = 0

    def start(self, workers: int = 2, keepers: int = 1, after: str = "") -> None:
        super().start(workers, keepers, after)
        self.epoch += 1
        self.gateway = Gateway(self.run.folder, self.epoch)
        for task in self.tasks:
            task.delegate.wait_outside = self.gateway.turn  # type: ignore[method-assign, union-attr]

    def close(self) -> None:
        super().close()
        self.gateway.inbox.close()


def count_calls(spark: Any, df: pa.Table, batch: Batch) -> None:
    CALLS.append((batch.id, df.num_rows))
    assert (batch.rows, batch.component) == (df.num_rows, "store")
    batch.write_parquet(df, batch.options["table"])


def write_only(spark: Any, df: pa.Table, batch: Batch) -> None:
    batch.write_parquet(df, batch.options["table"])


def raises(spark: Any, df: pa.Table, batch: Batch) -> None:
    batch.write_parquet(df, batch.options["table"])
    raise ValueError("no such column")


@pytest.fixture(autouse=True)
def frames(monkeypatch: pytest.MonkeyPatch) -> None:
    CALLS.clear()
    monkeypatch.setattr(
        run_sinks, "frame", lambda spark, sink: pa.concat_tables(pq.ParquetFile(path).read() for path in sink["files"])
    )


def builder_of(tmp_path: Path, *sinks: tuple[str, Callable[..., None], str], files: bool = False) -> Any:
    """Visits that end in SparkSinks: component, function, table; and in a FileSink."""
    builder = TopologyBuilder("visits")
    config = {TextFileSpout.PATHS: f"{tmp_path}/logs/*.log", TextFileSpout.FOLLOW: True}
    lines = builder.add_spout("lines", TextFileSpout, par=1, config=config)
    parse = builder.add_bolt("parse", Parse, par=2, inputs={lines: Grouping.SHUFFLE})
    count = builder.add_bolt("count", Count, par=2, inputs={parse: Grouping.fields("visitor")},
                             config={"topology.tick.tuple.freq.secs": 0.2})  # fmt: skip
    for name, function, table in sinks:
        inputs = {count: Grouping.SHUFFLE}
        builder.add_spec(SparkSink.spec(name, inputs, aggregate=function, schema=SCHEMA, table=str(tmp_path / table)))
    if files:
        builder.add_spec(FileSink.spec("files", {count: Grouping.SHUFFLE}, folder=str(tmp_path / "files")))
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE", "heron.batch.unit_bytes": 5000})
    return builder


def rows(table: Path) -> list[tuple[str, int]]:
    """What a reader sees."""
    found = [pq.ParquetFile(path).read() for path in sorted(table.glob("batch=*/*.parquet"))]
    return [(row["visitor"], row["visits"]) for one in found for row in one.to_pylist()]


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_one_call_gets_all_rows_in_an_order_that_the_workers_do_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    expected = write(tmp_path / "logs" / "a.log", 2000)
    run = SparkRun(tmp_path, builder_of(tmp_path, ("store", count_calls, "table")), monkeypatch)
    run.start(workers=workers)
    run.to_the_end()
    run.close()
    found = rows(tmp_path / "table")
    assert dict(found) == expected and len(found) == len(expected)
    assert [number for _, number in CALLS] == [len(expected)]
    assert run.run.record.state is RunState.FINISHED and run.run.record.savepoint
    assert run.run.record.sinks == {"store": str(tmp_path / "table")}
    assert found == EQUAL.setdefault("rows", found)


#: What the first number of workers gave.
EQUAL: dict[str, list[tuple[str, int]]] = {}


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    "step",
    [
        "heronpy.connectors.spark.dispatches.DispatchFolder.write_function",
        "heronpy.connectors.spark.dispatches.DispatchFolder.hand_over_run",
        "heronpy.spark.batch.Batch.staged_tables",
        "heronpy.spark.inbox.DispatchInbox.prepare",
        "heronpy.spark.inbox.publish",
        "heronpy.connectors.spark.records.SinkFolder.write_outcome",
        "heronpy.connectors.spark.dispatches.DispatchFolder.tables",
        "heronpy.storage.checkpoints.CheckpointStore.write_metadata",
    ],
)
def test_a_death_at_any_step_shows_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, before: bool
) -> None:
    expected = write(tmp_path / "logs" / "a.log", 300)
    run = SparkRun(tmp_path, builder_of(tmp_path, ("store", count_calls, "table")), monkeypatch)
    do = pkgutil.resolve_name(step)

    def killed(*args: Any, **more: Any) -> Any:
        if not before:
            do(*args, **more)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(step, killed)
        run.start()
        with pytest.raises(KilledError):
            run.to_the_end()
    run.close()
    run.start()
    run.to_the_end()
    run.close()
    found = rows(tmp_path / "table")
    assert dict(found) == expected and len(found) == len(expected)
    assert run.run.record.state is RunState.FINISHED
    # One id over all attempts, and no other folder than that of the batch.
    assert {path.name for path in (tmp_path / "table").iterdir()} == {f"batch={CALLS[0][0]}"}
    assert len({name for name, _ in CALLS}) == 1


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (("other", raises, "other"), "ValueError: no such column; in the function of sink 'other'"),
        (("other", write_only, "table"), "sinks 'store' and 'other' write to the same table"),
    ],
    ids=["raises", "one table"],
)
def test_a_run_that_fails_in_spark_shows_nothing_in_any_sink_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Any, said: str
) -> None:
    expected = write(tmp_path / "logs" / "a.log", 300)
    store = ("store", count_calls, "table")
    run = SparkRun(tmp_path, builder_of(tmp_path, store, broken, files=True), monkeypatch)
    run.start(keepers=2)
    for _ in range(2):  # the other keeper says the same
        with pytest.raises(GaveUpError, match=said):
            run.to_the_end()
    run.close()
    assert run.run.record.state is RunState.FAILED and said in run.run.record.cause
    assert not rows(tmp_path / "table") and not rows(tmp_path / "other") and not (tmp_path / "files").exists()
    assert len(CALLS) == 1
    # The next submit of the fixed program does this.
    mended = builder_of(tmp_path, store, ("other", write_only, "other"), files=True).build()
    run.run.replace_topology(mended)
    mend(run.run, divide(mended))
    run.run.write(replace(run.run.record, state=RunState.RUNNING, cause="", ended_at=None))
    run.start()
    run.to_the_end()
    run.close()
    assert dict(rows(tmp_path / "table")) == dict(rows(tmp_path / "other")) == expected
    assert list((tmp_path / "files").glob("part-*"))


def test_a_held_run_needs_no_spark_and_can_be_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "logs" / "a.log", 300)
    builder = builder_of(tmp_path, ("store", count_calls, "table"))
    runs = []
    for about in ({}, {"like": "visits/1", "hold": True}):
        run = SparkRun(tmp_path, builder, monkeypatch, **about)
        run.start()
        run.to_the_end()
        run.close()
        runs.append(files_of_run(run.run.folder, run.topology)["store"])
    assert run.run.record.state is RunState.HELD and len(CALLS) == 1
    assert len(list((tmp_path / "table").iterdir())) == 1
    found = compare("store", *(lambda files=files: rows_of(files) for files in runs))
    assert found.is_equal and found.first == 31
    assert needs_spark(run_topology(run.topology, "/run", 2))
    assert not needs_spark(run_topology(run.topology, "/run", 2, publishes=False))


def test_an_empty_input_calls_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "empty.log").touch()
    run = SparkRun(tmp_path, builder_of(tmp_path, ("store", count_calls, "table")), monkeypatch)
    run.start()
    run.to_the_end()
    run.close()
    assert run.run.record.state is RunState.FINISHED and not CALLS and not (tmp_path / "table").exists()


def test_a_shuffle_begins_with_partitions_for_its_bytes() -> None:
    assert [shuffle_partitions(size) for size in (0, PARTITION_BYTES * 3 + 1, 1 << 50)] == [2, 4, 2000]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (None, "sink 'rows' has no schema"),
        ({"visitor": "string", "visits": "duration[us]"}, r"column 'visits' of sink 'rows' is duration\[us\].* use int64"),
        (pa.schema([("visitor", pa.string()), ("visits", pa.list_(pa.timestamp("ns")))]), r"use timestamp\[us\]"),
        ({"visitor": "string", "visits": "uint32"}, "column 'visits' of sink 'rows' is uint32.* use int64"),
        ({"visitor": "string", "visits": "nothing"}, "column 'visits' has unknown type 'nothing'"),
    ],
)  # fmt: skip
def test_columns_that_files_cannot_hold_are_refused_by_name(schema: Any, said: str) -> None:
    builder = TopologyBuilder("visits")
    count = builder.add_bolt("count", Count, par=1, inputs={builder.add_spout("numbers", Numbers, 1): Grouping.SHUFFLE})
    given = {"schema": schema} if schema is not None else {"fields": list(SCHEMA)}
    builder.add_spec(SparkSink.spec("rows", {count: Grouping.SHUFFLE}, aggregate=count_calls, **given))
    with pytest.raises(BatchRefusedError, match=said):
        check_sinks(builder.build(), resolve("local", (), {}, {}, ()), hold=True)


def test_spark_that_is_missing_or_away_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = builder_of(tmp_path, ("store", count_calls, "table")).build()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        away = f"spark://127.0.0.1:{free.getsockname()[1]}"
    resolved = resolve("local", (), {"heron.spark.master": away}, {}, ())
    with pytest.raises(ConfigError, match=rf"heron.spark.master {away} cannot be reached"):
        check_sinks(built, resolved, hold=False)
    check_sinks(built, resolved, hold=True)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else find(name))
    with pytest.raises(ConfigError, match=r"package pyspark is missing; run: pip install 'heronpy\[spark\]'"):
        check_sinks(built, resolved, hold=False)
