"""Work units to a real Spark: every line once in what its function has written, whoever is killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.ingest.units_cli import shown
from tests.support.command import Heron
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.heavy, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).parent / "programs" / "spark_units.py"
PATIENCE_S = 300.0


def submit(heron: Heron, logs: Path, *more: Any) -> str:
    table, counts = logs.parent / "table", logs.parent / "counts"
    properties = ("--config-property", "heron.spark.max_retries=1")
    given = ("--logs", logs, "--table", table, "--counts", counts, *more)
    return heron("submit", "local", PROGRAM, *given, *properties, timeout_s=2 * PATIENCE_S).ok().out


def lines_of(logs: Path) -> Counter[str]:
    return Counter(line for path in logs.glob("*.log*") for line in path.read_text().splitlines())


def rows_of(table: Path) -> Counter[str]:
    import pyarrow.parquet as pq

    return Counter(line for file in table.glob("batch=*/*.parquet") for line in pq.read_table(file)["line"].to_pylist())


def counts_of(table: Path) -> Counter[str]:
    import pyarrow.parquet as pq

    found: Counter[str] = Counter()
    for file in table.glob("batch=*/*.parquet"):
        for row in pq.read_table(file).to_pylist():
            found[row["log"]] += row["count"]
    return found


def settled(heron: Heron, size: int) -> None:
    wait_for(lambda: (found := shown(heron)) is not None and found.done_bytes == size, PATIENCE_S, f"{size} bytes")


def agree(heron: Heron, logs: Path) -> dict[str, Any]:
    for table in ("counts", "table"):
        found = heron("units", "check", "lines", "--table", logs.parent / table, "--json")
        assert found.code == 0, found.out + found.err
    return dict(found.json())


def test_what_is_there_goes_through_spark_and_the_run_ends(heron: Heron, logs: Path) -> None:
    for log in "ab":
        (logs / f"{log}.log").write_text("".join(f"{log} {number}\n" for number in range(20_000)))
    assert "FINISHED" in submit(heron, logs, "--until", "now", "--wait")
    assert rows_of(logs.parent / "table") == lines_of(logs)
    assert counts_of(logs.parent / "counts") == {"a": 20_000, "b": 20_000}
    found = agree(heron, logs)
    assert found["rows"] == 40_000 and found["bytes"] == sum(path.stat().st_size for path in logs.glob("*.log"))
    home = Path(os.environ["HERON_HOME"]) / "units" / "lines" / "_units"
    assert not list(home.glob("g1/*")), "the rows that waited for Spark are gone"


def test_what_spark_gives_up_is_shown_and_retried(heron: Heron, home: Path, logs: Path) -> None:
    (logs / "broken").touch()
    (logs / "a.log").write_text("".join(f"a {number}\n" for number in range(1000)))
    submit(heron, logs)
    wait_for(lambda: (found := shown(heron)) is not None and found.dispatches_failed, PATIENCE_S, "a failed dispatch")
    told = heron("units", "show", "lines").ok().out
    assert "1 failed dispatch of 1 unit: fix the cause, then: heron units retry" in told
    assert "ValueError: it is broken" in told
    assert "1 failed dispatch" in heron("units", "list").ok().out
    assert not (logs.parent / "table").exists() or not list((logs.parent / "table").glob("batch=*"))
    (sink,) = heron.status("lines")["spark"]["sinks"]
    assert (sink["component"], sink["batches"], sink["failed_batches"]) == ("lines-keeper", 0, 1)
    (logs / "broken").unlink()
    assert heron("units", "retry", "lines").ok().out.strip() == "1 dispatch to retry"
    settled(heron, (logs / "a.log").stat().st_size)
    assert rows_of(logs.parent / "table") == lines_of(logs)
    agree(heron, logs)
    # The ledger is lost, and rebuilt from the output of Spark.
    heron("kill", "local", "lines").ok()
    for path in (home / "ledger").iterdir():
        path.unlink()
    said = heron("units", "rebuild", "lines", "--from", logs.parent / "table").ok().out
    assert "generation 2" in said and "0 units to process again" in said
    with (logs / "a.log").open("a") as file:
        file.write("a last\n")
    submit(heron, logs, "--until", "now", "--wait")
    assert rows_of(logs.parent / "table") == lines_of(logs)
    agree(heron, logs)


@pytest.mark.parametrize("seed", [1])
def test_every_line_once_while_workers_keepers_and_gateways_are_killed(heron: Heron, logs: Path, seed: int) -> None:
    chance = random.Random(seed)
    submit(heron, logs, "--workers", 2)
    written = Counter[str]()
    kills: Counter[str] = Counter()
    deadline = time.monotonic() + 150.0
    while time.monotonic() < deadline and (kills["gateway"] < 4 or kills["lines-keeper"] < 4):
        for log in "abc":
            with (logs / f"{log}.log").open("a") as file:
                for _ in range(chance.randint(100, 3000)):
                    file.write(f"{log} {written[log]}\n")
                    written[log] += 1
        gateways = _gateways()
        tasks = [(task["component"], task["pid"]) for task in heron.status("lines")["tasks"] if task["pid"]]
        keepers = [one for one in tasks if one[0] == "lines-keeper"]
        workers = [one for one in tasks if one[0] == "lines-worker"]
        groups = [[("gateway", pid) for pid in gateways], keepers, workers]
        victims = chance.choice([group for group in groups if group] or [[]])
        if victims:
            name, pid = chance.choice(victims)
            # Sometimes in the middle of a dispatch.
            if chance.random() < 0.7:
                with contextlib.suppress(AssertionError):
                    wait_for(_dispatch_is_at_work, 20.0, "a dispatch at work")
            try:
                os.kill(pid, signal.SIGKILL)
                kills[name] += 1
            except ProcessLookupError:
                pass
    settled(heron, sum(path.stat().st_size for path in logs.glob("*.log")))
    wrong = rows_of(logs.parent / "table")
    expected = lines_of(logs)
    assert wrong == expected, (len(expected - wrong), len(wrong - expected), list((wrong - expected).items())[:3])
    assert counts_of(logs.parent / "counts") == written
    agree(heron, logs)
    assert kills["gateway"] and kills["lines-keeper"] and kills["lines-worker"], kills


def _gateways() -> list[int]:
    home = os.environ["HERON_HOME"]
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        command = process.info["cmdline"] or []
        if "heronpy.spark" in command and any(home in word for word in command):
            found.append(process.info["pid"])
    return found


def _dispatch_is_at_work() -> bool:
    home = Path(os.environ["HERON_HOME"]) / "units" / "lines" / "_units" / "dispatches"
    return bool(list(home.glob("*/attempts/*.json")))
