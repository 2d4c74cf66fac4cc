"""Spouts of coroutines as real processes: all their tuples, their limits, their errors, and that a wait is no hang."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from heronpy.simulator import Simulator
from tests.runtime.programs.async_sources import async_sources
from tests.support.command import Heron, component

PROGRAM = Path(__file__).parent / "programs" / "async_sources.py"
COUNT = 5000


def counts(out: Path) -> Counter[int]:
    total: Counter[int] = Counter()
    for path in out.glob("counts.*.json"):
        total.update({int(number): count for number, count in json.loads(path.read_text()).items()})
    return total


def test_every_number_comes_through_replays_and_an_exception(heron: Heron, out: Path) -> None:
    heron.submit(PROGRAM, "a", "--out", out)
    heron.when_state("a", "FINISHED")
    found = counts(out)
    assert set(found) == set(range(COUNT))
    assert all(found[number] >= 2 for number in range(0, COUNT, 100)), "what failed was emitted again"
    assert int((out / "most").read_text()) <= 200, "max.spout.pending holds, coroutines of ack and fail included"
    shown = heron("exceptions", "local", "a").ok().out
    assert "ValueError: the source broke down" in shown and "async_sources.py" in shown and "in read" in shown
    text = heron.log_text("a", "*numbers*")
    assert text.count("run begins") == 2 and text.count("run has ended") == 2
    assert component(heron.status("a"), "numbers")["failed"] > 0


@pytest.mark.heavy
def test_at_most_once_is_paused_and_activated(heron: Heron, out: Path) -> None:
    (out / "raised").touch()
    heron.submit(PROGRAM, "a", "--out", out, "--mode", "ATMOST_ONCE", "--count", 1_000_000)
    heron("deactivate", "local", "a").ok()
    heron.when_logged("a", "deactivate called", "*numbers*")
    paused = heron.when("a", lambda s: component(s, "numbers")["emitted"] == component(s, "count")["executed"], "rest")
    emitted = component(paused, "numbers")["emitted"]
    assert component(heron.status("a"), "numbers")["emitted"] == emitted, "an emit waits while the topology is paused"
    heron("activate", "local", "a").ok()
    heron.when_logged("a", "activate called", "*numbers*")
    heron.when("a", lambda s: component(s, "numbers")["emitted"] > emitted, "more tuples")
    heron.kill("a").ok()


@pytest.mark.heavy
def test_a_coroutine_that_waits_is_not_hung_and_one_that_blocks_is(heron: Heron, out: Path) -> None:
    heron.submit(PROGRAM, "a", "--out", out, "--mode", "ATMOST_ONCE", "--blocking")
    heron.when_logged("a", "waited", "*numbers*", count=2)
    [task] = [t for t in heron.status("a")["tasks"] if t["component"] == "numbers"]
    [process] = [p for c in heron.status("a")["containers"] for p in c["processes"] if p["name"] == task["instance_id"]]
    assert (process["restarts"], process["exit_reason"]) == (1, "hung")
    assert "block_here" in heron.log_text("a", "*numbers*")


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", pytest.param("EFFECTIVELY_ONCE", marks=pytest.mark.heavy)])
def test_the_return_of_run_ends_the_input(heron: Heron, out: Path, mode: str) -> None:
    (out / "raised").touch()
    heron.submit(PROGRAM, "a", "--out", out, "--mode", mode)
    status = heron.when_state("a", "FINISHED")
    assert counts(out) == dict.fromkeys(range(COUNT), 1)
    assert component(status, "numbers")["acked"] == COUNT


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_the_simulator_runs_the_same_program(out: Path, mode: str) -> None:
    (out / "raised").touch()
    with Simulator(async_sources("a", str(out), mode)) as simulator:
        assert simulator.run().reason == "finished"
        assert len(simulator.failed("numbers")) == (COUNT // 100 if mode == "ATLEAST_ONCE" else 0)
        assert len(simulator.acked("numbers")) == COUNT
    assert counts(out) == {n: 1 + (mode == "ATLEAST_ONCE" and n % 100 == 0) for n in range(COUNT)}
    assert int((out / "most").read_text()) <= 200 or mode == "ATMOST_ONCE"
