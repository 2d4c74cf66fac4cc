"""A viewer that applies deltas has what a new viewer's snapshot has, whatever it has missed in between."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from heronpy.tracker import live
from heronpy.views.live import Delta, Snapshot
from heronpy.views.load import Load
from tests.tracker.conftest import load_reply

NAMES = st.lists(st.sampled_from("abcd"), unique=True, max_size=4)
FIGURE = st.none() | st.floats(0, 1e8) | st.sampled_from([0.0, 1.0, 0.125, 12345.678])


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    load: Load | None = None
    if draw(st.booleans()):
        load = replace(load_reply().load, plan_version=draw(st.integers(0, 2)))
        [template] = [one for one in load.components if one.name == "count"]
        load.components = [
            msgspec.structs.replace(template, name=name, busy=draw(FIGURE), executed_per_s=draw(FIGURE))
            for name in draw(NAMES)
        ]
        load.held = draw(FIGURE)
        load.culprits = load.culprits[: draw(st.integers(0, 1))]
    silent_s = draw(FIGURE)
    return Snapshot(
        level="component", topology=None, topologies=None, plan=None, load=load, tasks=None, silent_s=silent_s
    )


def plain(message: msgspec.Struct) -> Any:
    return msgspec.json.decode(msgspec.json.encode(message))


def rounded(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: rounded(item, key) for key, item in value.items()}
    return [rounded(item, name) for item in value] if isinstance(value, list) else live.rounded(name, value)


def applied(page: Any, delta: Any) -> Any:
    """What the page does."""
    for path, value in delta.get("fields", {}).items():
        *way, last = path.split(".")
        holder = page if path == "silent_s" else page[way[0]] if way else page["topology"]
        holder[last] = value
    for name, columns in delta.get("tables", {}).items():
        rows = page["load"][name]
        for column, (numbers, values) in columns.items():
            for number, value in zip(numbers if numbers is not None else range(len(rows)), values, strict=True):
                rows[number][column] = value
    return page


@given(snapshots(), snapshots())
def test_a_delta_brings_one_state_to_the_other(old: Snapshot, new: Snapshot) -> None:
    delta = live.delta(old, new)
    if delta is None:
        assert (old.load is None) != (new.load is None) or rows(old) != rows(new)
    else:
        assert rounded(applied(plain(old), plain(delta))) == rounded(plain(new))


@given(st.lists(snapshots(), min_size=2, max_size=5))
def test_what_is_shown_is_never_far_from_what_is(states: list[Snapshot]) -> None:
    shown: Snapshot | None = None
    for state in states:
        shown = live.settled(shown, state)
        assert rows(shown) == rows(state)
        for row, real in zip(shown.load.components if shown.load else [], state.load.components if state.load else []):
            for name, limit in (("busy", live.SHARE_STEP), ("executed_per_s", live.STEP)):
                was, now = getattr(row, name), getattr(real, name)
                if not was or not now:
                    assert was == now, "to and from nothing is always told"
                else:
                    assert was == now or abs(was - now) <= limit * (1 if name == "busy" else abs(was))


def test_a_steady_figure_says_nothing_and_one_that_creeps_does() -> None:
    def snapshot(busy: float, restarts: int) -> Snapshot:
        load = load_reply().load
        load.components[1].busy, load.components[1].restarts = busy, restarts
        return Snapshot(
            level="component", topology=None, topologies=None, plan=None, load=load, tasks=None, silent_s=None
        )

    def sent(shown: Snapshot, state: Snapshot) -> tuple[Snapshot, dict[str, Any]]:
        now = live.settled(shown, state)
        change = live.delta(shown, now)
        assert change is not None
        return now, plain(change).get("tables", {})

    shown, told = sent(snapshot(0.5, 0), snapshot(0.51, 0))
    assert told == {}
    shown, told = sent(shown, snapshot(0.52, 1))
    assert told == {"components": {"busy": [[1], [0.52]], "restarts": [[1], [1]]}}


@pytest.mark.parametrize(
    ("changed", "out"),
    [
        ({}, False),
        ({"executed_per_s": 1040.0, "busy": 0.6, "queue_bytes": 9_000, "latency_p99_s": 3.0}, False),
        ({"executed_per_s": 2100.0}, True),
        ({"executed_per_s": 300.0}, True),
        ({"executed_per_s": 0.0}, True),
        ({"failed_per_s": 0.1}, True),
        ({"up": 1}, True),
        ({"tasks": 3}, True),
        ({"restarts": 3}, True),
        ({"name": "other"}, True),
    ],
)
def test_work_that_begins_or_ends_stands_out(changed: dict[str, Any], out: bool) -> None:
    shown, now = load_reply().load, load_reply().load
    now.components[1] = msgspec.structs.replace(now.components[1], **changed)
    assert live.stands_out(shown, now) is out
    assert live.stands_out(now, shown) is out


def test_who_holds_the_spouts_and_what_the_topology_does_stand_out() -> None:
    shown = load_reply().load
    for changed in ({"culprits": []}, {"state": "PAUSED"}, {"cause": "why"}, {"plan_version": 2}):
        assert live.stands_out(shown, msgspec.structs.replace(shown, **changed))
    later = msgspec.structs.replace(shown, at=shown.at + 1, held=0.9)
    assert not live.stands_out(shown, later)


def rows(snapshot: Snapshot) -> list[str]:
    return [one.name for one in snapshot.load.components] if snapshot.load is not None else []


@given(snapshots())
def test_nothing_changed_is_an_empty_delta(state: Snapshot) -> None:
    assert live.delta(state, state) == Delta(fields={}, tables={})


@pytest.mark.parametrize(
    ("name", "value", "sent"),
    [
        ("busy", 0.98765, 0.99),
        ("emitted_per_s", 41_234.5, 41_200),
        ("latency_p99_s", 0.0123456, 0.0123),
        ("cpu", 0.98765, 0.99),
        ("cpu", 0.0123, 0.012),
        ("queue_bytes", 1_234_567, 1_230_000),
        ("memory_bytes_max", 99, 99),
        ("pending", 1_234, 1_230),
        ("dead_letters", 1_234, 1_234),
        ("silent_s", 0.31, 0),
        ("at", 1_764_000_000.12345, 1_764_000_000.123),
        ("held", float("inf"), float("inf")),
        ("up", True, True),
        ("state", "RUNNING", "RUNNING"),
    ],
)
def test_a_figure_has_the_digits_that_are_shown(name: str, value: Any, sent: Any) -> None:
    assert live.rounded(name, value) == sent
    assert type(live.rounded(name, value)) is type(sent)
    assert live.rounded(name, sent) == sent, "what is sent does not change by being sent again"


def test_a_message_is_one_event() -> None:
    body = live.message("delta", Delta(fields={"topology.cause": "a\n\ndata: forged\r\n"}), "x-1")
    assert body.count(b"\n\n") == 1 and body.endswith(b"\n\n")
    assert body.count(b"\n") == 4 and b"\r" not in body


def test_a_median_is_never_shown_above_the_99th_percentile() -> None:
    def snapshot(p50: float, p99: float) -> Snapshot:
        load = load_reply().load
        load.components[1].latency_p50_s, load.components[1].latency_p99_s = p50, p99
        return Snapshot(
            level="component", topology=None, topologies=None, plan=None, load=load, tasks=None, silent_s=None
        )

    def shown(was: tuple[float, float], now: tuple[float, float]) -> tuple[float | None, float | None]:
        load = live.settled(snapshot(*was), snapshot(*now)).load
        assert load is not None
        return load.components[1].latency_p50_s, load.components[1].latency_p99_s

    assert shown((75.0, 99.1), (99.5, 99.9)) == (99.5, 99.9), "the 99th percentile has hardly moved, but is passed"
    assert shown((99.1, 120.0), (98.9, 99.0)) == (98.9, 99.0)
    assert shown((99.1, 120.0), (98.9, 119.9)) == (99.1, 120.0)
