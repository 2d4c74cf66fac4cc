"""Rows of the history say what the topology master has said; a store that fails never fails its tracker."""

from __future__ import annotations

import logging
import math
import sqlite3
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.proto import control_pb2
from heronpy.tmaster.minutes import SERIES, Minutes
from heronpy.tracker import history_store
from heronpy.tracker.history import KEPT, MINUTES_KEPT, STEP, Layout, Row, compacted, how_ended, rows_of, timeline
from heronpy.tracker.history import rows_of_ledger as of_ledger
from heronpy.tracker.history_store import Run, Store
from heronpy.views.past import Event

FIGURES = st.none() | st.floats(0, 1e6, width=32)
NAMES = ("emitted", "busiest", "restarts", "up")


@st.composite
def days(draw: st.DrawFn) -> Minutes:
    """Some minutes with gaps, whose components change."""
    minutes = Minutes()
    number = draw(st.integers(1, 40))
    for _ in range(draw(st.integers(1, 30))):
        components = draw(st.lists(st.sampled_from(["", "a", "b"]), min_size=1, unique=True))
        minutes.add(number, {one: {name: draw(FIGURES) for name in NAMES} for one in components})
        number += draw(st.integers(1, 4))
    return minutes


def series(reply: control_pb2.TimelineReply) -> dict[tuple[str, str], bytes]:
    return {(one.component, one.name): one.values for one in reply.series}


@settings(max_examples=40)
@given(minutes=days(), points=st.integers(1, 40))
def test_the_history_answers_as_the_topology_master_did(minutes: Minutes, points: int) -> None:
    everything = minutes.query(control_pb2.GetTimeline())
    rows = rows_of(everything)
    if not rows:
        return  # nothing but unknown figures
    mine, theirs = timeline(rows, (), NAMES, points), minutes.query(control_pb2.GetTimeline(names=NAMES, points=points))
    if (
        rows[0].number * 60 == everything.first
        and rows[-1].number * 60 == everything.first + (everything.points - 1) * 60
    ):
        assert (mine.first, mine.step_s, mine.points) == (theirs.first, theirs.step_s, theirs.points)
        assert series(mine) == series(theirs)
    assert mine.points <= points


@settings(max_examples=40)
@given(minutes=days())
def test_what_a_kill_leaves_is_the_same_rows(minutes: Minutes) -> None:
    of_answer = timeline(rows_of(minutes.query(control_pb2.GetTimeline())), (), NAMES, 1000)
    rows = of_ledger(minutes.ledger("x"))
    told = [one for one in rows if not all(map(math.isnan, one.values()))]
    assert series(timeline(told, (), NAMES, 1000)) == series(of_answer)
    damaged = minutes.ledger("x")
    damaged.minutes[0].values += b"x"
    assert len(of_ledger(damaged)) == len(rows) - 1


@settings(max_examples=40)
@given(minutes=days())
def test_ten_minutes_keep_sums_and_extremes(minutes: Minutes) -> None:
    rows = rows_of(minutes.query(control_pb2.GetTimeline()))
    joined = compacted(rows)
    assert all(row.step == STEP and row.number % STEP == 0 for row in joined)
    assert len({row.number for row in joined}) == len(joined) <= len(rows)
    for name, whole in (("busiest", max), ("restarts", math.fsum)):
        for before, after in ((values(rows, name), values(joined, name)),):
            assert before.keys() == after.keys()
            for component in before:
                assert math.isclose(whole(before[component]), whole(after[component]), rel_tol=1e-4, abs_tol=1e-4)
    assert set(NAMES) <= set(SERIES)


def values(rows: list[Row], name: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        for place, component in enumerate(row.layout.components):
            if name in row.layout.series:
                value = row.values()[place * len(row.layout.series) + row.layout.series.index(name)]
                if not math.isnan(value):
                    found.setdefault(component, []).append(value)
    return found


def test_how_it_ended_follows_from_its_last_state() -> None:
    assert [how_ended(last) for last in ("finished", "failed", "running", "")] == [
        "finished", "failed", "killed", "killed",
    ]  # fmt: skip


# ---- the store --------------------------------------------------------------------------------

LAYOUT = Layout(("", "a"), ("emitted",))


def row(number: int) -> Row:
    return rows_of_numbers([number])[0]


def rows_of_numbers(numbers: list[int]) -> list[Row]:
    return [Row(number, 1, LAYOUT, struct.pack("<2f", number, 1.0)) for number in numbers]


def run(name: str, ended_at: float | None = None) -> Run:
    return Run(f"{name}-id", "local", name, b"", 1e9, ended_at)


def happened(number: int, first_at: float | None = None, times: int = 1) -> Event:
    return Event(
        number=number, at=float(number), first_at=first_at or float(number), times=times, kind="backpressure",
        subject="a", reason="", text="held", lasted_s=1.0, warning=True, detail="",
    )  # fmt: skip


def numbers(bodies: list[bytes]) -> list[int]:
    return [msgspec.json.decode(body, type=Event).number for body in bodies]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A private folder; all stores are closed at the end."""
    tmp_path.chmod(0o700)
    stores: list[Store] = []
    begin = Store.__init__

    def noted(store: Store, folder: Path, bytes_max: int = history_store.BYTES_MAX) -> None:
        begin(store, folder, bytes_max)
        stores.append(store)

    monkeypatch.setattr(Store, "__init__", noted)
    yield tmp_path
    for store in stores:
        store.close()


def test_only_its_user_reads_it(folder: Path) -> None:
    store = Store(folder)
    assert store.see(run("one")) and store.put("one-id", [("plan", b"{}")])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == dict.fromkeys(("history.db", "history.db-wal", "history.db-shm"), 0o600)
    store.close()
    assert Store(folder).document("one-id", "plan") == b"{}"


def test_old_minutes_are_joined_and_the_oldest_go(folder: Path) -> None:
    store, now = Store(folder), 3_000_000
    store.see(run("one"))
    store.add_minutes("one-id", rows_of_numbers([*range(now - KEPT - 5, now - KEPT + 25), *range(now - 5, now)]))
    store.tidy(now * 60.0)
    kept = store.minutes("one-id", 0, now)
    assert [one.step for one in kept] == [STEP] * (len(kept) - 5) + [1] * 5
    assert kept[0].number >= now - KEPT and kept[-1] == row(now - 1)
    assert store.span("one-id") == (kept[0].number, now)
    before = len(kept)
    store.tidy(now * 60.0)
    assert len(store.minutes("one-id", 0, now)) == before
    store.tidy((now + MINUTES_KEPT + 20) * 60.0)
    assert {one.step for one in store.minutes("one-id", 0, now)} == {STEP}


def test_events_and_ended_topologies_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_store, "EVENTS_MAX", 10)
    monkeypatch.setattr(history_store, "ENDED_MAX", 2)
    store = Store(folder)
    for number, name in enumerate("abc"):
        store.see(run(name))
        store.add_events(f"{name}-id", [happened(at) for at in range(1, 31)])
        store.add_minutes(f"{name}-id", rows_of_numbers([1, 2]))
        store.see(run(name, 1e9 + number))
    assert numbers(store.events("c-id", 0, 1000, 1000)) == list(range(21, 31))
    assert numbers(store.events("c-id", 22, 30, 3)) == [27, 28, 29] and store.last_event("c-id") == 30
    assert [one.name for one in store.runs()] == ["c", "b"]
    assert store.minutes("a-id", 0, 10) == [] and store.last_event("a-id") == 0
    assert store.add_events("a-id", [happened(1)]) and store.events("a-id", 0, 9, 9) == []


def test_a_repetition_takes_the_place_of_what_it_repeats(folder: Path) -> None:
    store = Store(folder)
    store.see(run("one"))
    store.add_events("one-id", [happened(1), happened(2), happened(3, first_at=1.0, times=2)])
    assert numbers(store.events("one-id", 0, 9, 9)) == [2, 3]
    store.add_events("one-id", [happened(4, first_at=1.0, times=3)])
    assert numbers(store.events("one-id", 0, 9, 9)) == [2, 4]


@pytest.mark.parametrize("how", ["no database", "another release", "damaged inside"])
def test_a_file_that_cannot_be_used_is_set_aside(how: str, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = folder / history_store.FILE
    if how == "no database":
        path.write_bytes(b"this is no database" * 500)
    else:
        store = Store(folder)
        store.see(run("one"))
        store.add_minutes("one-id", rows_of_numbers(list(range(2000))))
        store.close()
        if how == "another release":
            with sqlite3.connect(path) as connection:
                connection.execute("PRAGMA user_version = 999")
            connection.close()
        else:
            data = path.read_bytes()
            path.write_bytes(data[:4096] + bytes([0xA5]) * (len(data) - 4096))
    store = Store(folder)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):  # what finds the damage loses its answer, and no more
            store.see(run("two"))
    assert [one.name for one in store.runs()] == ["two"] and store.trouble == ""
    [said] = [one.getMessage() for one in caplog.records if "new history begins" in one.getMessage()]
    assert str(path) in said and (folder / history_store.ASIDE).exists()


def test_a_full_disk_is_said_once_and_room_is_used_again(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(folder, bytes_max=400_000)
    store.see(run("old", 1.0))
    store.put("old-id", [("plan", b"x" * 200_000)])
    store.see(run("new"))
    with caplog.at_level(logging.ERROR):
        results = [store.put("new-id", [(f"kind-{number}", b"x" * 50_000)]) for number in range(6)]
        store.put("new-id", [("more", b"x" * 200_000)])
    assert results[0] and not results[-1]
    assert len([one for one in caplog.records if "goes on without" in one.getMessage()]) == 1
    assert "full" in store.trouble
    store.tidy(1e9)
    assert [one.name for one in store.runs()] == ["new"]
    assert store.put("new-id", [("more", b"x" * 50_000)]) and store.trouble == ""


def test_a_folder_that_is_gone_ends_nothing(folder: Path) -> None:
    store = Store(folder / "nowhere")
    assert not store.see(run("one")) and store.runs() == [] and store.document("one-id", "plan") is None
    assert "history cannot be used" in store.trouble
