"""A leak is told by half a minute of steady growth, well before its first end; memory that settles is not one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.health.diagnose import diagnose
from heronpy.health.recording import to_json
from heronpy.health.signals import Signals
from heronpy.health.texts import advice, sentence
from heronpy.health.trends import steady_growth
from heronpy.proto import control_pb2
from heronpy.tmaster.task_reports import POINTS_MAX, TaskReports
from heronpy.views.findings import Verdict
from tests.health.diagnose_cases import bolt, signals
from tests.support.histories import from_json

MB = 1 << 20


def report(grows: Callable[[float], float], at: float, epoch: int = 1) -> control_pb2.MetricsReport:
    found = control_pb2.MetricsReport(process="count-2", task_id=2, component="count", epoch=epoch)
    found.samples.add(name="__py-physical-memory-byte", value=grows(at) * MB)
    return found


def store_of(grows: Callable[[float], float], until_s: int) -> TaskReports:
    """What a topology master keeps of a task that reports its memory, in MB, each second."""
    store = TaskReports()
    for second in range(until_s + 1):
        store.take(report(grows, second), float(second))
    return store


def look(store: TaskReports, now: float, used_mb: float, limit_mb: float, ended: bool = False) -> Signals:
    hot = store.hot_spots("", (), now)
    return signals(
        bolt(2, memory_bytes=int(used_mb * MB)), bolt(3, memory_bytes=45 * MB), hot_spots=hot,
        memory_limits={"count": int(limit_mb * MB)}, out_of_memory={"count-2": (1, "peak 121MB")} if ended else {},
    )  # fmt: skip


def said(grows: Callable[[float], float], limit_mb: float, until_s: int) -> Iterator[tuple[int, str]]:
    """The seconds at which it is told, with the sentence."""
    store = TaskReports()
    for second in range(until_s + 1):
        store.take(report(grows, second), float(second))
        for one in diagnose(look(store, float(second), grows(second), limit_mb)):
            if one.verdict is Verdict.MEMORY:
                yield second, sentence(one, "wc")


def test_a_leak_is_told_before_its_first_end() -> None:
    """1.6 MB a second from 45 MB to a limit of 120 MB: it ended after 47 s, and was told as a leak after 96 s."""
    told = list(said(lambda s: 45 + 1.6 * s, 120, 46))
    assert 34 <= told[0][0] <= 38 and told[-1][0] == 46, "and from then on, until it ends"
    assert [second for second, _ in told] == list(range(told[0][0], 47))
    assert told[0][1].startswith("memory of count-2 grows by 96MB per minute, for 3")
    assert told[0][1].endswith(", its siblings have 45MB; at this rate it reaches its limit of 120MB in 11s")


def test_what_may_be_a_cache_that_fills_is_not_called_a_leak() -> None:
    """It grows as a leak does until it is full, here at 115 MB after 44 s: nothing tells them apart before."""
    store = store_of(lambda s: 45 + min(1.6 * s, 70.0), 40)
    [found] = diagnose(look(store, 40.0, 109, 120))
    assert sentence(found, "wc").startswith("memory of count-2 grows by 96MB per minute")
    assert advice(found, "local", "wc").startswith(
        "heron heap local wc count-2 shows its objects; a cache may stop growing before that; otherwise keep fewer objects"
    )
    for second in range(41, 90):
        store.take(report(lambda s: 45 + min(1.6 * s, 70.0), second), float(second))
    [full] = diagnose(look(store, 89.0, 115, 140))
    assert full.verdict is not Verdict.MEMORY, "it has filled"


def test_a_slower_leak_is_told_when_it_is_half_way_to_its_limit() -> None:
    """A megabyte in three seconds: 225 s to the limit, and minutes tell after five of them."""
    told = list(said(lambda s: 45 + s / 3, 120, 224))
    assert told and 100 <= told[0][0] <= 130


def test_of_a_leak_that_ended_once_it_is_said_how_fast_it_grew() -> None:
    store = store_of(lambda s: 45 + 1.6 * s, 46)
    store.take(report(lambda s: 45.0, 50, epoch=2), 50.0)
    [found] = diagnose(look(store, 50.0, 45, 120, ended=True))
    assert sentence(found, "wc") == "count-2 ran out of memory once, growing by 96MB per minute: peak 121MB"
    assert not look(store, 400.0, 45, 120).hot_spots, "that is long ago"


@pytest.mark.parametrize(
    "grows",
    [
        lambda s: 45 + 60 * (1 - math.exp(-s / 15)),
        lambda s: 45 + 70 * (1 - math.exp(-s / 60)),
        lambda s: 45 + min(s * 4.0, 65.0),
        lambda s: 45 + min(s * 0.5, 30.0),
        lambda s: 60 + (s % 25) * 2.0,
        lambda s: 45 + (s % 60) * 0.5,
        lambda s: 45.0 if s < 50 else 110.0,
        lambda s: 100 + 5 * math.sin(s / 3),
        lambda s: 110 - s / 10,
        lambda s: 45 + s * 0.05,
    ],
    ids=["warms up", "warms up slowly", "a cache that fills at once", "a cache that fills to a third", "saw-tooth",
         "a slow saw-tooth", "a jump", "waves", "falls", "has time"],
)  # fmt: skip
def test_what_settles_is_never_told(grows: Callable[[float], float]) -> None:
    assert list(said(grows, 120, 200)) == []


@given(st.lists(st.tuples(st.floats(0, 200), st.floats(0, 1e12)), max_size=40))
def test_any_trail_is_read(trail: list[tuple[float, float]]) -> None:
    trail.sort(reverse=True)
    growth = steady_growth(trail)
    assert growth is None or (growth.per_s > 0 and growth.seen_s >= 30.0)


def test_a_trail_is_bounded_and_of_one_process() -> None:
    store = store_of(lambda s: 45 + s, 1000)
    store.take(report(lambda s: 9.0, 1001, epoch=0), 1001.0)
    found = store.hot_spots("", (), 1001.0)
    assert list(found) == ["count-2"]
    assert len(found["count-2"].memory) == POINTS_MAX and not found["count-2"].memory_before
    store.forget("count-2")
    assert not store.hot_spots("", (), 1001.0)


def test_a_trail_is_part_of_a_recorded_history() -> None:
    found = look(store_of(lambda s: 45 + 1.6 * s, 46), 46.0, 118, 120)
    again = from_json(to_json(found))
    assert diagnose(again)[0].verdict is Verdict.MEMORY
