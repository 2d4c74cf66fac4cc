"""When a spout is called: as it says, or as it is polled; and what it emits travels together."""

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


class Timed(Spout):
    """Notes when it is called."""

    outputs = ["n"]

    def initialize(self, config: Any, context: Any) -> None:
        self.world: Any = None
        self.called_at: list[float] = []

    def next_tuple(self) -> None:
        if self.world is not None:
            self.called_at.append(self.world.now)
            self.work()

    def work(self) -> None:
        raise NotImplementedError


class Pacer(Timed):
    """One tuple per call, and one call per pause."""

    pause_s = 0.001

    def work(self) -> None:
        self.emit([1])
        self.wait(self.pause_s)


class Clock(Timed):
    """It is polled: one tuple per call, when one is due."""

    rate = 1000.0

    def initialize(self, config: Any, context: Any) -> None:
        super().initialize(config, context)
        self.late: list[float] = []

    def work(self) -> None:
        late = self.world.now - self.called_at[0] - len(self.late) / self.rate
        if late >= 0:
            self.late.append(late)
            self.emit([1])


class Filter(Timed):
    """It reads a line per call; one line of so many is worth a tuple."""

    lines = 20

    def work(self) -> None:
        if len(self.called_at) % self.lines == 0:
            self.emit([1])


class Sink(Bolt):
    def process(self, tup: Any) -> None: ...


def paced(kind: type[Timed], seconds: float = 2.0, **fields: float) -> tuple[Any, float, float]:
    """The spout; calls per second; frames sent per second."""
    made = TopologyBuilder("sim")
    count = made.add_spout("count", kind, par=1)
    made.add_bolt("sink", Sink, par=1, inputs={count: Grouping.SHUFFLE})
    with cluster_of(0, Program(made, None)) as (cluster, _):
        cluster.until(control_pb2.LIFE_RUNNING)
        [process] = cluster.tasks("count")
        task = process.program
        spout = task.user.object
        vars(spout).update(fields, world=cluster.world)
        begun, frames = cluster.world.now, task.link.sent_frames
        cluster.run(lambda: cluster.world.now >= begun + seconds)
        took = cluster.world.now - begun
        return spout, len(spout.called_at) / took, (task.link.sent_frames - frames) / took


@pytest.mark.parametrize("pause_s", [0.0001, 0.0002, 0.0005])
def test_short_waits_keep_their_rate_and_share_their_frames(pause_s: float) -> None:
    spout, rate, frames = paced(Pacer, pause_s=pause_s)
    calls = spout.called_at
    assert rate == pytest.approx(1 / pause_s, rel=0.03)
    assert frames < 1_100
    wakes = sum(1 for before, after in itertools.pairwise(calls) if after - before > pause_s / 2)
    assert wakes < len(calls) * 0.6, "each call had a wake-up of its own"


def test_long_waits_are_exact() -> None:
    spout, rate, frames = paced(Pacer, pause_s=0.01)
    calls = spout.called_at
    assert rate == pytest.approx(100, rel=0.05) and frames == pytest.approx(rate, rel=0.05)
    assert all(0.01 <= after - before < 0.011 for before, after in itertools.pairwise(calls))


def test_a_polled_spout_with_a_tuple_each_millisecond_wakes_up_for_several() -> None:
    spout, rate, frames = paced(Clock, rate=1000.0)
    assert len(spout.late) == pytest.approx(2000, rel=0.02)
    assert frames < 550, "each tuple had a frame of its own"
    assert rate < 1_000 + 1.2 * frames, "more than about one call in a turn found nothing"
    assert max(spout.late) < 0.0025


@pytest.mark.parametrize("rate", [5000.0, 20_000.0])
def test_a_polled_spout_with_many_tuples_is_polled_each_millisecond(rate: float) -> None:
    spout, _, frames = paced(Clock, rate=rate)
    assert 900 < frames < 1_100 and max(spout.late) < 0.0012


@pytest.mark.parametrize("lines", [10, 20, 50])
def test_a_polled_spout_that_reads_more_than_it_emits_keeps_its_rate(lines: int) -> None:
    """It makes eight calls each millisecond, whatever they find."""
    _, rate, _ = paced(Filter, seconds=1.0, lines=lines)
    assert rate > 7_500
