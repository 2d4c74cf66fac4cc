"""The minutes of a day: bounded, in order, unknown where nothing was told, and handed over."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.common.errors import InvalidRpcError
from heronpy.proto import control_pb2
from heronpy.tmaster.minutes import (
    HANDED_OVER_BYTES_MAX,
    HANDED_OVER_MAX,
    KEPT_MAX,
    NAMES,
    POINTS_MAX,
    SERIES,
    VALUES_MAX,
    Minutes,
)
from heronpy.views.past import Timeline, series_name

FIRST = 29_000_000


def values(reply: Timeline, component: str, name: str) -> list[float | None]:
    for series in reply.series:
        if (series.component, series_name(series.metric)) == (component, name):
            return series.values
    return [None] * len(reply.times)


def filled(minutes: int, **limits: int) -> Minutes:
    found = Minutes(**limits)
    for number in range(minutes):
        found.add(FIRST + number, {"a": {"executed": float(number), "restarts": 1.0, "busiest": number / 10}})
    return found


def test_a_series_is_what_was_added() -> None:
    reply = filled(3).query(control_pb2.GetTimeline())
    assert (reply.times, reply.step_s) == ([(FIRST + minute) * 60.0 for minute in range(3)], 60.0)
    assert values(reply, "a", "executed") == [0.0, 1.0, 2.0]
    assert {one.metric for one in reply.series} == {"executed_per_s", "restarts", "busy_max"}, (
        "what is unknown is left out"
    )
    assert reply.kept_from == FIRST * 60.0


def test_what_moves_is_told_from_rest() -> None:
    minutes = Minutes()
    for number, moves in enumerate([{"executed": 3.0}, {"executed": 0.0, "cpu": 0.2, "tasks": 2.0}, {"emitted": None}]):
        minutes.add(FIRST + number, {"": {}, "a": moves})
    assert (minutes.moved, minutes.last) == (FIRST, FIRST + 2)
    minutes.add(FIRST + 3, {"": {}, "a": {"restarts": 1.0}})
    assert minutes.moved == FIRST + 3
    again = Minutes()
    again.take_over(minutes.ledger("wc-1"), "wc-1")
    assert (again.moved, again.last) == (0, FIRST + 3), "what a predecessor has told is written already"


def test_gaps_and_components_that_come_and_go_are_unknown() -> None:
    minutes = Minutes()
    minutes.add(FIRST, {"a": {"executed": 1.0}, "old": {"executed": 7.0}})
    minutes.add(FIRST + 2, {"a": {"executed": 3.0}, "new": {"executed": 9.0, "busy": None}})
    reply = minutes.query(control_pb2.GetTimeline())
    assert values(reply, "a", "executed") == [1.0, None, 3.0]
    assert values(reply, "old", "executed") == [7.0, None, None]
    assert values(reply, "new", "executed") == [None, None, 9.0]
    minutes.add(FIRST + 1, {"a": {"executed": 2.0}})
    assert len(minutes) == 2, "a minute that is over stays as it is"


def test_minutes_are_joined_as_their_series_says() -> None:
    # From a whole multiple, so that points are whole.
    minutes = Minutes()
    first = FIRST // 100 * 100
    for number in range(100):
        row = {"executed": float(number), "restarts": 1.0, "busiest": number / 10, "tasks": float(number)}
        minutes.add(first + number, {"a": row})
    reply = minutes.query(control_pb2.GetTimeline(points=11))
    assert (len(reply.times), reply.step_s) == (10, 600.0)
    assert values(reply, "a", "executed")[0] == pytest.approx(4.5)
    assert values(reply, "a", "restarts") == [10.0] * 10
    assert values(reply, "a", "busiest")[-1] == pytest.approx(9.9)
    assert values(reply, "a", "tasks")[1] == 19.0
    one = minutes.query(control_pb2.GetTimeline(points=1, names=["restarts"], components=["a"]))
    assert values(one, "a", "restarts") == [100.0] and len(one.series) == 1


def test_a_request_for_what_is_not_there_is_told() -> None:
    minutes = filled(5)
    with pytest.raises(InvalidRpcError, match="no component 'x' is known; the components are a"):
        minutes.query(control_pb2.GetTimeline(components=["x"]))
    with pytest.raises(InvalidRpcError, match="there is no series 'speed'"):
        minutes.query(control_pb2.GetTimeline(names=["speed"]))
    later = minutes.query(control_pb2.GetTimeline(since=(FIRST + 50) * 60.0))
    assert not later.times and not later.series
    empty = Minutes().query(control_pb2.GetTimeline(components=["x"]))
    assert not empty.times and empty.kept_from is None


@given(
    since=st.floats(allow_nan=True, allow_infinity=True) | st.floats((FIRST - 99) * 60.0, (FIRST + 999) * 60.0),
    until=st.floats(allow_nan=True, allow_infinity=True) | st.floats((FIRST - 99) * 60.0, (FIRST + 999) * 60.0),
    points=st.integers(0, 5000),
    count=st.integers(1, 300),
)
@settings(deadline=None)
def test_any_request_is_answered_within_bounds(since: float, until: float, points: int, count: int) -> None:
    minutes = filled(count)
    reply = minutes.query(control_pb2.GetTimeline(since=since, until=until, points=points))
    assert len(reply.times) <= (min(points, POINTS_MAX) if points else KEPT_MAX)
    assert all(len(series.values) == len(reply.times) for series in reply.series)
    told = sum(value for value in values(reply, "a", "restarts") if value is not None)
    assert told <= count
    if not points and not (math.isfinite(since) and since > 0) and not (math.isfinite(until) and until > 0):
        assert told == count


@given(
    steps=st.lists(
        st.tuples(st.integers(-1, 5), st.sets(st.sampled_from("abcd"), max_size=3), st.floats(-1e300, 1e300)),
        max_size=60,
    ),
    kept=st.integers(1, 20),
    most=st.integers(1, 20 * len(NAMES)),
)
def test_it_stays_bounded_and_in_order(steps: list[tuple[int, set[str], float]], kept: int, most: int) -> None:
    minutes, number = Minutes(kept, most), FIRST
    for step, components, value in steps:
        number += step
        minutes.add(number, {name: {"executed": value} for name in sorted(components)})
        minutes.validate()
        assert len(minutes) <= kept and (len(minutes) <= 1 or minutes.used_bytes <= 4 * most)
    heir = Minutes(kept, most)
    heir.take_over(minutes.ledger("wc-1"), "wc-1")
    heir.validate()
    assert heir.last == minutes.last


def test_a_day_of_any_topology_fits() -> None:
    minutes = Minutes()
    rows = {f"component-{number}": {"executed": 1.0} for number in range(1000)}
    for number in range(300):
        minutes.add(FIRST + number, rows)
    assert minutes.used_bytes <= 4 * VALUES_MAX
    assert 0 < len(minutes) < 300, "fewer minutes of a large topology"
    minutes.validate()


def test_a_successor_knows_the_newest() -> None:
    minutes = filled(100)
    minutes.add(FIRST + 100, {"a": {"executed": 5.0}, "b": {"busy": 0.5}})
    ledger = control_pb2.MinutesLedger.FromString(minutes.ledger("wc-1").SerializeToString())
    heir = Minutes()
    heir.take_over(ledger, "another-2")
    assert not len(heir)
    heir.take_over(ledger, "wc-1")
    assert len(heir) == HANDED_OVER_MAX and heir.last == FIRST + 100
    assert heir.known_since == (FIRST + 101 - HANDED_OVER_MAX) * 60.0
    reply = heir.query(control_pb2.GetTimeline())
    assert values(reply, "a", "executed")[-2:] == [99.0, 5.0] and values(reply, "b", "busy")[-2:] == [None, 0.5]
    large = Minutes()
    for number in range(40):
        large.add(FIRST + number, {f"component-{n}": {"executed": 1.0} for n in range(100)})
    size = large.ledger("wc-1").ByteSize()
    assert size < 2 * HANDED_OVER_BYTES_MAX, size


@given(garbage=st.binary(max_size=300))
def test_a_damaged_ledger_leaves_no_wrong_minute(garbage: bytes) -> None:
    ledger = control_pb2.MinutesLedger(topology_id="wc-1", series=["executed", "of another release"])
    ledger.names.add(components=["a", "b"])
    ledger.names.add(components=["a", "a"])
    ledger.minutes.add(number=7, names=0, values=garbage)
    ledger.minutes.add(number=8, names=3, values=garbage)
    ledger.minutes.add(number=9, names=1, values=struct.pack("<4f", 1, 2, 3, 4))
    ledger.minutes.add(number=10, names=0, values=struct.pack("<4f", 1, 2, 3, math.inf))
    ledger.minutes.add(number=4, names=0, values=struct.pack("<4f", 1, 2, 3, 4))
    heir = Minutes()
    heir.take_over(ledger, "wc-1")
    heir.validate()
    reply = heir.query(control_pb2.GetTimeline())
    assert (values(reply, "a", "executed")[-1], values(reply, "b", "executed")[-1]) == (1.0, 3.0)
    assert {series_name(series.metric) for series in reply.series} <= set(SERIES)


def test_what_was_usual_in_a_day_is_handed_over_with_half_an_hour() -> None:
    minutes = Minutes()
    for number in range(600):
        wall_s = 0.004 if number < 560 else 0.04
        minutes.add(FIRST + number, {"": {"held": 0.0}, "call": {"executed": 9.0, "busy": 0.5, "wall_s": wall_s}})
    heir = Minutes()
    heir.take_over(minutes.ledger("wc-1"), "wc-1")
    assert len(heir) == HANDED_OVER_MAX
    assert heir.baseline.usual_s == minutes.baseline.usual_s == {"call": pytest.approx(0.004, rel=0.1)}
