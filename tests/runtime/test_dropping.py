"""A topology that drops tuples upon backpressure, real processes: no spout waits, and each tuple is seen or counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from heronpy.proto import control_pb2
from tests.support.command import USAGE, Heron, refused_before_start
from tests.support.inside import ask_master, inside, metric
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "dropping.py"
COUNT = 40_000


@pytest.mark.parametrize("policy", [pytest.param("drop_newest", marks=pytest.mark.heavy), "sample"])
def test_a_slow_bolt_holds_no_spout_and_each_tuple_is_seen_or_counted(heron: Heron, out: Path, policy: str) -> None:
    heron.submit(PROGRAM, "drops", "--out", out, "--count", COUNT, "--policy", policy)
    full = heron.when("drops", lambda s: s["dropped"]["tuples"] and s["backpressure"], "a full task")
    assert {row["component"] for row in full["backpressure"]} == {"slow"}
    assert all(row["drops"] for row in full["backpressure"])
    assert not any(beat.clamped for beat in inside(heron, "drops").stmgrs)
    wait_for(
        lambda: "discarded" in heron("events", "local", "drops", "--kind", "backpressure").ok().out, 30, "an event"
    )
    status = heron.when_state("drops", "FINISHED")
    seen = Counter(int(line) for path in out.glob("seen.*") for line in path.read_text().split())
    dropped = status["dropped"]
    assert dropped["policy"] == policy and list(dropped["tuples"]) == ["slow"]
    assert max(seen.values()) == 1 and max(seen) > COUNT // 2, "of all that came, not of the first"
    assert len(seen) + dropped["tuples"]["slow"] == COUNT and status["discarded_tuples"] == 0
    assert status["state"] == "FINISHED" and status["losses"] is None
    reply = ask_master(heron, "drops", control_pb2.GetMetrics())
    assert metric(reply, "__time_spent_back_pressure_aggr") == metric(reply, "__out-queue-full-count") == 0

    def reported() -> bool:
        found = ask_master(heron, "drops", control_pb2.GetMetrics())
        return metric(found, "__tuples_dropped_by_compid") == dropped["tuples"]["slow"]

    wait_for(reported, 30.0, "the last report of the metrics")


def test_it_is_refused_at_submit_where_no_tuple_may_be_lost(heron: Heron, out: Path) -> None:
    flags = ("x", "--out", out, "--guarantee", "ATLEAST_ONCE")
    refused_before_start(heron, USAGE, PROGRAM, "no tuple may be dropped; remove that key, or set", flags=flags)
    flags = ("x", "--out", out, "--policy", "oldest")
    refused_before_start(heron, USAGE, PROGRAM, "it must be false, true, drop_newest or sample", flags=flags)
