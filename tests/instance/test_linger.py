"""Tuples wait for company only as often and as long as promised; whether a thread has slept; when a spout is called."""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.proto import control_pb2
from instance.awake import Sleeps
from instance.linger import BURST, PATIENCE, Linger
from tests.sim.run import cluster_of
from tests.sim.workload import Program

LONGEST_S = 0.0015
#: Pauses between tuples, from several at once to seconds of silence.
PAUSES = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e-3), st.floats(1e-3, 3.0)), min_size=1, max_size=200)


def replay(pauses: list[float], longest_s: float = LONGEST_S) -> tuple[list[float], list[float]]:
    """The waits of tuples that arrive after these pauses, and the moments of the sends."""
    linger, now = Linger(longest_s), 100.0
    waiting: list[float] = []
    waits, sends = [], []

    def send(moment: float) -> None:
        waits.extend(moment - arrived for arrived in waiting)
        waiting.clear()
        sends.append(moment)
        linger.sent(moment)

    for pause in pauses:
        arrival = now + pause
        if waiting and linger.due <= arrival:
            send(max(now, linger.due))
        now = arrival
        waiting.append(now)
        if now >= linger.due:
            send(now)
    if waiting:
        send(max(now, linger.due))
    return waits, sends


@given(PAUSES)
def test_no_tuple_waits_longer_than_promised_and_sends_are_bounded(pauses: list[float]) -> None:
    waits, sends = replay(pauses)
    assert len(waits) == len(pauses) and max(waits) <= LONGEST_S + 1e-9
    for first in range(len(sends)):
        for last in range(first, len(sends)):
            assert last - first <= BURST + (sends[last] - sends[first]) / LONGEST_S + 1e-6


@given(st.lists(st.floats(LONGEST_S, 3.0), min_size=1, max_size=100))
def test_an_isolated_tuple_leaves_at_once(pauses: list[float]) -> None:
    waits, sends = replay(pauses)
    assert max(waits) <= 1e-9 and len(sends) == len(pauses)


@given(st.floats((BURST + 1) * LONGEST_S, 60.0))
def test_after_silence_a_burst_does_not_wait(silence: float) -> None:
    waits, _ = replay([0.0] * 50 + [silence] + [0.0] * (BURST - 1))
    assert waits[-BURST:] == [0.0] * BURST


@pytest.mark.parametrize("rate", [5_000, 20_000, 100_000])
def test_at_high_rates_sends_are_bounded_and_the_median_wait_is_half_of_the_longest(rate: int) -> None:
    waits, sends = replay([1 / rate] * rate)
    assert len(sends) <= 1 / LONGEST_S + BURST + 1
    assert sorted(waits)[len(waits) // 2] <= LONGEST_S / 2 + 2 / rate


def test_without_a_linger_everything_leaves_at_once() -> None:
    waits, sends = replay([0.0, 1e-5, 0.0, 0.1], longest_s=0.0)
    assert waits == [0.0] * 4 and len(sends) == 4


@given(st.floats(0.0, 20.0), st.booleans())
def test_a_task_that_never_sleeps_waits_longer_but_not_for_ever(lingers: float, slept: bool) -> None:
    linger = Linger(LONGEST_S)
    for _ in range(BURST):
        linger.sent(100.0)
    since = linger.due - LONGEST_S
    now = since + lingers * LONGEST_S
    may = linger.over(now, lambda: slept)
    assert may == (now >= linger.due and (slept or now >= linger.due + (PATIENCE - 1) * LONGEST_S))
    assert not may or lingers >= 1 - 1e-6
    assert may or lingers <= PATIENCE + 1e-6


def test_without_a_linger_a_task_that_never_sleeps_sends_at_once() -> None:
    linger = Linger(0.0)
    linger.sent(100.0)
    assert linger.over(100.0, lambda: False)


def test_waiting_for_another_thread_is_sleep() -> None:
    sleeps, gate = Sleeps(), threading.Event()
    for _ in range(100):
        waker = threading.Timer(0.01, gate.set)
        waker.start()
        assert gate.wait(10)
        waker.join()
        if sleeps.any():
            break
    assert sleeps.any()
    sleeps.forget()
    assert not sleeps.any()


def test_a_thread_that_always_has_work_has_not_slept() -> None:
    sleeps = Sleeps()
    for _ in range(20):  # others may have made it wait for the interpreter
        sleeps.forget()
        sum(range(100_000))
        os.sched_yield()
        if not sleeps.any():
            return
    raise AssertionError("computing counted as sleep, 20 times")


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
        raise NotImplementedError("a subclass defines work")


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
    """Reads a line per call and emits a tuple for one of `lines` lines."""

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
    assert 900 < frames < 1_200 and max(spout.late) < 0.0012


@pytest.mark.parametrize("lines", [10, 20, 50])
def test_a_polled_spout_that_reads_more_than_it_emits_keeps_its_rate(lines: int) -> None:
    """It makes eight calls each millisecond, whatever they find."""
    _, rate, _ = paced(Filter, seconds=1.0, lines=lines)
    assert rate > 7_500
