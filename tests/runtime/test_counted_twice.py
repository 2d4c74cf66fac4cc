"""What may be counted twice is said, and nothing is said where all counts once, through real processes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from heronpy.cli import exits
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


@pytest.mark.heavy
def test_effectively_once_a_spout_that_keeps_nothing_is_named(heron: Heron, out: Path) -> None:
    """It could be rewound, but to its beginning only."""
    run = heron.start(
        "submit", "local", PROGRAM, "empty", "--spout=empty", "--out", out, "--mode", "EFFECTIVELY_ONCE", "--wait"
    )
    when_stored(out, 200)
    wait_for(
        lambda: heron("checkpoints", "list", "local", "empty", "--json").json()["checkpoints"], PATIENCE_S, "a cut"
    )
    os.kill(heron.pid("empty", "container_1_store_2"), signal.SIGKILL)
    when_again(out)
    heron.when("empty", lambda status: status["totals"]["replayed_unknown"], "the spout that began again")
    totals, _ = ending(run, out)
    assert "task 1 of numbers cannot be rewound (may be counted twice)" in totals


@pytest.mark.parametrize(
    "killed",
    [
        ["tmaster", "executor-1"],
        *(
            pytest.param(names, marks=pytest.mark.heavy)
            for names in (["executor-1"], ["stmgr-1", "container_1_numbers_1"])
        ),
    ],
)
def test_a_spout_that_began_again_is_known_though_nobody_can_say_what_it_had_emitted(
    heron: Heron, out: Path, killed: list[str]
) -> None:
    """With it dies who counted its tuples, before the topology master was told of any."""
    heron.submit(PROGRAM, "early", "--out", out)
    pids = {name: heron.pid("early", name) for name in killed}
    when_stored(out, 1)
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    when_again(out)
    shown = heron.when("early", lambda status: status["totals"]["replayed_unknown"], "the spout that began again")
    assert shown["totals"]["at_least"], "its last counts are gone with it"


@pytest.mark.heavy
def test_no_dead_letter_is_forgotten_with_those_who_had_counted_it(heron: Heron, out: Path) -> None:
    """Their number is that of the letters on disk, and losses are losses."""
    run = heron.start("submit", "local", PROGRAM, "letters", "--out", out, "--poison", 7, "--wait")
    when_stored(out, 20)
    heron.when("letters", lambda status: status["totals"]["dead_letters"], "a dead letter")
    for pid in [heron.pid("letters", name) for name in ("tmaster", "executor-1")]:
        os.kill(pid, signal.SIGKILL)
    when_again(out)
    (out / "end").touch()
    shown, complained = run.communicate(timeout=PATIENCE_S)
    count = len(heron("dead-letters", "local", "letters", "--json").json())
    assert run.returncode == exits.LOSSES, (shown, complained)
    assert f"dead letters {count}, " in shown.splitlines()[-2]
    assert shown.splitlines()[-1] == f"Topology 'letters' FINISHED WITH LOSSES: {count}; it is removed"


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


@pytest.mark.heavy
def test_an_update_of_other_components_leaves_the_spout_alone(heron: Heron, out: Path) -> None:
    run = heron.start("submit", "local", PROGRAM, "more", "--out", out, "--wait")
    when_stored(out, 200)
    heron("update", "local", "more", "--component-parallelism=store:4").ok()
    when_stored(out, 200)
    master = heron.pid("more", "tmaster")
    os.kill(master, signal.SIGKILL)
    heron.when("more", lambda status: heron.pid("more", "tmaster") != master, "another topology master")
    when_stored(out, 200)
    totals, complained = ending(run, out)
    assert ", failed 0, replayed 0, dead letters 0" in totals
    assert complained == ""
