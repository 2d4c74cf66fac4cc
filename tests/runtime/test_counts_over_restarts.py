"""No counter that was shown falls, whoever is killed, through real processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.test_states import PROGRAM, when_stored
from tests.support.command import Heron, component


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
