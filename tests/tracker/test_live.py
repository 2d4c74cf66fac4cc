"""A viewer that applies deltas has what a new viewer's snapshot has, whatever it has missed in between."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from heronpy.tracker import live
from heronpy.views.build_load import load_of
from heronpy.views.live import Delta, Snapshot
from heronpy.views.load import Load
from tests.tracker.conftest import load_reply

NAMES = st.lists(st.sampled_from("abcd"), unique=True, max_size=4)
FIGURE = st.none() | st.floats(0, 1e8) | st.sampled_from([0.0, 1.0, 0.125, 12345.678])


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    load: Load | None = None
    if draw(st.booleans()):
        load = load_of(load_reply(), draw(st.integers(0, 2)))
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


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else live.rounded(value)


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


def rows(snapshot: Snapshot) -> list[str]:
    return [one.name for one in snapshot.load.components] if snapshot.load is not None else []


@given(snapshots())
def test_nothing_changed_is_an_empty_delta(state: Snapshot) -> None:
    assert live.delta(state, state) == Delta(fields={}, tables={})


def test_a_message_is_one_event() -> None:
    body = live.message("delta", Delta(fields={"topology.cause": "a\n\ndata: forged\r\n"}), "x-1")
    assert body.count(b"\n\n") == 1 and body.endswith(b"\n\n")
    assert body.count(b"\n") == 4 and b"\r" not in body
