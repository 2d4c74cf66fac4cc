"""Batch runs that end in Spark, on real processes: the main example, whoever is killed; and the stream behind one."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from tests.batch.test_batch_runs import PROGRAM, write
from tests.support.command import Heron
from tests.support.waiting import wait_for
from topologies import flight_delays, spark_sink

pytestmark = [pytest.mark.heavy, pytest.mark.spark, pytest.mark.timeout(1500)]
TOPOLOGIES = Path(flight_delays.__file__).parent
LIMIT_S = 900


def state(heron: Heron, name: str) -> str:
    return str(heron("progress", "local", name, "--json").json()["state"])


def driver_of(heron: Heron, name: str) -> psutil.Process | None:
    """The JVM, once it has rows to work on."""
    runs = heron.home / "batch" / "local" / name / "1" / "spark"
    if not any(runs.glob("dispatches/batch-keeper/attempts/*.json")):
        return None
    with suppress(OSError, ValueError, psutil.Error):
        record = heron.log_dir(name).parent / "spark" / ".driver.json"
        return psutil.Process(json.loads(record.read_text())["pid"])
    return None


def test_flights_as_a_batch_give_the_table_of_the_file_whatever_is_killed(heron: Heron, tmp_path: Path) -> None:
    table, name = tmp_path / "table", "Flights"
    heron("submit", "local", "--mode", "batch", TOPOLOGIES / "flight_delays.py", name, "--output", table,
          "--config-property", "heron.batch.unit_bytes=2000000", timeout_s=LIMIT_S).ok()  # fmt: skip
    tasks = wait_for(lambda: [each["pid"] for each in heron.status(name)["tasks"] if each["pid"]], 120, "tasks")
    for pid in random.Random(1).sample(tasks, 2):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    driver = wait_for(lambda: driver_of(heron, name), LIMIT_S, "Spark at work")
    driver.kill()
    wait_for(lambda: state(heron, name) == "FINISHED", LIMIT_S, "the end of the run")
    heron.kill(name)
    assert flight_delays.check(table, flight_delays.flights_csv()).startswith("checked: 336,776 of 336,776 lines")
    (batch,) = table.iterdir()
    assert batch.name.startswith("batch=table-run-")
    shown = heron("history", "show", "local", f"{name}/1", "--json").json()
    assert "Final Plan" in shown["spark_plan"] and "AQEShuffleRead" in shown["spark_plan"]
    assert "Final Plan" in heron("history", "show", "local", f"{name}/1").ok().out


def test_readings_as_a_batch_are_one_call(heron: Heron, tmp_path: Path) -> None:
    table = tmp_path / "table"
    words = (Path(spark_sink.__file__), "Readings", "--output", table, "--readings", "2000")
    heron("submit", "local", "--mode", "batch", "--wait", *words, timeout_s=LIMIT_S).ok()
    (batch,) = table.iterdir()
    found = pq.read_table(batch).to_pylist()
    assert sum(row["readings"] for row in found) == 2000 and len(found) == len({row["sensor"] for row in found}) == 5


def test_a_stream_goes_on_in_the_table_of_the_batch(heron: Heron, tmp_path: Path) -> None:
    logs, table = tmp_path / "logs", tmp_path / "table"
    logs.mkdir()
    expected = write(logs / "a.log", 3000, 1)
    words = (PROGRAM, "visits", f"{logs}/*.log", table, "follow=1", "spark=1")
    said = heron("submit", "local", "--mode", "batch", "--wait", *words, timeout_s=LIMIT_S).ok().out
    assert f"{len(expected)} keys; to continue as a stream: heron submit local" in said

    def counts() -> Counter[str]:
        """The last count of each visitor, each of which is there once: counts only grow."""
        rows = [row for path in table.glob("batch=*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
        found = [(row["visitor"], row["visits"]) for row in rows]
        assert len(found) == len(set(found)), "a count is there twice"
        return Counter({visitor: max(visits for one, visits in found if one == visitor) for visitor, _ in found})

    assert counts() == expected
    expected += write(logs / "a.log", 200, 2)
    heron("submit", "local", *words, "--restore", "latest", timeout_s=LIMIT_S).ok()
    wait_for(lambda: counts() == expected, LIMIT_S, "the counts of history and live lines")
    heron.kill("visits")
    assert sorted(path.name[:15] for path in table.glob("batch=store-run-*")) == ["batch=store-run"]
    assert len(list(table.glob("batch=*"))) >= 2
