"""A spout that says when it wants to be called is called at its own rate, and what it emits travels together."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.proto import control_pb2
from tests.sim.run import cluster_of
from tests.sim.workload import Program


class Pacer(Spout):
    """One tuple per call, and one call per pause."""

    outputs = ["n"]
    pause_s = 0.001

    def initialize(self, config: Any, context: Any) -> None:
        self.world: Any = None
        self.called_at: list[float] = []

    def next_tuple(self) -> None:
        if self.world is not None:
            self.called_at.append(self.world.now)
        self.emit([1])
        self.wait(self.pause_s)


class Sink(Bolt):
    def process(self, tup: Any) -> None: ...


def paced(pause_s: float, seconds: float = 2.0) -> tuple[list[float], float, float]:
    """When it was called, as it saw it; calls per second; frames sent per second."""
    made = TopologyBuilder("sim")
    count = made.add_spout("count", Pacer, par=1)
    made.add_bolt("sink", Sink, par=1, inputs={count: Grouping.SHUFFLE})
    with cluster_of(0, Program(made, None)) as (cluster, _):
        cluster.until(control_pb2.LIFE_RUNNING)
        [process] = cluster.tasks("count")
        task = process.program
        task.user.object.pause_s, task.user.object.world = pause_s, cluster.world
        calls = task.user.object.called_at
        begun, frames = cluster.world.now, task.link.sent_frames
        cluster.run(lambda: cluster.world.now >= begun + seconds)
        took = cluster.world.now - begun
        return calls, len(calls) / took, (task.link.sent_frames - frames) / took


@pytest.mark.parametrize("pause_s", [0.0001, 0.0002, 0.0005])
def test_short_waits_keep_their_rate_and_share_their_frames(pause_s: float) -> None:
    calls, rate, frames = paced(pause_s)
    assert rate == pytest.approx(1 / pause_s, rel=0.03)
    assert frames < 1_100
    wakes = sum(1 for before, after in itertools.pairwise(calls) if after - before > pause_s / 2)
    assert wakes < len(calls) * 0.6, "each call had a wake-up of its own"


def test_long_waits_are_exact() -> None:
    calls, rate, frames = paced(0.01)
    assert rate == pytest.approx(100, rel=0.05) and frames == pytest.approx(rate, rel=0.05)
    assert all(0.01 <= after - before < 0.011 for before, after in itertools.pairwise(calls))
