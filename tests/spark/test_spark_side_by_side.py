"""Batches of several sink tasks at once (`heron.spark.parallel_batches`), with a real gateway and driver.

Functions wait for each other, so a gateway that works on one batch after the other fails these tests.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from heronpy.connectors.spark.sink import SparkSink
from tests.connectors.two_phase import Tup
from tests.spark.support import GatewaySupervisor, make_launch, start_sink
from tests.support.leaks import LeakCheck
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SCHEMA = {"word": "string", "n": "int64"}


@pytest.fixture(autouse=True)
def leak_check() -> None:
    """Instead of the check after each test: the gateway stays, `gateway` checks at the end of the module."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewaySupervisor]:
    check = LeakCheck()
    sockets = Path(tempfile.mkdtemp(prefix="hs"))
    launch = make_launch(tmp_path_factory.mktemp("w"), sockets, max_retries=1, parallel_batches=2)
    supervisor = GatewaySupervisor(launch)
    os.environ["HERON_LAUNCH"] = str(launch)
    supervisor.start()
    yield supervisor
    supervisor.stop()
    del os.environ["HERON_LAUNCH"]
    shutil.rmtree(sockets, ignore_errors=True)
    assert check.leaks() == []


def sink(component: str, task: int, output: Path, aggregate: Callable[..., None], **spec: Any) -> SparkSink:
    spec = {"schema": SCHEMA, "batch_rows": 100, "batch_interval_s": 0.2, "folder": str(output.parent)} | spec
    return start_sink(component, task, aggregate=aggregate, output=output, **spec)


def drain(bolts: list[SparkSink], count: int, gateway: GatewaySupervisor) -> None:
    def turn() -> bool:
        gateway.keep_running()
        for bolt in bolts:
            bolt.process_tick(None)
        return all(len(bolt.delegate.acked) + len(bolt.delegate.failed) >= count for bolt in bolts)

    wait_for(turn, 90)
    for bolt in bolts:
        bolt.finish()


def totals(table: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in pq.read_table(table).to_pylist():
        found[row["word"]] = found.get(row["word"], 0) + row["n"]
    return found


def meeting(people: int) -> Callable[..., None]:
    """An aggregate function that returns once batches of `people` tasks are in progress; it travels by value."""

    def aggregate(spark: Any, df: Any, batch: Any) -> None:
        import time
        from pathlib import Path

        df.createOrReplaceTempView("rows")
        place, deadline = Path(batch.options["folder"]), time.monotonic() + 60
        (place / f"here-{batch.component}-{batch.task}").touch()
        while len(list(place.glob("here-*"))) < people:
            assert time.monotonic() < deadline, "nobody came"
            time.sleep(0.01)
        sums = spark.sql("select word, sum(n) as n from rows group by word")
        batch.write_parquet(sums, batch.options["output"])

    return aggregate


@pytest.mark.heavy
def test_batches_of_two_tasks_run_at_once_each_with_views_of_its_own(
    gateway: GatewaySupervisor, tmp_path: Path
) -> None:
    bolts = [sink("meet", task, tmp_path / "t", meeting(2)) for task in (1, 2)]
    for task, bolt in enumerate(bolts, 1):
        for n in range(10):
            bolt.process(Tup(n, (f"of task {task}", n)))
    drain(bolts, 10, gateway)
    assert [sorted(bolt.delegate.acked) for bolt in bolts] == [list(range(10))] * 2
    assert totals(tmp_path / "t") == {"of task 1": 45, "of task 2": 45}
    assert not (tmp_path / "t" / "_staging").exists()


def diary() -> Callable[..., None]:
    """An aggregate function that writes down when it begins and ends."""

    def aggregate(spark: Any, df: Any, batch: Any) -> None:
        def note(what: str) -> None:
            with open(f"{batch.options['folder']}/diary", "a") as out:
                out.write(f"{what} {batch.task} {batch.number}\n")

        note("begin")
        batch.write_parquet(df.groupBy("word").sum("n").toDF("word", "n"), batch.options["output"])
        note("end")

    return aggregate


@pytest.mark.heavy
def test_batches_of_one_task_stay_in_order_one_at_a_time(gateway: GatewaySupervisor, tmp_path: Path) -> None:
    bolts = [sink("order", task, tmp_path / "t", diary(), batch_rows=5, batch_bytes_max=1) for task in (1, 2)]
    for n in range(40):
        for bolt in bolts:
            bolt.process(Tup(n, ("a", n)))
    drain(bolts, 40, gateway)
    entries = [line.split() for line in (tmp_path / "diary").read_text().splitlines()]
    for task in ("1", "2"):
        mine = [(what, int(number)) for what, who, number in entries if who == task]
        assert len(mine) == 16
        assert mine == [entry for _, n in mine[::2] for entry in (("begin", n), ("end", n))]
        assert [number for _, number in mine] == sorted(number for _, number in mine)
    assert totals(tmp_path / "t") == {"a": 2 * sum(range(40))}


@pytest.mark.heavy
def test_a_function_that_raises_is_no_matter_of_the_one_beside_it(gateway: GatewaySupervisor, tmp_path: Path) -> None:
    def broken(spark: Any, df: Any, batch: Any) -> None:
        from pathlib import Path

        batch.write_parquet(df, batch.options["output"])
        (Path(batch.options["folder"]) / f"here-{batch.attempt}").touch()
        raise ValueError("no luck today")

    # It ends only when the other has been tried for the last time.
    fine = sink("fine", 1, tmp_path / "fine", meeting(3))
    other = sink("broken", 1, tmp_path / "broken", broken)
    for bolt in (fine, other):
        bolt.process(Tup(1, ("a", 1)))
    drain([fine, other], 1, gateway)
    assert (fine.delegate.acked, fine.delegate.failed) == ([1], [])
    assert (other.delegate.acked, other.delegate.failed) == ([], [1])
    assert totals(tmp_path / "fine") == {"a": 1} and not list((tmp_path / "broken").glob("**/*.parquet"))


@pytest.mark.heavy
def test_after_the_death_of_the_driver_batches_that_were_in_work_run_alone(
    gateway: GatewaySupervisor, tmp_path: Path
) -> None:
    """So that further deaths count against the batch that causes them only. Each is published once."""

    def aggregate(spark: Any, df: Any, batch: Any) -> None:
        from pathlib import Path

        place = Path(batch.options["folder"])

        def note(what: str) -> None:
            with open(place / "diary", "a") as out:
                out.write(f"{what} {batch.task}\n")

        if batch.attempt == 1:
            (place / f"here-{batch.task}").touch()
            while True:  # until the driver is gone
                spark.range(1).count()
        note("begin")
        batch.write_parquet(df.groupBy("word").sum("n").toDF("word", "n"), batch.options["output"])
        note("end")

    bolts = [sink("death", task, tmp_path / "t", aggregate) for task in (1, 2)]
    for bolt in bolts:
        bolt.process(Tup(1, ("a", 1)))

    def both_work() -> bool:
        for bolt in bolts:
            bolt.process_tick(None)
        return len(list(tmp_path.glob("here-*"))) == 2

    wait_for(both_work, 90)
    os.kill(json.loads((gateway.launch.parent / "spark" / ".driver.json").read_text())["pid"], signal.SIGKILL)
    drain(bolts, 1, gateway)
    assert [bolt.delegate.acked for bolt in bolts] == [[1], [1]]
    entries = [line.split() for line in (tmp_path / "diary").read_text().splitlines()]
    assert [what for what, _ in entries] == ["begin", "end"] * 2
    assert entries[0][1] == entries[1][1] != entries[2][1] == entries[3][1]
    assert totals(tmp_path / "t") == {"a": 2}
