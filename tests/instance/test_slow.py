"""Slow tuples: the slowest of the last hour, with what is known of their values; lines and keys found most often."""

from __future__ import annotations

import inspect
from collections import Counter
from itertools import accumulate, pairwise
from types import FrameType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.units import line_of
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.task.tuples import HeronTuple, InFrame
from heronpy.tmaster.task_reports import TaskReports
from instance import link
from instance.executed import (
    KEEP_S,
    KEPT,
    LOOKS_KEEP_S,
    NEVER,
    PARK_S,
    VALUE_LETTERS,
    WISHES,
    Looks,
    SlowTuples,
    keys_of,
    shown,
)

MS = 1e6


class World:
    """The slow tuples of a task, and tuples for it."""

    def __init__(self, limit_ms: float = 100.0) -> None:
        self.counts: Counter[str] = Counter()
        self.slow = SlowTuples(limit_ms, lambda name, label, by: self.counts.update({f"{name} {label}": int(by)}))
        self.frame = InFrame("word", "default", 3, 1000, 0.0)

    def tuples(self, count: int) -> list[HeronTuple]:
        return [HeronTuple([f"v{n}"], self.frame, n) for n in range(count)]


@given(st.lists(st.tuples(st.floats(101, 1e6), st.floats(0, KEEP_S / 2)), max_size=60))
def test_the_slowest_of_the_last_hour_are_kept_and_all_are_counted(calls: list[tuple[float, float]]) -> None:
    world, at, known = World(), 1e9, []
    for took_ms, pause_s in calls:
        at += pause_s
        world.slow.call(world.tuples(1)[0], took_ms * MS, at)
        known.append((took_ms, at))
    took = [one.took_s for one in world.slow.kept]
    assert took == sorted(took, reverse=True) and len(took) <= KEPT
    assert all(one.at > at - KEEP_S for one in world.slow.kept)
    assert world.counts["__slow-tuples word/default"] == len(calls)
    if len(known) <= KEPT:
        assert len(took) == sum(when > at - KEEP_S for _, when in known)


@given(st.lists(st.floats(0, 400), min_size=2, max_size=50))
def test_where_calls_are_timed_each_slow_one_is_known(calls: list[float]) -> None:
    world = World()
    stamps = [int(each * MS) for each in accumulate(calls, initial=5)]
    world.slow.chunk(world.tuples(len(calls)), stamps[-1] - stamps[0], [(1.0, len(calls))], stamps, 50.0)
    known = {f"['v{n}']" for n, (low, high) in enumerate(pairwise(stamps)) if high - low > 100 * MS}
    kept = {one.value for one in world.slow.kept}
    assert kept <= known and len(kept) == min(KEPT, len(known))
    assert all(one.at <= 50.0 for one in world.slow.kept)


def test_among_quick_calls_the_tuple_that_was_seen_in_hand_is_the_slow_one() -> None:
    world, part = World(), World().tuples(1000)
    world.slow.blind_at, world.slow.in_hand = 10.0, lambda: part[611]
    assert world.slow.look(10.02) == 10.07, "a call is not looked at before it has lasted for a while"
    world.slow.look(10.06)
    world.slow.look(10.11)
    world.slow.chunk(part, 151 * MS, [(1000.0, 999), (150 * MS, 1)], (), 50.0)
    [one] = world.slow.kept
    assert (one.value, one.tuples, one.source, one.source_task) == ("['v611']", 1, "word/default", 3)
    assert round(one.took_s, 6) == 0.15


def test_what_nobody_has_seen_is_kept_without_a_value() -> None:
    world, part = World(), World().tuples(1000)
    before = world.tuples(1)[0]
    world.slow.blind_at, world.slow.in_hand = 10.0, lambda: before
    world.slow.look(10.06)
    world.slow.chunk(part, 151 * MS, [(1000.0, 999), (150 * MS, 1)], (), 50.0)
    [one] = world.slow.kept
    assert (one.value, one.tuples) == ("", 1000), "what was seen is of an earlier chunk"


def test_many_tuples_that_take_long_together_are_not_slow() -> None:
    world = World()
    world.slow.chunk(world.tuples(1000), 150 * MS, [(150_000.0, 1000)], (), 50.0)
    assert not world.slow.kept and not world.counts


def test_nobody_looks_while_no_chunk_is_blind_or_when_it_is_off() -> None:
    world = World()
    assert world.slow.look(1000.0) == NEVER
    world.slow.blind_at = 1000.0
    assert world.slow.look(1000.0 + PARK_S + 0.1) == NEVER
    off = World(0.0).slow
    off.blind_at = 1000.0
    assert off.look(1000.01) == NEVER and off.limit_ns == NEVER


class Rude:
    def __repr__(self) -> str:
        raise SystemError("no")


@given(st.recursive(st.text() | st.binary() | st.integers() | st.floats(), lambda inner: st.lists(inner)))
def test_a_value_is_short_whatever_it_is(value: object) -> None:
    assert len(shown([value])) <= VALUE_LETTERS


def test_huge_and_rude_values_are_shown_too() -> None:
    assert len(shown(["x" * 10**7, b"y" * 10**7, 10**5000])) <= VALUE_LETTERS
    assert "Rude" in shown([Rude()])


Report = control_pb2.ExceptionReport
PLAN = plan_pb2.PhysicalPlan()
_bolt = PLAN.topology.bolts.add()
_bolt.comp.name = "count"
_keyed = _bolt.inputs.add(gtype=topology_pb2.FIELDS)
_keyed.stream.id, _keyed.stream.component_name = "default", "words"
_keyed.grouping_fields.keys.add(key="user")
_spread = _bolt.inputs.add(gtype=topology_pb2.SHUFFLE)
_spread.stream.id, _spread.stream.component_name = "default", "ticks"


def tuple_of(component: str, *values: Any) -> HeronTuple:
    return HeronTuple(list(values), InFrame(component, "default", 1, 1, 0.0), 0)


def looking(*found: HeronTuple | None, at: float = 1.0) -> Looks:
    """After a look at each of these in hand, each the first of the next chunk."""
    looks = Looks()
    looks.keys = keys_of(PLAN, "count", {"words": [("default", ["word", "user"])]})
    frame = inspect.currentframe()
    assert isinstance(frame, FrameType)
    for one in found:
        looks.in_hand = lambda: (one, [frame])  # noqa: B023
        looks.look(at)
        if one is not None:
            looks.note(one, at)
    return looks


def test_what_was_found_most_often_is_told() -> None:
    big = tuple_of("words", "a", "big")
    told = looking(big, tuple_of("words", "b", "x"), big, tuple_of("ticks", 1), None).told(2.0)
    assert told is not None and (told.looks, told.keyed) == (4, 3)
    assert (told.key, told.of_key) == ("user='big'", 2)
    assert told.line.startswith("looking (test_slow.py:") and told.at_line == 4


def test_each_look_wishes_for_some_tuples_where_there_are_keys() -> None:
    looks = looking(None)
    assert looks.wished == WISHES
    for _ in range(WISHES):
        looks.note(tuple_of("words", "a", "big"), 1.0)
    assert looks.wished == 0
    looks.keys = {}
    looks.look(2.0)
    assert looks.wished == 0, "nothing is grouped by fields"


def test_nothing_is_told_of_a_task_that_is_idle_or_of_long_ago() -> None:
    assert looking(None).told(1.0) is None
    looks = looking(tuple_of("words", "a", "big"), at=1.0)
    assert looks.told(LOOKS_KEEP_S) is not None
    assert looks.told(LOOKS_KEEP_S + 2.0) is None


def test_a_key_whose_repr_raises_is_a_key() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError

    told = looking(tuple_of("words", "a", Odd())).told(1.0)
    assert told is not None and told.key.startswith("user=<")


def test_the_runtimes_own_code_is_nobodys_culprit() -> None:
    """The doctor said that a task waits in a function of `link.py`."""
    made: dict[str, Any] = {"currentframe": inspect.currentframe}
    exec(compile("def transmit():\n    return currentframe()", link.__file__, "exec"), made)
    own, users = made["transmit"](), inspect.currentframe()
    looks = looking(None)
    for at, frames in enumerate([[own], [own], [own, users]]):
        looks.in_hand = lambda: (tuple_of("words", "a", "x"), frames)  # noqa: B023
        looks.look(float(at))
    told = looks.told(3.0)
    assert told is not None and (told.looks, told.at_line) == (3, 1)
    assert told.line.startswith("test_the_runtimes_own_code") and told.line.endswith("which calls transmit")


def test_a_line_is_of_the_users_code() -> None:
    library = ("/usr/lib/python3.11/socket.py", 700, "recv")
    assert line_of([("/home/me/orders.py", 9, "parse")]) == "parse (orders.py:9)"
    assert line_of([library, ("/home/me/orders.py", 9, "parse")]) == "parse (orders.py:9), which calls recv"
    assert line_of([library]) == "recv (socket.py:700)"
    assert line_of([]) == ""


def test_the_topology_master_knows_the_newest_of_each_task() -> None:
    store = TaskReports()
    report = control_pb2.MetricsReport(process="container_1_count_2", task_id=2, component="count")
    report.found.looks, report.found.key = 7, "user='big'"
    store.take(report, 0.0)
    raised = control_pb2.ExceptionReport(
        process="container_1_parse_3", component="parse", last_at=2.0,
        traceback='Traceback\n  File "/home/me/orders.py", line 62, in process\n    raise ValueError\nValueError',
    )  # fmt: skip
    older = control_pb2.ExceptionReport(process="container_1_parse_3", component="parse", last_at=1.0)
    tasks = store.hot_spots("", [raised, older], 0.0)
    assert tasks["container_1_count_2"].key == "user='big'"
    assert tasks["container_1_parse_3"].raised == "process (orders.py:62)"
    assert (
        list(store.hot_spots("count", [], 0.0)) == ["container_1_count_2"] and store.hot_spots("parse", [], 0.0) == {}
    )
    report.ClearField("found")
    store.take(report, 0.0)
    assert not store.hot_spots("", [], 0.0), "idle now"


def test_the_topology_master_knows_what_the_exceptions_of_a_line_have_in_common() -> None:
    """The last one named the user who came by; that all were of order 49 was nowhere."""

    def raised(number: int, line: int = 62, kind: str = "ValueError", process: str = "parse-3") -> Report:
        message = f"order 49 of user {number}"
        return Report(
            process=process, component="parse", type=kind, message=message, count=2, last_at=float(number),
            traceback=f'Traceback\n  File "/home/me/orders.py", line {line}, in process\n{kind}: {message}',
        )  # fmt: skip

    others = [raised(1, line=9), raised(2, kind="KeyError"), raised(3, process="parse-4")]
    tasks = TaskReports().hot_spots("", [*map(raised, range(10, 30)), *others], 0.0)
    found = {name: (one.alike, one.alike_times, one.raised_times) for name, one in tasks.items()}
    assert found == {
        "parse-3": ("ValueError: order 49 of user …", 40, 40),
        "parse-4": ("ValueError: order 49 of user 3", 2, 2),
    }
    [ended] = TaskReports().hot_spots("", [Report(process="parse-3", type="Crashed", message="SIGSEGV")], 0.0).values()
    assert (ended.raised, ended.alike) == ("", ""), "no line has raised it"
