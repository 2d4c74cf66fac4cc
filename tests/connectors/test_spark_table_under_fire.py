"""A whole topology whose SparkSink writes Parquet, while Spark's processes and the sink are killed (F07)."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from tests.support.command import Heron
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]

PROGRAM = Path(__file__).parent / "programs" / "spark_numbers.py"
ROWS = 6000
NAME = "Numbers"


def numbers(first: int, last: int) -> str:
    return "".join(f"{number:07d}\n" for number in range(first, last))


class Run:
    """The topology, and where its Spark is."""

    def __init__(self, heron: Heron, folder: Path, mode: str, *more: object, retries: int = 3) -> None:
        self.heron = heron
        self.table = folder / "table"
        self.file = folder / "numbers.txt"
        self.file.write_text(numbers(0, ROWS))
        words = ("--file", self.file, "--table", self.table, "--reliability", mode, *more)
        settings = ("heron.checkpoint.interval_s=0.5", f"heron.spark.max_retries={retries}")
        words += tuple(word for one in settings for word in ("--config-property", one))
        heron("submit", "local", PROGRAM, NAME, *words, timeout_s=400.0).ok()
        self.spark = heron.log_dir(NAME).parent / "spark"

    def in_mid_batch(self) -> bool:
        """Is Spark at work on a batch now?"""
        return any(self.spark.glob("*/table/attempts/*.json"))

    def driver(self) -> psutil.Process | None:
        """The JVM, once it is there."""
        try:
            return psutil.Process(json.loads((self.spark / ".driver.json").read_text())["pid"])
        except (OSError, ValueError, psutil.Error):
            return None

    def python_workers(self) -> list[psutil.Process]:
        """The processes in which the function's own Python runs."""
        driver = self.driver()
        try:
            # The daemon forks them; it is the JVM's own child.
            return [] if driver is None else [p for d in driver.children() for p in d.children()]
        except psutil.Error:
            return []

    def published(self) -> int:
        return len(list(self.table.glob("batch=*")))

    def when(self, what: str, find: Callable[[], object]) -> None:
        wait_for(find, 400.0, what)

    def kill_a_python_worker(self) -> None:
        def shoot() -> bool:
            victims = self.python_workers() if self.in_mid_batch() else []
            for victim in victims:
                victim.send_signal(signal.SIGKILL)
            return bool(victims)

        self.when("a Python worker of Spark in mid-batch", shoot)

    def kill_the_driver(self) -> None:
        def shoot() -> bool:
            victim = self.driver() if self.in_mid_batch() else None
            if victim is not None:
                victim.send_signal(signal.SIGKILL)
            return victim is not None

        self.when("the driver in mid-batch", shoot)

    def kill_the_gateway(self) -> None:
        pid = self.heron.pid(NAME, "spark-gateway")
        self.when("a batch at work", self.in_mid_batch)
        os.kill(pid, signal.SIGKILL)

    def kill_the_sink(self) -> None:
        status = self.heron.status(NAME)
        [pid] = [task["pid"] for task in status["tasks"] if task["component"] == "table"]
        self.when("a batch at work", self.in_mid_batch)
        os.kill(pid, signal.SIGKILL)

    def progresses(self) -> None:
        """Spark has published another batch since it was last shot at."""
        before = self.published()
        self.when("another batch", lambda: self.published() > before)

    def rows(self) -> list[dict[str, str]]:
        """What is in the table when all has come to its end."""
        self.heron.when_state(NAME, "FINISHED", 400.0)
        return self.rows_now()

    def rows_now(self) -> list[dict[str, str]]:
        # Not the folder as a whole: what is staged there comes and goes.
        parts = self.table.glob("batch=*")
        return [row for part in parts for row in pq.read_table(part, partitioning=None).to_pylist()]

    def lines_now(self) -> Counter[str]:
        return Counter(row["line"] for row in self.rows_now())

    def failed(self) -> list[dict[str, Any]]:
        """What `heron batches` shows."""
        return list(self.heron("batches", "local", NAME, "--json").ok().json())

    def retry(self) -> str:
        return self.heron("batches", "local", NAME, "--retry").ok().out


@pytest.mark.heavy
def test_the_table_is_exact_whatever_is_killed(heron: Heron, user: Path) -> None:
    run = Run(heron, user, "EFFECTIVELY_ONCE")
    run.progresses()
    for shoot in (run.kill_a_python_worker, run.kill_the_sink, run.kill_the_driver, run.kill_the_sink,
                  run.kill_the_gateway):  # fmt: skip
        shoot()
        run.progresses()
    rows = run.rows()
    lines = Counter(row["line"] for row in rows)
    assert (len(lines), lines.total()) == (ROWS, ROWS)
    assert heron.status(NAME)["checkpoints"]["restores"] >= 2
    assert {row["batch"] for row in rows} == {path.name.partition("=")[2] for path in run.table.glob("batch=*")}


@pytest.mark.heavy
def test_at_least_once_repeats_rows_of_the_killed_sink_only(heron: Heron, user: Path) -> None:
    """Batches that Spark repeats replace themselves; those a dead sink left unacked come again in new ones."""
    run = Run(heron, user, "ATLEAST_ONCE")
    run.progresses()
    run.kill_the_driver()
    run.progresses()
    run.kill_the_sink()
    run.progresses()
    batches = defaultdict(list)
    for row in run.rows():
        batches[row["line"]].append(row["batch"])
    assert len(batches) == ROWS, "nothing is lost"
    assert all(len(set(ids)) == len(ids) <= 2 for ids in batches.values()), "no batch is there twice"
    # Ids begin with component, task and number; the numbers of a task only grow.
    again = {min(ids) for ids in batches.values() if len(ids) > 1}
    assert len(again) <= 2, "max_uncommitted batches of the dead sink at most come again"


@pytest.mark.heavy
def test_a_table_of_record_batches_is_exact_when_its_sink_is_killed(heron: Heron, user: Path) -> None:
    """The stream has an Arrow schema, of a type that the sink's is cast from."""
    run = Run(heron, user, "EFFECTIVELY_ONCE", "--arrow", "--row-pause-ms", "0.2")
    run.progresses()
    run.kill_the_sink()
    run.progresses()
    assert Counter(row["line"] for row in run.rows()) == Counter(f"{number:07d}" for number in range(ROWS))
    assert heron.status(NAME)["checkpoints"]["restores"] >= 1


@pytest.mark.heavy
def test_batches_that_have_failed_are_tried_again_on_command_and_their_rows_come_once(heron: Heron, user: Path) -> None:
    """The function raises until a file is there; meanwhile the sink goes back to a checkpoint, and batches are retried."""
    needed = user / "mended"
    run = Run(heron, user, "EFFECTIVELY_ONCE", "--needed", needed, "--follow", "--row-pause-ms", "0.2", retries=0)
    run.when("all rows in failed batches", lambda: sum(one["rows"] for one in run.failed()) == ROWS)
    found = run.failed()
    assert {one["attempts"] for one in found} == {1} and "there is no" in found[0]["error"]
    assert run.retry() == f"{len(found)} failed batches of '{NAME}' will be retried\n", "too soon"
    run.when("the same failed batches", lambda: run.failed() == found)
    restores = heron.status(NAME)["checkpoints"]["restores"]
    [pid] = [task["pid"] for task in heron.status(NAME)["tasks"] if task["component"] == "table"]
    os.kill(pid, signal.SIGKILL)
    heron.when(NAME, lambda status: status["checkpoints"]["restores"] > restores, "a restore")
    run.when("all rows in failed batches", lambda: sum(one["rows"] for one in run.failed()) == ROWS)
    assert run.lines_now() == {}
    needed.touch()
    with run.file.open("a") as file:
        file.write(numbers(ROWS, 2 * ROWS))
    run.when("the new rows", lambda: len(run.lines_now()) == ROWS)
    gateway = heron.pid(NAME, "spark-gateway")
    kept = len(run.failed())
    assert run.retry() == f"{kept} failed batches of '{NAME}' will be retried\n"
    run.when("a batch at work", run.in_mid_batch)
    os.kill(gateway, signal.SIGKILL)
    run.when("all rows", lambda: len(run.lines_now()) == 2 * ROWS)
    assert run.failed() == [] and "has no failed Spark batches to retry" in run.retry()
    assert set(run.lines_now().values()) == {1}
    heron.kill(NAME)
