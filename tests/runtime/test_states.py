"""States that are true and totals that do not fall, through real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from heronpy.cli import exits
from tests.support.command import Heron, component
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "states.py"
PATIENCE_S = 60.0


def stored(out: Path) -> list[int]:
    file = out / "stored"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def when_stored(out: Path, more: int) -> None:
    wanted = len(stored(out)) + more
    wait_for(lambda: len(stored(out)) >= wanted, PATIENCE_S, f"{more} more numbers stored")


def let_end(run: subprocess.Popen[str], out: Path, code: int) -> tuple[str, str, str]:
    """Let the topology of a waiting submit end: the line of its totals, the last line, and the standard error."""
    when_stored(out, 100)
    (out / "end").touch()
    shown, complained = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == code, (shown, complained)
    totals, last = shown.splitlines()[-2:]
    return totals, last, complained


@pytest.mark.heavy
def test_a_sink_whose_dependency_was_away_comes_back_by_itself(heron: Heron, out: Path) -> None:
    """Each process raises at once, far more often than other reasons may; nothing is given up or lost."""
    heron.submit(
        PROGRAM, "away", "--out", out, "--config-property", "heron.executor.restart_budget=2",
        "--config-property", "heron.executor.restart_backoff_max_s=0.5",
    )  # fmt: skip
    when_stored(out, 100)
    (out / "away").touch()
    degraded = heron.when(
        "away",
        lambda status: status["lifecycle"] == "DEGRADED" and status["cause"].startswith("2 of 2 tasks of store are down, restart "),
        "both tasks of store down",
    )  # fmt: skip
    assert "restarts stop after 10 min: ConnectionRefusedError: the database is away" in degraded["cause"]
    heron.when_logged("away", r"container_1_store_\d ended .*startup_failure.*; restart in 0.5 s", "executor-1", 6)
    before = heron.status("away")
    assert before["lifecycle"] == "DEGRADED", before["cause"]
    (out / "away").unlink()
    heron.when_state("away", "RUNNING")
    (out / "end").touch()
    after = heron.when_state("away", "FINISHED")
    count = max(stored(out))
    assert set(stored(out)) == set(range(1, count + 1))
    for row in ("numbers", "store"):
        for what in ("emitted", "executed", "acked"):
            assert component(after, row)[what] >= component(before, row)[what] >= 0
    # What a process counted after its last report goes with it, at most a second of each of its ends.
    assert component(after, "store")["executed"] > component(before, "store")["executed"]
    totals = after["totals"]
    assert totals["acked"] == count and totals["failed"] >= 1 and totals["replayed"] == totals["failed"]
    assert (totals["lost"], totals["lost_estimated"]) == (0, False)


@pytest.mark.heavy
def test_an_outage_stays_one_for_the_successors_of_executor_and_topology_master(heron: Heron, out: Path) -> None:
    """A new executor or topology master knows that the tasks have run before; no number of restarts falls."""
    heron.submit(PROGRAM, "away", "--out", out, "--config-property", "heron.executor.restart_backoff_max_s=0.5")
    when_stored(out, 100)
    (out / "away").touch()
    seen: set[str] = set()
    restarts: dict[str, int] = {}

    def down(status: dict[str, Any]) -> bool:
        seen.add(status["lifecycle"])
        for container in status["containers"]:
            for process in container["processes"]:
                assert process["restarts"] >= restarts.get(process["name"], 0), process
                restarts[process["name"]] = process["restarts"]
        return bool(re.match(r"2 of 2 tasks of store are down, restart .*the database is away", status["cause"]))

    heron.when("away", down, "both tasks of store down")
    for victim in ("executor-1", "tmaster"):
        before, pid = dict(restarts), heron.pid("away", victim)
        os.kill(pid, signal.SIGKILL)
        heron.when(
            "away",
            lambda status: down(status) and restarts["container_1_store_2"] > before["container_1_store_2"] + 1,  # noqa: B023
            f"the outage after {victim} was killed",
        )
        assert heron.pid("away", victim) != pid
    assert seen <= {"RUNNING", "DEGRADED"}, seen
    (out / "away").unlink()
    heron.when_state("away", "RUNNING")
    (out / "end").touch()
    heron.when_state("away", "FINISHED")
    assert set(stored(out)) == set(range(1, max(stored(out)) + 1))


@pytest.mark.heavy
def test_restart_of_a_component_is_done_when_its_tasks_are_back(heron: Heron, out: Path) -> None:
    heron.submit(PROGRAM, "again", "--out", out, "--guarantee", "ATMOST_ONCE")
    when_stored(out, 50)
    before = {task["instance_id"]: task["pid"] for task in heron.status("again")["tasks"]}
    told = heron("restart", "local", "again", "store").ok().out
    assert told == "Successfully restarted topology 'again' (component store: 2 tasks back)\n"
    after = {task["instance_id"]: task["pid"] for task in heron.status("again")["tasks"]}
    assert {name for name in before if before[name] != after[name]} == {"container_1_store_2", "container_1_store_3"}
    (out / "end").touch()
    ended = heron.when_state("again", "FINISHED")
    count = len(stored(out))
    assert sorted(stored(out)) == list(range(1, count + 1)), "what was under way waited for them"
    assert component(ended, "store")["executed"] == count
    assert ended["totals"] == {
        "acked": count, "failed": 0, "not_resent": 0, "replayed": 0, "dead_letters": 0, "lost": 0, "lost_estimated": False,
            "lost_unknown": False, "letters_at_least": False,
        "restores": 0, "at_least": False, "dead_letters_estimated": False, "replayed_unknown": False, "spouts_begun_again": 0, "begun_again": [],
    }  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_a_restart_of_containers_loses_nothing(heron: Heron, out: Path, mode: str) -> None:
    """Emitted and stored are compared: what waited in the stream manager was passed on before it ended."""
    heron.submit(PROGRAM, "emptied", "--out", out, "--guarantee", mode)
    when_stored(out, 100)
    for target in (("1",), ()):
        heron("restart", "local", "emptied", *target).ok()
        when_stored(out, 100)
    (out / "end").touch()
    ended = heron.when_state("emptied", "FINISHED")
    numbers = stored(out)
    assert set(numbers) == set(range(1, max(numbers) + 1)), "its spout begins again with 1 each time"
    assert component(ended, "numbers")["emitted"] == len(numbers) == component(ended, "store")["executed"]
    assert ended["losses"] is None and not ended["totals"]["lost_estimated"] and ended["state"] == "FINISHED"


def test_wait_fails_when_tuples_are_missing(heron: Heron, out: Path) -> None:
    """At most once the tuples in a killed task are lost, and their number may be unknown."""
    run = heron.start("submit", "local", PROGRAM, "lossy", "--out", out, "--guarantee", "ATMOST_ONCE", "--wait")
    when_stored(out, 100)
    os.kill(heron.pid("lossy", "container_1_store_2"), signal.SIGKILL)
    totals, last, complained = let_end(run, out, exits.LOSSES)
    assert re.fullmatch(
        "  tuples: acked [0-9,]+, failed 0, replayed 0, dead letters 0, lost (about [1-9][0-9,]*|an unknown number)",
        totals,
    )
    assert last.startswith("Topology 'lossy' FINISHED WITH LOSSES: a")  # about n, or an unknown number
    sure = "about" in totals
    gave_up, so = ("abandoned", "are not") if sure else ("may have abandoned", "may not be")
    assert complained.startswith(f"error: topology 'lossy' {gave_up} tuples (0 dead letters, a"), complained
    assert f"its results {so} complete" in complained


@pytest.mark.heavy
@pytest.mark.parametrize("killed", [True, False])
def test_a_spout_that_begins_again_leaves_no_bound_of_what_is_counted_twice(
    heron: Heron, out: Path, killed: bool
) -> None:
    """Its new process calls `initialize`, after an orderly restart too, and emits all numbers from the first one."""
    mode = "ATLEAST_ONCE" if killed else "ATMOST_ONCE"
    run = heron.start("submit", "local", PROGRAM, "twice", "--out", out, "--guarantee", mode, "--wait")
    when_stored(out, 100)
    if killed:
        os.kill(heron.pid("twice", "container_1_numbers_1"), signal.SIGKILL)
    else:
        heron("restart", "local", "twice", "numbers").ok()
    wait_for(lambda: stored(out).count(1) > 1, PATIENCE_S, "the first number stored again")
    totals, last, complained = let_end(run, out, 0)
    replayed = "replayed an unknown number:" if killed else "replayed 0, but"
    assert f"{replayed} task 1 of numbers began again (may be counted twice)" in totals
    assert last == "Topology 'twice' has finished and is removed"
    assert complained.startswith("warning: task 1 of numbers began again, so an unknown number of tuples")


@pytest.mark.heavy
def test_no_total_falls_when_a_task_and_the_topology_master_die_together(heron: Heron, out: Path) -> None:
    """The master stands still while the spout is replaced, and its successor knows old counts of the first process."""
    heron.submit(PROGRAM, "heir", "--out", out)
    when_stored(out, 1000)
    before = heron.when(
        "heir", lambda status: component(status, "numbers")["emitted"] >= 900, "the count of 900 numbers"
    )
    master, spout = heron.pid("heir", "tmaster"), heron.pid("heir", "container_1_numbers_1")
    os.kill(master, signal.SIGSTOP)
    os.kill(spout, signal.SIGKILL)
    wait_for(lambda: stored(out).count(1) > 1, PATIENCE_S, "the first number of the spout's new process")
    os.kill(master, signal.SIGKILL)
    after = heron.when(
        "heir", lambda status: status["lifecycle"] == "RUNNING" and status["totals"]["replayed_unknown"], "a master"
    )
    assert component(after, "numbers")["emitted"] >= component(before, "numbers")["emitted"]
    assert after["totals"]["acked"] >= before["totals"]["acked"]


@pytest.mark.heavy
def test_a_dead_letter_is_a_loss(heron: Heron, out: Path) -> None:
    """At most once a tuple that raised is given up at once: exactly one is missing, and nothing died."""
    run = heron.start(
        "submit", "local", PROGRAM, "letter", "--out", out, "--guarantee", "ATMOST_ONCE", "--poison", 50, "--wait"
    )
    totals, last, complained = let_end(run, out, exits.LOSSES)
    assert totals.endswith("failed 0, replayed 0, dead letters 1, lost 0")
    assert last == "Topology 'letter' FINISHED WITH LOSSES: 1; it is removed"
    assert "'heron dead-letters local letter' shows the dead letters" in complained
    count = max(stored(out))
    assert sorted(stored(out)) == [number for number in range(1, count + 1) if number != 50]


@pytest.mark.parametrize("deaf", [pytest.param(False, marks=pytest.mark.heavy), True])
def test_what_fails_is_sent_again_or_is_a_loss(heron: Heron, out: Path, deaf: bool) -> None:
    """Without a fail() of its own a spout sends nothing again: its failed tuples were "replayed" before."""
    run = heron.start(
        "submit", "local", PROGRAM, "told", "--out", out, "--refuse", 7, *["--spout=deaf"] * deaf, "--wait"
    )
    totals, last, complained = let_end(run, out, exits.LOSSES if deaf else 0)
    count = max(stored(out))
    if deaf:
        assert f"acked {count - 1:,}, failed 1 (1 not sent again), replayed 0, dead letters 0, lost 0" in totals
        assert last == "Topology 'told' FINISHED WITH LOSSES: 1; it is removed"
        assert "(0 dead letters, 0 lost, 1 failed and not sent again)" in complained
        assert sorted(stored(out)) == [number for number in range(1, count + 1) if number != 7]
    else:
        assert complained == ""
        # Each of the two tasks refuses it once, if it comes there.
        told = rf"  tuples: acked {count:,}, failed ([12]), replayed up to \1 \(may be counted twice\), dead letters 0, lost 0"
        assert re.fullmatch(told, totals), totals
        assert sorted(stored(out)) == list(range(1, count + 1))


def test_wait_ends_with_what_became_of_all_tuples(heron: Heron, out: Path) -> None:
    (out / "end").touch()
    done = heron("submit", "local", PROGRAM, "whole", "--out", out, "--wait").ok()
    assert done.out.splitlines()[-2:] == [
        "  tuples: acked 0, failed 0, replayed 0, dead letters 0, lost 0",
        "Topology 'whole' has finished and is removed",
    ]
