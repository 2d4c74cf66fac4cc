"""What may be counted twice is said, and nothing is said where all counts once, through real processes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.runtime.test_states import PATIENCE_S, PROGRAM, stored, when_stored
from tests.support.command import Heron, component
from tests.support.waiting import wait_for


def when_again(out: Path, number: int = 1) -> None:
    wait_for(lambda: stored(out).count(number) > 1, PATIENCE_S, f"{number} stored again")


def ending(run: subprocess.Popen[str], out: Path) -> tuple[str, str]:
    """The line with the totals, and what was said on stderr."""
    (out / "end").touch()
    shown, complained = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, (shown, complained)
    return shown.splitlines()[-2], complained


@pytest.mark.heavy
def test_a_restart_of_everything_lets_no_total_fall_and_says_that_the_spout_began_again(
    heron: Heron, out: Path
) -> None:
    """The topology master is one of the processes: it ends with the counts of a second before."""
    run = heron.start("submit", "local", PROGRAM, "all", "--out", out, "--wait")
    when_stored(out, 1000)
    before = heron.when("all", lambda status: status["totals"]["acked"] >= 1000, "1000 acked")
    master = heron.pid("all", "tmaster")
    heron("restart", "local", "all").ok()
    when_again(out)
    after = heron.when("all", lambda status: heron.pid("all", "tmaster") != master, "another topology master")
    assert after["totals"]["acked"] >= before["totals"]["acked"]
    assert component(after, "numbers")["emitted"] >= component(before, "numbers")["emitted"]
    assert after["totals"]["replayed_unknown"] and after["totals"]["begun_again"] == ["task 1 of numbers"]
    totals, complained = ending(run, out)
    assert "replayed an unknown number: task 1 of numbers began again (may be counted twice)" in totals
    assert complained.startswith("warning: task 1 of numbers began again, so an unknown number of tuples")


def test_a_spout_that_began_again_is_known_though_nobody_can_say_what_it_had_emitted(heron: Heron, out: Path) -> None:
    """With it dies who counted its tuples, before the topology master was told of any."""
    heron.submit(PROGRAM, "early", "--out", out)
    pids = {name: heron.pid("early", name) for name in ("tmaster", "executor-1")}
    when_stored(out, 1)
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    when_again(out)
    shown = heron.when("early", lambda status: status["totals"]["replayed_unknown"], "the spout that began again")
    assert shown["totals"]["at_least"], "its last counts are gone with it"


@pytest.mark.heavy
def test_effectively_once_a_spout_that_cannot_be_rewound_is_named(heron: Heron, out: Path) -> None:
    run = heron.start("submit", "local", PROGRAM, "fixed", "--out", out, "--mode", "EFFECTIVELY_ONCE", "--wait")
    when_stored(out, 200)
    os.kill(heron.pid("fixed", "container_1_store_2"), signal.SIGKILL)
    when_again(out)
    shown = heron.when("fixed", lambda status: status["totals"]["replayed_unknown"], "the spout that began again")
    assert shown["totals"]["restores"] == 1
    totals, complained = ending(run, out)
    told = "restored once, replayed an unknown number: task 1 of numbers cannot be rewound (may be counted twice)"
    assert told in totals
    assert "warning: task 1 of numbers cannot be rewound, so an unknown number of tuples" in complained


@pytest.mark.heavy
def test_effectively_once_a_spout_that_is_rewound_raises_no_alarm(heron: Heron, out: Path) -> None:
    """After a kill, an update that replaces all tasks, and a restart of everything with the topology master."""
    run = heron.start(
        "submit", "local", PROGRAM, "kept", "--spout=kept", "--out", out, "--mode", "EFFECTIVELY_ONCE", "--wait"
    )
    when_stored(out, 200)
    os.kill(heron.pid("kept", "container_1_store_2"), signal.SIGKILL)
    restored = heron.when("kept", lambda status: status["totals"]["restores"], "a restore")["totals"]["restores"]
    when_stored(out, 200)
    heron("update", "local", "kept", "--component-parallelism=store:3").ok()
    shown = heron.when("kept", lambda status: status["totals"]["restores"] > restored, "the rewind of the update")
    assert not shown["totals"]["replayed_unknown"]
    when_stored(out, 200)
    heron("restart", "local", "kept").ok()
    when_stored(out, 200)
    totals, complained = ending(run, out)
    assert "times (what was replayed counts once), dead letters 0" in totals, totals
    assert "began again" not in complained and "rewound" not in complained
