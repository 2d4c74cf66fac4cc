"""The figures that every page and verb shares: right by component and edge, after an update and another master too."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heronpy.common.errors import DeadlineError, InvalidRpcError, RetryableRpcError
from heronpy.net.answers import read
from heronpy.net.rpc import RpcClient
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import open_state, paths
from heronpy.views.load import LoadAnswer
from heronpy.views.past import Timeline, series_name
from tests.support.command import Heron
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

#: 200 tuples per second; each goes to `double` and `keep`, and `double` makes two of it.
PROGRAM = """
from heronpy import Bolt, Grouping, Spout, TopologyBuilder

class Numbers(Spout):
    outputs = ["number"]
    def initialize(self, config, context):
        self.number = 0
    def next_tuple(self):
        self.number += 1
        self.emit([self.number])
        self.wait(0.005)

class Double(Bolt):
    outputs = ["number"]
    def process(self, tup):
        self.emit(list(tup.values))
        self.emit(list(tup.values))

class Keep(Bolt):
    def process(self, tup):
        pass

builder = TopologyBuilder("Figures")
numbers = builder.add_spout("numbers", Numbers, par=1)
double = builder.add_bolt("double", Double, par=2, inputs={numbers: Grouping.SHUFFLE})
builder.add_bolt("keep", Keep, par=1, inputs={numbers: Grouping.SHUFFLE, double: Grouping.SHUFFLE})
builder.build_and_submit()
"""


class Master:
    """Requests to the topology master, whichever it is now."""

    def __init__(self, heron: Heron) -> None:
        self.state = open_state("local", str(heron.home / "state" / "local"))

    def location(self) -> plan_pb2.TmasterLocation | None:
        found = self.state.get(paths.tmaster("Figures"))
        return plan_pb2.TmasterLocation.FromString(found[0]) if found is not None else None

    def ask(self, body: Any) -> Any:
        found = wait_for(self.location, 30.0, "a topology master")
        with RpcClient(found.endpoint) as client:
            return client.call(body, 10.0)

    def load(self, check: Callable[[LoadAnswer], bool], what: str) -> LoadAnswer:
        def asked() -> LoadAnswer | None:
            try:
                reply = read(self.ask(control_pb2.GetLoad()), LoadAnswer)
            except (DeadlineError, RetryableRpcError):
                return None  # it is being replaced
            return reply if check(reply) else None

        return wait_for(asked, 60.0, what)


def flows(reply: LoadAnswer) -> bool:
    """Whether a whole window was measured, in which tuples were processed everywhere."""
    return (
        (reply.load.window_s or 0.0) >= 5
        and all((edge.tuples_per_s or 0.0) > 0 for edge in reply.load.edges)
        and reply.load.state == "RUNNING"
    )


def adds_up(doubles: int) -> Callable[[LoadAnswer], bool]:
    """Whether its figures fit each other: on a busy machine some windows hold a task's pause."""

    def check(reply: LoadAnswer) -> bool:
        try:
            check_sums(reply, doubles)
        except AssertionError:
            return False
        return True

    return check


def check_sums(reply: LoadAnswer, doubles: int) -> None:
    numbers, double, keep = rows = reply.load.components
    assert [one.name for one in rows] == ["numbers", "double", "keep"]
    assert [one.tasks for one in rows] == [1, doubles, 1] == [one.up for one in rows]
    assert [one.kind for one in rows] == ["spout", "bolt", "bolt"]
    assert numbers.executed_per_s is None, "a spout executes nothing"
    edges: dict[str, Any] = {edge.id: edge.tuples_per_s for edge in reply.load.edges}
    to_double, to_keep, doubled = "numbers/default>double", "numbers/default>keep", "double/default>keep"
    assert edges.keys() == {to_double, to_keep, doubled}
    assert double.executed_per_s == pytest.approx(edges[to_double], rel=1e-3)
    assert keep.executed_per_s == pytest.approx(edges[to_keep] + edges[doubled], rel=1e-3)
    # Tasks report up to a second apart, so rates of different tasks differ by what a second more or less makes.
    near = {"rel": 0.35}
    assert edges[to_double] == pytest.approx(edges[to_keep], **near)
    both = edges[to_double] + edges[to_keep]
    assert both == pytest.approx(numbers.emitted_per_s, **near), "one per receiving component"
    assert double.emitted_per_s == pytest.approx(2 * (double.executed_per_s or 0.0), **near)
    assert edges[doubled] == pytest.approx(double.emitted_per_s, **near)
    assert (keep.latency_p99_s or 0) > 0 and (double.memory_bytes_max or 0) > 1 << 20 and (double.cpu or 0) > 0
    assert numbers.queue_bound_bytes is None and (keep.queue_bound_bytes or 0) > 0


@pytest.mark.heavy
def test_figures_by_component_and_edge(heron: Heron, tmp_path: Path) -> None:
    program = tmp_path / "figures.py"
    program.write_text(PROGRAM)
    heron("submit", "local", program, "Figures").ok()
    master = Master(heron)
    reply = master.load(lambda one: flows(one) and adds_up(2)(one), "a window of figures that add up")
    plan, version = plan_pb2.PhysicalPlan.FromString(reply.plan or b""), reply.load.plan_version
    assert plan.version == version and len(plan.instances) == 4
    again = master.ask(control_pb2.GetLoad(plan_version=version))
    assert read(again, LoadAnswer).plan is None, "a client that has the plan does not get it again"
    assert again.ByteSize() < 6000

    heron("update", "local", "Figures", "--component-parallelism", "double:3").ok()
    newer = master.load(lambda one: flows(one) and adds_up(3)(one), "the figures after the update")
    assert newer.load.plan_version > version and newer.last_event > reply.last_event
    assert read(master.ask(control_pb2.GetLoad(plan_version=version)), LoadAnswer).plan is not None

    known = wait_for(lambda: _minutes(master, 1), 130.0, "the first minute to be over")
    assert known["double", "tasks"][-1] in (2.0, 3.0) and known["", "plan_version"][-1] >= 1
    assert sum(known["numbers", "emitted"]) > 0 and ("numbers", "executed") not in known
    wait_for(lambda: master.state.get(paths.minutes("Figures")), 30.0, "the minute to be kept for a successor")

    before = master.location()
    assert before is not None
    os.kill(before.pid, signal.SIGKILL)
    wait_for(lambda: (found := master.location()) is not None and found.pid != before.pid, 60.0, "another master")
    master.load(lambda one: flows(one) and adds_up(3)(one), "the figures of the next master")
    kept = _minutes(master, 1)
    assert kept is not None and kept["double", "executed"][0] == known["double", "executed"][0]
    since = read(master.ask(control_pb2.GetLoad()), LoadAnswer).load.since
    assert since is not None and since > newer.load.at, "it says from when on it has figures"
    with pytest.raises(InvalidRpcError, match="there is no series 'speed'"):
        master.ask(control_pb2.GetTimeline(names=["speed"]))


def _minutes(master: Master, most: int) -> dict[tuple[str, str], list[float]] | None:
    """The known values of all series, once there are so many minutes."""
    reply = read(master.ask(control_pb2.GetTimeline()), Timeline)
    if len(reply.times) < most:
        return None
    assert reply.kept_from == reply.times[0]
    return {
        (series.component, series_name(series.metric)): [value for value in series.values if value is not None]
        for series in reply.series
    }
