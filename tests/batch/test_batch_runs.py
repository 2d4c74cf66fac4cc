"""Batch runs on real processes: the rows of a plain program over the same lines, whoever is killed, and then live."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.ingest import units_cli
from tests.support.command import FAILED, USAGE, Heron
from tests.support.waiting import alive, wait_for

PROGRAM = Path(__file__).parent / "programs" / "visits.py"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


def write(path: Path, lines: int, seed: int, visitors: int = 50) -> Counter[str]:
    """Lines of random visitors; returns how often each of them is there."""
    chosen = random.Random(seed).choices([f"visitor{number}" for number in range(visitors)], k=lines)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{visitor} /page{number}\n" for number, visitor in enumerate(chosen))
    return Counter(chosen)


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(out.glob("part-*")) for line in path.read_text().splitlines()]


def counts_of(out: Path) -> dict[str, int]:
    """The last count of each visitor; counts only grow."""
    found: dict[str, int] = {}
    for row in rows_of(out):
        found[row["visitor"]] = max(found.get(row["visitor"], 0), row["visits"])
    return found


def batch(heron: Heron, logs: Path, out: Path, *words: str, flags: tuple[str, ...] = ()) -> Any:
    return heron(
        "submit", "local", "--mode", "batch", "--wait", *flags, PROGRAM, "visits", f"{logs}/*.log", out, *words
    )


def workers(heron: Heron) -> list[int]:
    return [each["pid"] for each in heron.status("visits")["tasks"] if each["component"] == "batch" and each["pid"]]


def kill_one(heron: Heron) -> None:
    worker = wait_for(lambda: workers(heron), 60, "a worker")[-1]
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: worker not in workers(heron), 60, "the end of the worker")


def parsed(heron: Heron) -> float:
    """The metric that `parse` has registered."""
    reported = heron("metrics", "local", "visits", "batch", "--json").json()["processes"]
    found = [each for process in reported for each in process["metrics"] if each["name"] == "parsed"]
    assert {each["label"] for each in found} <= {"parse"}
    return sum(each["value"] for each in found)


def folder_of(heron: Heron, number: int) -> Path:
    return heron.home / "batch" / "local" / "visits" / str(number)


def test_history_as_a_batch_and_then_live_is_one_count(heron: Heron, logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    expected = write(logs / "a.log", 6000, 1) + write(logs / "b.log", 500, 2)
    with (logs / "b.log").open("a") as file:
        file.write("visitor1 /unfin")
    said = batch(heron, logs, out, "follow=1").ok().out
    assert "batch run 1 of visits: " in said and " in 2 files" in said
    assert f"{len(expected)} keys; to continue as a stream: heron submit local" in said
    rows = rows_of(out)
    assert {row["visitor"]: row["visits"] for row in rows} == expected and len(rows) == len(expected)
    again = "give --fresh to run it again, or --restore latest instead of --mode batch to continue it as a stream"
    batch(heron, logs, out, "follow=1").refused(USAGE, "run visits/1 has finished and has published its output", again)
    progress = heron("progress", "local", "visits", "--json").json()
    assert [stage["state"] for stage in progress["stages"]] == ["finished"] * 2
    assert progress["state"] == "FINISHED" and progress["stages"][0]["done"] >= 6
    # Lines that were appended in the meantime, and those that come now; with another number of tasks.
    with (logs / "b.log").open("a") as file:
        file.write("ished\n")
    expected += Counter({"visitor1": 1}) + write(logs / "a.log", 300, 3)
    heron.submit("--restore", "latest", PROGRAM, "visits", f"{logs}/*.log", out, "follow=1", "tasks=3")
    expected += write(logs / "c.log", 400, 4)
    wait_for(lambda: counts_of(out) == expected, 60, "the counts of history and live lines")
    heron.kill("visits")


def test_killed_workers_change_nothing(heron: Heron, logs: Path, tmp_path: Path) -> None:
    out, kill = tmp_path / "out", tmp_path / "killed"
    expected = write(logs / "a.log", 3000, 5)
    with (logs / "a.log").open("a") as file:
        file.write("killer /once\n")
    expected["killer"] += 1
    words = (PROGRAM, "visits", f"{logs}/*.log", out, f"kill={kill}", "slow_s=0.002", "mode=ATLEAST_ONCE")
    heron("submit", "local", "--mode", "batch", *words).ok()
    for _ in range(3):
        kill_one(heron)
    heron.when_state("visits", "FINISHED")
    heron.kill("visits")
    assert kill.exists()
    rows = rows_of(out)
    assert {row["visitor"]: row["visits"] for row in rows} == expected and len(rows) == len(expected)


def test_a_stopped_worker_is_not_waited_for(heron: Heron, logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    expected = write(logs / "a.log", 6000, 14)
    waits = heron.start("submit", "local", "--mode", "batch", "--wait", PROGRAM, "visits", f"{logs}/*.log", out,
                        "slow_s=0.004", "unit_bytes=5000")  # fmt: skip

    def progress() -> Any:
        found = heron("progress", "local", "visits", "--json")
        return json.loads(found.out) if found.code == 0 else {"stages": []}

    wait_for(lambda: progress()["stages"], 60, "the run")
    wait_for(lambda: workers(heron), 60, "a worker")
    stopped = next(each for each in heron.status("visits")["tasks"] if each["component"] == "batch")
    wait_for(lambda: parsed(heron) > 0, 60, "the metric of user code")
    # Five units, by which the usual time is known.
    wait_for(lambda: sum(one["done"] for one in progress()["stages"]) >= 5, 60, "five units")
    os.kill(stopped["pid"], signal.SIGSTOP)
    try:
        wait_for(lambda: progress()["state"] == "FINISHED", 60, "the end of the run")
        said, complained = waits.communicate(timeout=30)  # it would count as hung after 60 s
    finally:
        with suppress(ProcessLookupError):
            os.kill(stopped["pid"], signal.SIGCONT)
    assert waits.returncode == 0 and "finished in" in said, complained
    assert not heron.names() and not alive(stopped["pid"])
    slow = [f"container_{one['container']}_" for one in progress()["stages"][0]["slow"]]
    assert any(stopped["instance_id"].startswith(one) for one in slow), stopped
    assert {row["visitor"]: row["visits"] for row in rows_of(out)} == expected


def test_a_run_that_was_killed_goes_on(heron: Heron, logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    expected = write(logs / "a.log", 4000, 12)
    words = (PROGRAM, "visits", f"{logs}/*.log", out, "slow_s=0.002", "unit_bytes=2500")
    heron("submit", "local", "--mode", "batch", *words).ok()

    def progress() -> Any:
        return heron("progress", "local", "visits", "--json").json()

    done = wait_for(lambda: progress()["stages"] and progress()["stages"][0]["done"], 60, "a unit that is done")
    for process in heron.processes():
        with suppress(psutil.NoSuchProcess):
            process.kill()
    wait_for(lambda: progress()["state"] == "DEAD", 60, "the end of all processes")
    # What came after the run began does not belong to it.
    write(logs / "a.log", 100, 13)
    again = heron("submit", "local", "--mode", "batch", "--wait", *words).ok()
    assert "no process of topology 'visits' was running; its remains were removed" in again.err
    assert "run 1 of visits, which continues" in again.out
    assert {row["visitor"]: row["visits"] for row in rows_of(out)} == expected
    stage = progress()["stages"][0]
    assert stage["attempts"] <= stage["units"] + 2 and done > 0


def test_a_failed_run_shows_nothing_and_the_mended_program_goes_on(heron: Heron, logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    expected = write(logs / "a.log", 4000, 6)
    with (logs / "b.log").open("a") as file:
        file.write("nobody /last\n")
    expected["nobody"] += 1
    failed = batch(heron, logs, out, "broken=nobody")
    assert failed.code == FAILED and "nobody is not welcome" in failed.err, failed
    assert "stage 1 (lines, parse)" in failed.err
    assert not rows_of(out)
    record = json.loads((folder_of(heron, 1) / "run.json").read_text())
    assert record["state"] == "FAILED" and "nobody is not welcome" in record["cause"]
    assert heron("progress", "local", "visits", "--json").json()["state"] == "FAILED"
    heron("submit", "local", "--restore", "latest", PROGRAM, "visits", f"{logs}/*.log", out).refused(
        3, "batch run visits/1 has failed"
    )
    # The corrected program has other content.
    batch(heron, logs, out).refused(USAGE, "visits/1", "--resume", "--fresh")
    said = batch(heron, logs, out, flags=("--resume",)).ok().out
    assert "run 1 of visits, which continues" in said
    assert {row["visitor"]: row["visits"] for row in rows_of(out)} == expected
    ledger_units = heron("progress", "local", "visits", "--json").json()["stages"][0]
    # What was committed was not processed again.
    assert ledger_units["attempts"] < 2 * ledger_units["units"]


def test_an_empty_input_has_an_empty_result_and_an_old_run_goes_with_its_savepoint(
    heron: Heron, logs: Path, tmp_path: Path
) -> None:
    (logs / "a.log").touch()
    for number in (1, 2):
        flags = ("--config-property", "heron.batch.keep_runs=1", "--fresh")
        assert "finished in" in batch(heron, logs, tmp_path / "out", "follow=1", flags=flags).ok().out
        assert not rows_of(tmp_path / "out")
        assert json.loads((folder_of(heron, number) / "run.json").read_text())["state"] == "FINISHED"
        assert [path.name for path in folder_of(heron, number).parent.iterdir() if path.is_dir()] == [str(number)]
        (savepoint,) = heron.home.rglob("visits-batch-*")
        assert savepoint.name.startswith(f"visits-batch-{number}-")


def test_a_held_run_takes_the_input_of_another_and_publishes_nothing(heron: Heron, logs: Path, tmp_path: Path) -> None:
    write(logs / "a.log", 1000, 7)
    batch(heron, logs, tmp_path / "out").ok()
    first = sorted(map(str, rows_of(tmp_path / "out")))
    write(logs / "a.log", 1000, 8)
    write(logs / "b.log", 10, 9)
    said = batch(heron, logs, tmp_path / "other", flags=("--as", "visits/1", "--hold")).ok().out
    assert "reads the input of visits/1" in said and "nothing is published" in said
    assert not (tmp_path / "other").exists() or not rows_of(tmp_path / "other")
    held = sorted(path for path in folder_of(heron, 2).glob("*/unit=*/sink-store*"))
    rows = [str(json.loads(line)) for path in held for line in path.read_text().splitlines()]
    assert sorted(rows) == first
    # Its checkpoint is that of the first run.
    heron("submit", "local", "--mode", "batch", "--as", "visits/9", PROGRAM, "visits", f"{logs}/*.log", tmp_path / "out",
          ).refused(USAGE, "visits/9", "visits/1, visits/2")  # fmt: skip


def test_the_stages_are_shown_before_anything_starts(heron: Heron, logs: Path, tmp_path: Path) -> None:
    said = (
        heron("submit", "local", "--mode", "batch", "--dry-run", PROGRAM, "visits", f"{logs}/*.log", tmp_path).ok().out
    )
    assert "1 lines, parse" in said and "2 count, store" in said and "parse:default of stage 1, FIELDS" in said
    assert not (heron.home / "batch" / "local" / "visits" / "1").exists()


@pytest.mark.parametrize(
    ("flags", "words", "named"),
    [
        (("--mode", "batch", "--resume"), (), ("--resume",)),
        (("--mode", "batch", "--as", "visits/3"), (), ("visits/3",)),
        (("--mode", "batch", "--restore", "latest"), (), ("--restore",)),
        (("--hold",), (), ("--hold", "--mode batch")),
    ],
)
def test_what_cannot_run_is_refused_in_one_sentence(
    heron: Heron, logs: Path, tmp_path: Path, flags: tuple[str, ...], words: tuple[str, ...], named: tuple[str, ...]
) -> None:
    write(logs / "a.log", 10, 1)
    said = heron("submit", "local", *flags, PROGRAM, "visits", f"{logs}/*.log", tmp_path / "out", *words)
    assert said.code != 0 and len([line for line in said.err.splitlines() if line.lower().startswith("error")]) == 1, (
        said
    )
    for word in named:
        assert word in said.err, said
    assert not heron.names() and not (heron.home / "batch" / "local" / "visits" / "1").exists()


def test_auto_says_what_it_chose_and_why(heron: Heron, logs: Path, tmp_path: Path) -> None:
    write(logs / "a.log", 100, 1)
    words = (PROGRAM, "visits", f"{logs}/*.log", tmp_path / "out")
    said = heron("submit", "local", "--mode", "auto", "--wait", *words).ok().out
    assert "mode:   batch, because " in said
    denied = heron(
        "submit", "local", "--mode", "auto", "--wait", "--config-property", "heron.batch.auto_deny=vis*", *words
    )
    assert "mode:   stream, because " in denied.ok().out


def test_a_streamlet_program_runs_as_a_batch(heron: Heron, logs: Path, tmp_path: Path) -> None:
    expected = write(logs / "a.txt", 500, 21) + write(logs / "b.txt", 100, 22)
    out, program = tmp_path / "out", PROGRAM.with_name("tally.py")
    (logs / "c.txt").write_text("one two one\n")
    said = heron("submit", "local", "--mode", "auto", "--wait", program, "tally", f"{logs}/*.txt", out).ok().out
    assert "mode:   batch, because all spouts of the topology end" in said and expected
    assert sorted(out.read_text().splitlines()) == ["one 2", "two 1"]


def test_work_units_take_what_there_is_and_a_stream_goes_on(heron: Heron, logs: Path, tmp_path: Path) -> None:
    table, expected = tmp_path / "table", [f"a {number}" for number in range(700)]
    words = (PROGRAM.parents[2] / "ingest" / "programs" / "units.py", "--logs", logs, "--table", table)

    def append(begin: int, end: int) -> None:
        with (logs / "a.log").open("a") as file:
            file.writelines(f"{line}\n" for line in expected[begin:end])

    append(0, 500)
    said = heron("submit", "local", "--mode", "batch", "--hold", *words)
    assert said.code != 0 and "pipelines of LogUnits" in said.err and not heron.names()
    for begin in (500, 600):
        assert (
            "the bytes that the logs contain now"
            in heron("submit", "local", "--mode", "batch", "--wait", *words).ok().out
        )
        assert sorted(units_cli.rows_of(table)) == sorted(expected[:begin])
        append(begin, begin + 100)
    heron.submit(*words)
    wait_for(lambda: sorted(units_cli.rows_of(table)) == sorted(expected), 60, "the rows of the stream")
    heron.kill("lines")
