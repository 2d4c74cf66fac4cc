"""Busy, blocked and idle time of a task: the sums, and what the loops count as which, in virtual time; times of calls."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.proto import control_pb2
from instance.time_use import (
    AT_LIMIT,
    BLOCKED,
    IDLE,
    PERIOD_S,
    PERIODS,
    SINGLY_NS,
    WORKING,
    Doing,
    ExecuteTimes,
    RecentMax,
    TimeUse,
    Totals,
    by_stream,
)
from tests.sim.kernel import spend
from tests.sim.run import cluster_of
from tests.sim.workload import Program

DOINGS = st.sampled_from([WORKING, BLOCKED, IDLE, AT_LIMIT]) | st.builds(Doing, st.floats(0, 1), st.booleans())


@given(st.lists(st.tuples(DOINGS, st.integers(0, 10**15), st.integers(0, 10**15))), DOINGS)
def test_all_are_the_time_that_has_passed_and_never_fall(steps: list[tuple[Doing, int, int]], first: Doing) -> None:
    start = now = 10**18
    use = TimeUse(now, first)
    before = Totals(0, 0, 0)
    for doing, pause, look in steps:
        now += pause
        use.turn(doing, now)
        for at in (now, now + look):
            totals = use.totals(at)
            assert sum(totals) == at - start
            assert all(value >= old for value, old in zip(totals, before, strict=True))
        now += look
        before = totals
        use.turn(use.doing, now)


def test_a_part_of_the_time_counts_as_work() -> None:
    use = TimeUse(0, Doing(0.25, blocked=True))
    assert use.totals(1000) == Totals(250, 750, 0)
    use.turn(Doing(0.5, blocked=False), 1000)
    use.turn(WORKING, 1100)
    assert use.totals(1200) == Totals(400, 750, 50)
    use.turn(AT_LIMIT, 1200)
    assert use.totals(1300) == Totals(400, 750, 50, at_limit=100)


def test_a_clock_that_is_read_late_takes_nothing_back() -> None:
    use = TimeUse(100, WORKING)
    use.turn(IDLE, 200)
    use.turn(WORKING, 150)
    assert use.totals(120) == Totals(100, 0, 0)


# ---- tasks --------------------------------------------------------------------------------------


class Fast(Spout):
    """Emits as fast as it may, or, once `calm`, once a second."""

    outputs = ["n"]
    calm = False

    def next_tuple(self) -> None:
        if self.calm:
            self.wait(1.0)
        spend(1e-6)
        self.emit([1], tup_id=1)


class Slow(Bolt):
    outputs = ["n"]
    cost_s = 0.01

    def process(self, tup: Any) -> None:
        spend(self.cost_s)
        self.emit([1], anchors=[tup])
        self.ack(tup)


class Quick(Bolt):
    def process(self, tup: Any) -> None:
        self.ack(tup)


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_a_slow_bolt_is_busy_what_is_before_it_blocked_and_what_is_after_it_idle(mode: str) -> None:
    made = TopologyBuilder("sim")
    spout = made.add_spout("spout", Fast, par=1)
    slow = made.add_bolt("slow", Slow, par=1, inputs={spout: Grouping.SHUFFLE})
    made.add_bolt("quick", Quick, par=1, inputs={slow: Grouping.SHUFFLE})
    made.set_config({api_constants.TOPOLOGY_RELIABILITY_MODE: mode, api_constants.TOPOLOGY_MAX_SPOUT_PENDING: 1000})
    with cluster_of(3, Program(made, None)) as (cluster, _):
        world = cluster.world
        cluster.until(control_pb2.LIFE_RUNNING)
        world.run(world.now + 1.0, lambda: False)
        tasks = {name: cluster.tasks(name)[0].program for name in ("spout", "slow", "quick")}

        def looks() -> dict[str, Totals]:
            return {name: task.time_use.totals(round(world.now * 1e9)) for name, task in tasks.items()}

        before, began = looks(), world.now
        world.run(world.now + 3.0, lambda: False)
        after, took_ns = looks(), (world.now - began) * 1e9
        part = {
            name: Totals(*(round(100 * (new - old) / took_ns) for new, old in zip(after[name], before[name])))
            for name in tasks
        }
        for name in tasks:
            assert sum(after[name]) - sum(before[name]) == pytest.approx(took_ns, rel=1e-6)
        assert part["slow"].busy >= 97, part
        # The queue before a slow bolt is short, so the spout waits for room before it waits for acks.
        assert part["spout"].blocked >= 90, part
        assert part["quick"].idle >= 95, part


def test_a_spout_that_waits_for_its_source_is_idle() -> None:
    made = TopologyBuilder("sim")
    spout = made.add_spout("spout", Fast, par=1)
    made.add_bolt("quick", Quick, par=1, inputs={spout: Grouping.SHUFFLE})
    with cluster_of(3, Program(made, None)) as (cluster, _):
        world = cluster.world
        cluster.until(control_pb2.LIFE_RUNNING)
        [process] = cluster.tasks("spout")
        process.program.user.object.calm = True
        world.run(world.now + 5.0, lambda: False)
        before = process.program.time_use.totals(round(world.now * 1e9))
        world.run(world.now + 10.0, lambda: False)
        after = process.program.time_use.totals(round(world.now * 1e9))
        assert after.idle - before.idle > 9.5e9 and after.blocked == before.blocked


class Flood(Bolt):
    """Emits much for each tuple, so that it waits for room within `process`."""

    outputs = ["n"]

    def process(self, tup: Any) -> None:
        spend(0.001)
        for _ in range(2000):
            self.emit(["x" * 1000])


def test_waiting_for_room_is_blocked_and_no_execute_time() -> None:
    made = TopologyBuilder("sim")
    spout = made.add_spout("spout", Fast, par=1)
    flood = made.add_bolt("flood", Flood, par=1, inputs={spout: Grouping.SHUFFLE})
    made.add_bolt("slow", Slow, par=1, inputs={flood: Grouping.SHUFFLE})
    with cluster_of(3, Program(made, None, pad=1000)) as (cluster, _):
        world = cluster.world
        cluster.until(control_pb2.LIFE_RUNNING)
        [process] = cluster.tasks("flood")
        task = process.program

        def look() -> tuple[Totals, float]:
            return task.time_use.totals(round(world.now * 1e9)), executed()

        def executed() -> float:
            return float(sum(v for (name, _), v in task.metrics.counters.items() if name == "__execute-time-ns"))

        cluster.run(lambda: bool(executed()))
        before, began = look(), world.now
        world.run(world.now + 5.0, lambda: False)
        after, took_ns = look(), (world.now - began) * 1e9
        assert after[0].blocked - before[0].blocked > 0.9 * took_ns
        assert after[1] - before[1] < 0.05 * took_ns


TIMES = st.floats(0, 1e12)


def total(samples: list[tuple[float, int]]) -> float:
    return sum(value * number for value, number in samples)


@given(st.lists(st.tuples(st.integers(1, 10_000), TIMES)))
def test_samples_have_the_number_and_the_time_of_the_calls(chunks: list[tuple[int, float]]) -> None:
    times = ExecuteTimes()
    for count, took in chunks:
        samples = times.samples("s", count, took)
        assert sum(number for _, number in samples) == count
        assert total(samples) == pytest.approx(took, rel=1e-6, abs=1e-3)
        assert all(value >= 0 and number > 0 for value, number in samples)


@given(st.lists(st.integers(0, 10**9), min_size=1), st.integers(0, 3), st.integers(0, 10**6))
def test_calls_that_were_timed_are_one_sample_each(each: list[int], missing: int, rest: int) -> None:
    stamps = list(accumulate(each, initial=77))
    samples = ExecuteTimes().samples("s", len(each) + missing, sum(each) + rest, stamps)
    assert samples[: len(each)] == [(took, 1) for took in each]
    assert sum(number for _, number in samples) == len(each) + missing
    if missing:
        assert total(samples) == pytest.approx(sum(each) + rest)


def test_one_slow_call_among_thousands_shows() -> None:
    times = ExecuteTimes()
    for _ in range(50):
        times.samples("s", 4000, 4000 * 500.0)
    usual, slow = times.samples("s", 4000, 3999 * 500.0 + 100e6)
    assert usual == (pytest.approx(500.0), 3999) and slow == (pytest.approx(100e6), 1)
    assert times.samples("s", 4000, 4000 * 500.0) == [(500.0, 4000)], "the chunks after it are as before"


def test_calls_that_have_become_slow_are_timed_singly_soon() -> None:
    times = ExecuteTimes()
    for _ in range(50):
        times.samples("s", 4000, 4000 * 500.0)
    chunks = 0
    while not times.singly("s"):
        times.samples("s", 10, 10 * 2.0 * SINGLY_NS)
        chunks += 1
    assert chunks < 15


def test_what_is_usual_depends_on_the_source() -> None:
    times = ExecuteTimes()
    for _ in range(20):
        times.samples("quick", 1000, 1000 * 100.0)
        assert times.samples("slow", 100, 100 * 50_000.0) == [(50_000.0, 100)]


STREAMS = st.lists(st.sampled_from("abc"), min_size=1)


@given(STREAMS, st.data())
def test_each_stream_has_its_calls(streams: list[str], data: st.DataObject) -> None:
    """Whether the chunk was timed as a whole, holds a slow call, or was timed singly, maybe not to the end."""
    count = len(streams)
    timed = data.draw(st.integers(0, count))
    samples = [(float(n), 1) for n in range(timed)] + ([(5.0, count - timed)] if timed < count else [])
    if not timed and count > 1 and data.draw(st.booleans()):
        samples = [(5.0, count - 1), (999.0, 1)]
    parts = by_stream(streams, samples)
    assert {name: sum(n for _, n in own) for name, own in parts.items()} == {s: streams.count(s) for s in streams}
    assert sum(map(total, parts.values())) == pytest.approx(total(samples))
    assert all(number > 0 for own in parts.values() for _, number in own)


def test_calls_that_were_timed_belong_to_their_streams() -> None:
    samples = [(1.0, 1), (2.0, 1), (3.0, 1)]
    assert by_stream(["a", "b", "a"], samples) == {"a": [(1.0, 1), (3.0, 1)], "b": [(2.0, 1)]}


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(1, 1e6)), min_size=1))
def test_the_largest_of_the_last_minute_is_kept(notes: list[tuple[float, float]]) -> None:
    largest, now = RecentMax(), 1e6
    noted: list[tuple[float, float]] = []
    for pause, value in notes:
        now += pause
        largest.note(value, now)
        noted.append((now, value))
        found = largest.at(now)
        assert found >= max(v for at, v in noted if at > now - 60)
        assert found in [v for at, v in noted if at > now - PERIOD_S * PERIODS]
    assert largest.at(now + PERIOD_S * PERIODS) == 0
