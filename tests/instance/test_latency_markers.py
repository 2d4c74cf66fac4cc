"""Latency end to end: marks travel with the tuples, and where their path ends their age is measured."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.common.setting_types import InstanceSettings
from heronpy.plan.grouping import Fields
from heronpy.proto import control_pb2
from heronpy.task.emitter import Emitter
from heronpy.task.outlets import OutStream
from heronpy.wire.frames import Frame
from instance.tracing import LatencyMarkers
from tests.sim.kernel import spend
from tests.sim.run import cluster_of
from tests.sim.workload import Program

ORIGIN = 1_700_000_000_000_000_000


class World:
    """An emitter that sends by a field to tasks 4 and 5, and its marks."""

    def __init__(self, per_s: float = 5.0) -> None:
        self.sent: list[Frame] = []
        self.stream = OutStream("default", 0, ["n"], False)
        self.emitter = Emitter("word", 3, [self.stream], InstanceSettings(), self._send, bits=lambda: 1 << 63)
        self.emitter.route({"default": [Fields([0], [4, 5])]})
        self.marks = LatencyMarkers(self.emitter, per_s, lambda: 1 << 63)

    def _send(self, dest: int, data: bytes, tuples: int) -> None:
        self.sent.append(Frame.FromString(data))

    def emit(self, *numbers: int) -> None:
        for number in numbers:
            self.emitter.push(self.stream, [number], None)

    def fill(self, *numbers: int) -> None:
        """Emit these again and again, until a batch is full."""
        while not self.sent:
            self.emit(*numbers)

    def origins(self) -> dict[int, int]:
        """What has been sent since the last look: the mark of each destination."""
        found = {frame.dest_task: frame.origin_ns for frame in self.sent}
        self.sent.clear()
        return found

    def key_of(self, task: int) -> int:
        """A value that goes to this task."""
        return next(n for n in range(100) if self.stream.choosers[0].target([n]) == task)


def test_a_spout_marks_what_it_sends_until_it_has_and_then_not_before_it_is_due_again() -> None:
    world = World()
    world.marks.open(10.0, ORIGIN)
    world.emit(*range(20))
    world.emitter.flush()
    assert world.origins() == {4: ORIGIN, 5: ORIGIN}
    world.marks.open(10.001, ORIGIN + 1)
    assert 10.1 <= world.marks.due <= 10.3
    world.emit(*range(20))
    world.emitter.flush()
    assert world.origins() == {4: 0, 5: 0}


def test_a_spout_does_not_mark_what_was_emitted_before() -> None:
    world = World()
    world.emit(1)
    world.marks.open(10.0, ORIGIN)
    world.emitter.flush()
    assert set(world.origins().values()) == {0}


def test_a_spout_that_always_has_tuples_marks_what_comes_after_those_that_wait() -> None:
    world = World()
    four, five = world.key_of(4), world.key_of(5)
    world.emit(four, five)
    world.marks.open(10.0, ORIGIN)
    world.fill(four, five)
    assert world.origins() == {4: 0, 5: 0}, "they begin with what came before"
    world.emit(four)
    world.marks.open(10.001, ORIGIN + 1)
    world.fill(four, five)
    assert world.origins()[4] == ORIGIN
    world.marks.open(10.002, ORIGIN + 2)
    assert world.marks.due > 10.1


def test_an_outlet_that_stays_empty_does_not_keep_an_old_mark() -> None:
    world = World()
    four, five = world.key_of(4), world.key_of(5)
    world.emit(four, five)
    world.marks.open(10.0, ORIGIN)
    world.emitter.flush()
    world.origins()
    world.marks.open(19.0, ORIGIN + 9)
    world.emit(four)
    world.emitter.flush()
    assert world.origins() == {4: ORIGIN + 9}
    world.marks.open(19.001, ORIGIN + 10)
    world.emit(four, five)
    world.emitter.flush()
    assert world.origins() == {4: 0, 5: 0}


def test_a_spout_without_tuples_does_not_make_them_old() -> None:
    world = World()
    for turn in range(100):
        world.marks.open(10.0 + turn, ORIGIN + turn)
    world.emit(1)
    world.emitter.flush()
    assert set(world.origins().values()) == {ORIGIN + 99}


def test_only_the_outlets_that_grew_get_the_mark() -> None:
    world = World()
    four, five = world.key_of(4), world.key_of(5)
    world.emit(five)
    world.marks.begin(ORIGIN, 10.0)
    world.emit(four)
    assert not world.marks.end(10.0)
    world.emit(four, five)
    world.emitter.flush()
    assert world.origins() == {4: ORIGIN, 5: 0}
    world.emit(four)
    world.emitter.flush()
    assert world.origins() == {4: 0}


def test_what_leaves_while_a_marked_tuple_is_processed_carries_the_mark() -> None:
    world = World()
    world.marks.begin(ORIGIN, 10.0)
    world.emit(*([world.key_of(4)] * 2000))
    assert not world.marks.end(10.0) and set(world.origins().values()) == {ORIGIN}


def test_a_path_ends_where_nothing_is_emitted() -> None:
    world = World()
    world.emit(1)
    world.marks.begin(ORIGIN, 10.0)
    assert world.marks.end(10.0)


def test_marks_do_not_multiply() -> None:
    """A task that gets many marks passes on no more than its rate, and takes no path for ended because of that."""
    world = World(per_s=5.0)
    marked = 0
    for turn in range(1000):
        world.marks.begin(ORIGIN + turn, turn / 100)
        world.emit(*range(20))
        assert not world.marks.end(turn / 100)
        world.emitter.flush()
        marked += any(world.origins().values())
    assert 40 <= marked <= 60  # ten seconds


def test_a_task_whose_marks_are_off_passes_none_on() -> None:
    world = World(per_s=0)
    world.marks.begin(ORIGIN, 10.0)
    world.emit(1)
    assert not world.marks.end(10.0)
    world.emitter.flush()
    assert set(world.origins().values()) == {0}
    assert not world.marks.join(ORIGIN, 10.0)


def test_beside_others_the_oldest_marked_tuple_in_progress_counts() -> None:
    world = World(per_s=1000.0)
    assert world.marks.join(ORIGIN + 5, 10.0)
    assert world.marks.join(ORIGIN, 11.0)
    world.emit(1)
    world.emitter.flush()
    assert set(world.origins().values()) == {ORIGIN}
    world.marks.part(ORIGIN)
    world.emit(1)
    world.marks.part(ORIGIN + 5)
    world.emitter.flush()
    assert set(world.origins().values()) == {ORIGIN + 5}
    world.emit(1)
    world.emitter.flush()
    assert set(world.origins().values()) == {0}


# ---- tasks, in virtual time ---------------------------------------------------------------------


class Source(Spout):
    """A tuple now and then."""

    outputs = ["n"]
    number = 0

    def next_tuple(self) -> None:
        self.number += 1
        self.emit([self.number], tup_id=self.number)
        self.wait(0.05)


class Work(Bolt):
    """Takes 0.01 s for a tuple that it passes on, and no time for those that it drops: one in four."""

    outputs = ["n"]

    def process(self, tup: Any) -> None:
        if tup.values[0] % 4:
            spend(0.01)
            self.emit(tup.values, anchors=[tup])
        self.ack(tup)


class Store(Bolt):
    def process(self, tup: Any) -> None:
        spend(0.02)
        self.ack(tup)


class BatchStore(Bolt):
    def process_batch(self, batch: Any) -> None:
        spend(0.02 * len(batch))
        self.ack(batch)


def latencies(mode: str, store: type[Bolt], **settings: Any) -> dict[tuple[str, str], tuple[float, int]]:
    """By component and source: mean seconds and number of what was measured end to end in 30 s."""
    made = TopologyBuilder("sim")
    source = made.add_spout("source", Source, par=1)
    work = made.add_bolt("work", Work, par=1, inputs={source: Grouping.SHUFFLE})
    made.add_bolt("store", store, par=1, inputs={work: Grouping.SHUFFLE})
    made.set_config({api_constants.TOPOLOGY_RELIABILITY_MODE: mode})
    with cluster_of(3, Program(made, None), **settings) as (cluster, _):
        world = cluster.world
        cluster.until(control_pb2.LIFE_RUNNING)
        world.run(world.now + 30.0, lambda: False)
        return {
            (name, label): (histogram.sum / histogram.count / 1e9, histogram.count)
            for name in ("source", "work", "store")
            for (metric, label), histogram in cluster.tasks(name)[0].program.metrics.histograms.items()
            if metric == "__end-to-end-latency"
        }


@pytest.mark.parametrize("store", [Store, BatchStore])
@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_the_age_at_the_end_of_the_path_is_measured_with_acks_and_without(mode: str, store: type[Bolt]) -> None:
    found = latencies(mode, store, trace__per_s=5.0)
    assert set(found) == {("work", "source/default"), ("store", "work/default")}
    mean, count = found["store", "work/default"]
    assert 0.03 <= mean <= 0.2 and count >= 30
    mean, count = found["work", "source/default"]
    assert mean <= 0.15 and count >= 5


def test_it_can_be_turned_off() -> None:
    assert latencies("ATMOST_ONCE", Store, trace__per_s=0) == {}
