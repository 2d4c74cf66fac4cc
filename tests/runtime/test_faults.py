"""Real processes killed, stopped, raising and restarted under load: nothing is lost, recovery is quick."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from heronpy.proto import control_pb2
from tests.support.command import Heron
from tests.support.inside import ask_master, metric, totals, when_totals
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "faults.py"


def stored(out: Path) -> Counter[int]:
    return Counter(int(line) for path in out.glob("stored.*") for line in path.read_text().split())


def acked(out: Path) -> set[int]:
    return {int(line) for path in out.glob("acked.*") for line in path.read_text().split()}


def when_stored(out: Path, more_than: int) -> None:
    wait_for(lambda: sum(stored(out).values()) > more_than, 60, f"more than {more_than} stored")


def finish(heron: Heron, out: Path, timeout_s: float = 60.0) -> set[int]:
    """End the input and wait for the end of the rest; all numbers that there were."""
    (out / "stop").touch()
    heron.when_state("faults", "FINISHED", timeout_s)
    totals = sorted(out.glob("total.*"))
    return {n for path in totals for n in range(int(path.suffix[1:]), int(path.read_text()), len(totals))}


def names(heron: Heron, name: str) -> dict[str, str]:
    """component-index -> instance id"""
    tasks = sorted(heron.status(name)["tasks"], key=lambda task: task["task_id"])
    count: Counter[str] = Counter()
    found = {}
    for task in tasks:
        found[f"{task['component']}-{count[task['component']]}"] = task["instance_id"]
        count[task["component"]] += 1
    return found


def first_tuples(heron: Heron, name: str, process: str) -> list[float]:
    return [float(at) for at in re.findall(r"first tuple at ([\d.]+)", heron.log_text(name, process))]


def kill_and_time(heron: Heron, name: str, process: str) -> float:
    """SIGKILL a task; the seconds until its successor has processed a tuple."""
    before = len(first_tuples(heron, name, process))
    pid = heron.pid(name, process)
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(first_tuples(heron, name, process)) > before, 60, f"a tuple in the next {process}")
    return first_tuples(heron, name, process)[-1] - killed


@pytest.mark.heavy
def test_kill_9_of_everything_under_load_loses_nothing(heron: Heron, out: Path) -> None:
    """Spout, bolt, sink and stream manager; nothing waits for the message timeout, or it would wait for an hour."""
    heron.submit(PROGRAM, "faults", "--out", out, "--containers", 2, "--message-timeout", 3600,
                 "--source-pause-ms", 0.5)  # fmt: skip
    which = names(heron, "faults")
    took: dict[str, float] = {}
    for victim in ("work-0", "store-1", "source-0", "store-0"):
        when_stored(out, sum(stored(out).values()) + 200)
        took[victim] = kill_and_time(heron, "faults", which[victim])
    print("\nseconds from SIGKILL to the next tuple:", {k: round(v, 3) for k, v in took.items()})
    everything = finish(heron, out)
    assert set(stored(out)) == acked(out) == everything


@pytest.mark.heavy
def test_kill_9_of_a_stream_manager_under_load_loses_nothing(heron: Heron, out: Path) -> None:
    heron.submit(PROGRAM, "faults", "--out", out, "--containers", 2, "--message-timeout", 5,
                 "--source-pause-ms", 0.5)  # fmt: skip
    for number in (1, 2):
        when_stored(out, sum(stored(out).values()) + 300)
        pid = heron.pid("faults", f"stmgr-{number}")
        so_far, killed = sum(stored(out).values()), time.time()
        os.kill(pid, signal.SIGKILL)
        # Whatever was on its way is past now and then.
        when_stored(out, so_far + 400)
        print(f"\nstmgr-{number}: 400 tuples after {time.time() - killed:.3f} s")
    everything = finish(heron, out)
    assert set(stored(out)) == acked(out) == everything


@pytest.mark.heavy
def test_orderly_restarts_and_exceptions_lose_nothing_without_acking(heron: Heron, out: Path) -> None:
    """`heron restart` of bolts, and process() that raises in the middle of a frame: each number exactly once."""
    heron.submit(PROGRAM, "faults", "--out", out, "--mode", "ATMOST_ONCE", "--containers", 2,
                 "--source-pause-ms", 0.3, "--work-pause-ms", 0.3, "--raise-at", 2345)  # fmt: skip
    which = names(heron, "faults")
    for victim in ("work-0", "store-0", "work-1", "store-1"):
        when_stored(out, sum(stored(out).values()) + 500)
        task = which[victim].rpartition("_")[2]
        heron("restart", "local", "faults", "--task", task).ok()
    wait_for(lambda: len([*out.glob("raised.*")]) == 2, 60, "two tasks that raised")
    everything = finish(heron, out)
    assert stored(out) == Counter(everything)
    assert heron.status("faults")["discarded_tuples"] == 0
    assert "poison in the middle of a frame" in heron("exceptions", "local", "faults").ok().out


@pytest.mark.heavy
def test_after_kill_9_without_acking_every_tuple_is_accounted_for(heron: Heron, out: Path) -> None:
    """With losses: taken = consumed + discarded, and what is stored is what was consumed."""
    heron.submit(PROGRAM, "faults", "--out", out, "--mode", "ATMOST_ONCE", "--containers", 2,
                 "--source-pause-ms", 0.2)  # fmt: skip
    which = names(heron, "faults")
    # While it runs, too, up to what one look a second misses: never more than was taken.
    running = totals(heron, "faults")
    assert running.consumed_by_tasks + running.discarded <= running.taken_from_tasks
    for victim in ("store-0", "work-1"):
        when_stored(out, sum(stored(out).values()) + 500)
        kill_and_time(heron, "faults", which[victim])
    everything = finish(heron, out)
    found = when_totals(
        heron,
        "faults",
        lambda t: t.in_flight == t.queued == 0 and t.taken_from_tasks == t.consumed_by_tasks + t.discarded,
        "taken = consumed + discarded",
    )
    numbers = stored(out)
    assert all(times == 1 for times in numbers.values()), "acks off, nothing comes twice"
    # What is missing was discarded, or was with the killed worker, between its input and its output.
    assert len(everything) - len(numbers) <= found.discarded + 2 * 4096
    assert set(numbers) <= everything


@pytest.mark.heavy
def test_a_stopped_task_that_comes_back_is_a_zombie(heron: Heron, out: Path) -> None:
    """SIGSTOP, a successor takes over, SIGCONT: the old process is refused, counted, and loses nothing."""
    heron.submit(PROGRAM, "faults", "--out", out, "--message-timeout", 60, "--source-pause-ms", 1,
                 "--config-property", "heron.executor.restart_budget=1000", "--config-property", "heron.executor.stop_grace_s=1000")  # fmt: skip
    which = names(heron, "faults")
    when_stored(out, 300)
    pid = heron.pid("faults", which["store-0"])
    os.kill(pid, signal.SIGSTOP)
    try:
        # The executor's stand-in: another incarnation of the same task, with a higher epoch.
        task = which["store-0"].rpartition("_")[2]
        launch = heron.log_dir("faults").parent / "launch.json"
        successor = successor_of(heron, launch, int(task), epoch=1 << 40)
        try:
            so_far = sum(stored(out).values())
            when_stored(out, so_far + 300)
            os.kill(pid, signal.SIGCONT)
            heron.when_logged("faults", "was replaced by epoch", which["store-0"])
            wait_for(lambda: fenced(heron, "faults") >= 1, 30, "a fenced task in the metrics")
            everything = finish(heron, out)
        finally:
            successor.terminate()
            successor.wait(30)
    finally:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGCONT)
    assert set(stored(out)) == acked(out) == everything


def successor_of(heron: Heron, launch: Path, task: int, epoch: int) -> subprocess.Popen[bytes]:
    """Another process for a task, as a replaced container would start it."""
    argv = [sys.executable, "-m", "instance", "--launch", str(launch), "--container", "1"]
    return subprocess.Popen(
        [*argv, "--task", str(task), "--epoch", str(epoch)], env=heron.env, stdout=subprocess.DEVNULL
    )


def fenced(heron: Heron, name: str) -> int:
    return metric(ask_master(heron, name, control_pb2.GetMetrics()), "__stmgr_fenced_tasks")


@pytest.mark.heavy
def test_a_stream_manager_that_stops_and_goes_on_loses_nothing(heron: Heron, out: Path) -> None:
    """SIGSTOP for longer than the links' heartbeats: connections break and come back as new links."""
    heron.submit(PROGRAM, "faults", "--out", out, "--containers", 2, "--message-timeout", 5,
                 "--source-pause-ms", 0.5)  # fmt: skip
    when_stored(out, 300)
    pid = heron.pid("faults", "stmgr-2")
    os.kill(pid, signal.SIGSTOP)
    try:
        # Its peer gives the connection up, and says so.
        wait_for(lambda: metric(ask_master(heron, "faults", control_pb2.GetMetrics()), "__stmgr_lost_links") > 0, 30)
    finally:
        os.kill(pid, signal.SIGCONT)
    everything = finish(heron, out)
    assert set(stored(out)) == acked(out) == everything
    assert heron.pid("faults", "stmgr-2") == pid, "it was never restarted"
