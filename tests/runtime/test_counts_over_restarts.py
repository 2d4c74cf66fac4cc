"""Counters are exact over restarts in order, never fall, and say when they are lower bounds, through real processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.test_states import PATIENCE_S, PROGRAM, stored, when_stored
from tests.support.command import Heron, component
from tests.support.waiting import wait_for


def counts(shown: dict[str, Any]) -> dict[str, int]:
    """What each component has counted, from `heron metrics --json`."""
    found: dict[str, int] = {}
    for process in shown["processes"]:
        for metric in process["metrics"]:
            if metric["name"] in ("__emit-count", "__execute-count", "__ack-count"):
                key = f"{process['component']} {metric['name']}"
                found[key] = found.get(key, 0) + int(metric["value"])
    return found


def metrics(heron: Heron, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = heron("metrics", "local", name, "--all", "--json").json()
    return shown


def when_replaced(heron: Heron, name: str, pids: dict[str, int]) -> None:
    heron.when(name, lambda status: all(heron.pid(name, process) != pid for process, pid in pids.items()), "new ones")


@pytest.mark.heavy
def test_a_restart_of_everything_keeps_every_count(heron: Heron, out: Path) -> None:
    """In order, so that nothing is a lower bound: what was stored is what was executed."""
    heron.submit(PROGRAM, "orderly", "--out", out)
    when_stored(out, 500)
    before = counts(metrics(heron, "orderly"))
    pids = {name: heron.pid("orderly", name) for name in ("tmaster", "stmgr-1", "container_1_numbers_1")}
    heron("restart", "local", "orderly").ok()
    when_replaced(heron, "orderly", pids)
    when_stored(out, 200)
    shown = metrics(heron, "orderly")
    after = counts(shown)
    assert all(after[key] >= value for key, value in before.items()), (before, after)
    assert not shown["resumed_s"] and not any(one["at_least"] for one in shown["processes"])
    (out / "end").touch()
    status = heron.when_state("orderly", "FINISHED")
    assert not status["totals"]["at_least"]
    assert component(status, "store")["executed"] == len(stored(out))
    wait_for(
        lambda: counts(metrics(heron, "orderly"))["store __execute-count"] == len(stored(out)),
        PATIENCE_S,
        "the metrics of what was stored",
    )
    assert "lower bound" not in heron("metrics", "local", "orderly").ok().out


@pytest.mark.parametrize(
    "killed",
    [["tmaster"], ["container_1_store_2", "tmaster"]],
    ids=["master", "task and master"],
)
@pytest.mark.heavy
def test_what_ended_before_a_new_topology_master_still_counts(heron: Heron, out: Path, killed: list[str]) -> None:
    heron.submit(PROGRAM, "kept", "--out", out)
    when_stored(out, 500)
    heron("restart", "local", "kept", "store").ok()
    when_stored(out, 200)
    before = counts(metrics(heron, "kept"))
    pids = {name: heron.pid("kept", name) for name in killed}
    for name, pid in pids.items():
        os.kill(pid, signal.SIGKILL)
        when_replaced(heron, "kept", {name: pid})
    when_stored(out, 200)
    shown = metrics(heron, "kept")
    after = counts(shown)
    assert all(after[key] >= value for key, value in before.items()), (before, after)
    assert not shown["resumed_s"]
    lacking = {one["component"] for one in shown["processes"] if one["at_least"]}
    assert lacking == ({"store"} if len(killed) > 1 else set())
    said = "the counts of store are lower bounds" in heron("metrics", "local", "kept").ok().out
    assert said == bool(lacking)


@pytest.mark.heavy
def test_nothing_that_was_shown_falls_when_all_who_had_counted_it_are_killed(heron: Heron, out: Path) -> None:
    """What an answer shows is written before it is sent."""
    heron.submit(PROGRAM, "shown", "--out", out)
    when_stored(out, 500)
    for _ in range(3):
        pids = {name: heron.pid("shown", name) for name in ("tmaster", "executor-1")}
        shown = counts(metrics(heron, "shown"))
        before = heron.status("shown")
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        when_replaced(heron, "shown", pids)
        after = heron.status("shown")
        for name in ("numbers", "store"):
            was, now = component(before, name), component(after, name)
            assert all(now[key] >= was[key] for key in ("emitted", "executed", "acked", "failed")), (was, now)
        assert after["totals"]["acked"] >= before["totals"]["acked"]
        known = counts(metrics(heron, "shown"))
        assert all(known[key] >= value for key, value in shown.items()), (shown, known)
        when_stored(out, 100)
    assert heron.status("shown")["totals"]["at_least"]
