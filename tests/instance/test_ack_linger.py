"""AckLinger: acks wait for company as long as promised, and only where no spout is held up by it, over any arrivals."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.topology import TopologyBuilder
from heronpy.common.topology_keys import TOPOLOGY_MAX_SPOUT_PENDING
from heronpy.task.routing import pending_max
from instance.linger import BURST, FEW, LINGERS, LONGEST_S, MANY, AckLinger, Linger

LINGER_S = 0.001
SILENCE_S = LINGERS * LINGER_S
#: Pauses between tuples, from several at once to seconds of silence.
PAUSES = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e-3), st.floats(1e-3, 3.0)), min_size=1, max_size=200)
PENDING = st.one_of(st.integers(1, 100_000).map(float), st.just(float("inf")))


class Replay:
    """A bolt that acks each tuple when it comes, and sleeps in between."""

    def __init__(self, pauses: list[float], pending: float = 1000.0) -> None:
        self.linger = AckLinger(LINGER_S)
        self.linger.limit(pending, 1)
        #: How long each ack waited, when they were sent, and how often the bolt woke up for that alone.
        self.waits: list[float] = []
        self.sends: list[float] = []
        self.timers = 0
        self._held: list[float] = []
        now = 100.0
        for pause in pauses:
            self._until(now, now + pause)
            now += pause
            self._held.append(now)
            self.linger.came(now)
            if len(self._held) >= self.linger.room or now >= self.linger.due:
                self._send(now)
        self._until(now, float("inf"))

    def _until(self, now: float, then: float) -> None:
        if self._held and self.linger.latest <= then:
            self.timers += 1
            self._send(max(now, self.linger.latest))

    def _send(self, now: float) -> None:
        self.waits += [now - since for since in self._held]
        self._held.clear()
        self.sends.append(now)
        self.linger.sent(now)


@given(PAUSES, PENDING)
def test_no_ack_waits_longer_than_promised(pauses: list[float], pending: float) -> None:
    run = Replay(pauses, pending)
    assert len(run.waits) == len(pauses) and max(run.waits) <= LONGEST_S + SILENCE_S + 1e-9


@example([0.0] * 101)
@given(PAUSES)
def test_where_few_may_be_pending_acks_hardly_wait(pauses: list[float]) -> None:
    run = Replay(pauses, pending=8.0 * FEW)
    assert max(run.waits) <= SILENCE_S + 1e-9


@given(st.lists(st.floats(4 * SILENCE_S, 3.0), min_size=1, max_size=100))
def test_acks_of_isolated_tuples_leave_at_once(pauses: list[float]) -> None:
    run = Replay(pauses)
    assert max(run.waits) <= 1e-9 and not run.timers


@pytest.mark.parametrize("rate", [1_000, 5_000, 10_000])
def test_while_tuples_keep_coming_there_are_a_hundred_messages_a_second(rate: int) -> None:
    run = Replay([1 / rate] * rate, pending=50_000.0)
    assert len(run.sends) <= 1 / LONGEST_S + BURST + 20 + rate / MANY
    assert len(Replay([1 / rate] * rate, pending=10.0).sends) >= 450, "a spout would run out of pending tuples"


def test_when_no_tuple_comes_any_more_the_acks_follow_soon() -> None:
    run = Replay([LINGER_S] * 995)
    assert run.sends[-1] == pytest.approx(100.0 + 995 * LINGER_S + SILENCE_S), "the spout may wait for them"
    assert run.timers < 10, "hardly any wake-up for acks alone while tuples come"


@given(PENDING, st.integers(1, 500))
def test_the_tasks_of_a_component_hold_an_eighth_of_what_may_be_pending(pending: float, tasks: int) -> None:
    linger = AckLinger(LINGER_S)
    linger.limit(pending, tasks)
    assert FEW <= linger.room <= MANY
    assert linger.room == FEW or linger.room * tasks <= pending / 8


@pytest.mark.parametrize("linger_s", [0.0, 0.01, 0.1])
def test_longer_lingers_of_tuples_are_long_enough_for_acks(linger_s: float) -> None:
    linger, plain = AckLinger(linger_s), Linger(LINGERS * linger_s)
    linger.limit(1e6, 1)
    for place in range(100):
        moment = 100.0 + place * linger_s / 2
        linger.came(moment)
        for one in (linger, plain):
            if moment >= one.due:
                one.sent(moment)
        assert linger.due == pytest.approx(plain.due)


class Source(Spout):
    outputs = ["value"]


def test_the_spout_that_may_have_the_fewest_pending_counts() -> None:
    builder = TopologyBuilder("limits")
    many = builder.add_spout("many", Source, par=1, config={TOPOLOGY_MAX_SPOUT_PENDING: 5000})
    builder.add_spout("usual", Source, par=1)
    builder.add_bolt("sink", Bolt, par=1, inputs=[many])
    topology = builder.build()
    assert pending_max(topology) == 100
    for pair in topology.topology_config.kvs:
        if pair.key == TOPOLOGY_MAX_SPOUT_PENDING:
            pair.value = "7000"
    assert pending_max(topology) == 5000
    del topology.spouts[:]
    assert pending_max(topology) == float("inf")
