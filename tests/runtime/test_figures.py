"""The figures by which one finds a slow task, of real processes: busy, blocked, idle, and latency end to end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from heronpy.proto import control_pb2
from tests.acceptance.test_operations import counting
from tests.support.command import Heron
from tests.support.inside import ask_master
from tests.support.waiting import wait_for

TIMES = ("__busy-time-ns", "__blocked-time-ns", "__idle-time-ns")


def seconds(heron: Heron, name: str) -> dict[str, dict[str, float]]:
    """By component, its busy, blocked and idle time."""
    reply = ask_master(heron, name, control_pb2.GetMetrics(names=TIMES))
    return {
        report.component: {sample.name: sample.value / 1e9 for sample in report.samples}
        for report in reply.reports
        if report.component
    }


def ends(heron: Heron, name: str) -> set[str]:
    """The components in which tuples end, by their latency."""
    reply = ask_master(heron, name, control_pb2.GetMetrics(names=["__end-to-end-latency"]))
    return {report.component for report in reply.reports for s in report.samples if s.count and s.sum > 0}


@pytest.mark.heavy
def test_a_slow_bolt_is_busy_its_spout_blocked_and_its_sink_idle(heron: Heron, out: Path) -> None:
    counting(heron, out, "slow", spouts=2, stores=2, pad=1000, work_pause_ms=20)
    heron.when("slow", lambda status: status["backpressure"], "backpressure")
    before = seconds(heron, "slow")

    def passed() -> dict[str, dict[str, float]] | None:
        """The part of the time since then, once enough of it has passed at each task."""
        now = seconds(heron, "slow")
        grown = {c: {name: now[c][name] - before.get(c, {}).get(name, 0.0) for name in TIMES} for c in now}
        sums = {c: sum(values.values()) for c, values in grown.items()}
        if len(sums) < 3 or min(sums.values()) < 10:
            return None
        return {c: {name: value / sums[c] for name, value in values.items()} for c, values in grown.items()}

    parts = wait_for(passed, 60, "ten seconds of figures")
    assert parts["work"]["__busy-time-ns"] > 0.9, parts
    assert parts["numbers"]["__blocked-time-ns"] > 0.7, parts
    assert parts["store"]["__idle-time-ns"] > 0.9, parts

    wait_for(lambda: ends(heron, "slow") == {"store"}, 60, "the latency at the end of the path")
    assert "from the spout to the end of the path, which is in store: median" in heron("metrics", "local", "slow").out

    # The figures of a killed process stay, and its successor's are added.
    old = seconds(heron, "slow")["work"]
    status = heron.status("slow")
    task = next(task["instance_id"] for task in status["tasks"] if task["component"] == "work")
    os.kill(heron.pid("slow", task), signal.SIGKILL)
    wait_for(
        lambda: seconds(heron, "slow")["work"]["__busy-time-ns"] > old["__busy-time-ns"] + 1, 60, "the successor's"
    )
    new = seconds(heron, "slow")["work"]
    assert all(new[name] >= old[name] for name in TIMES)


@pytest.mark.heavy
def test_latency_end_to_end_is_measured_where_checkpoints_are_taken(heron: Heron, out: Path) -> None:
    counting(heron, out, "exact", guarantee="EFFECTIVELY_ONCE", work_pause_ms=1)
    wait_for(lambda: "store" in ends(heron, "exact"), 60, "the latency at the end of the path")
    heron.kill("exact")
