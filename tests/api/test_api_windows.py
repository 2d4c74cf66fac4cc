"""Window bolts: what is in a window, when tuples are acked, and state."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api import api_constants
from heronpy.api.bolt.window_bolt import SlidingWindowBolt, TumblingWindowBolt, WindowContext
from heronpy.api.state.state import HashMapState
from heronpy.api.tuple import Tuple

SECS, MS = api_constants.TOPOLOGY_TICK_TUPLE_FREQ_SECS, api_constants.TOPOLOGY_TICK_TUPLE_FREQ_MS


class Delegate:
    logger = logging.getLogger("test")

    def __init__(self) -> None:
        self.acked: list[Any] = []

    def ack(self, tup: Any) -> None:
        self.acked.append(tup.values[0])


class _Recording:
    now = 0.0

    def clock(self) -> float:
        return self.now

    def processWindow(self, window_info: WindowContext, tuples: list[Any]) -> None:
        self.windows.append((window_info.start, window_info.end, [t.values[0] for t in tuples]))

    def arrive(self, at: float, value: Any) -> None:
        self.now = at
        self.process(Tuple(str(value), "c", "default", 1, (value,)))  # type: ignore[attr-defined]
        if self.current_tuples:  # type: ignore[attr-defined]
            self.newest = self.current_tuples[-1][1]  # type: ignore[attr-defined]

    def tick(self, at: float) -> None:
        self.now = at
        self.process_tick(None)  # type: ignore[attr-defined]

    @property
    def windows(self) -> list[Any]:
        return self.__dict__.setdefault("_windows", [])


class Sliding(_Recording, SlidingWindowBolt):
    pass


class Tumbling(_Recording, TumblingWindowBolt):
    pass


def sliding(duration: float, slide: float, state: Any = None, start: float = 0.0, **config: Any) -> Sliding:
    bolt = Sliding(Delegate())
    bolt.now = start
    if state is not None:
        bolt.init_state(state)
    bolt.config = {
        SlidingWindowBolt.WINDOW_DURATION_SECS: duration,  # type: ignore[attr-defined]
        SlidingWindowBolt.WINDOW_SLIDEINTERVAL_SECS: slide,
        **config,
    }
    bolt.initialize(bolt.config, None)  # type: ignore[arg-type, attr-defined]
    return bolt


def tumbling(duration: float, state: Any = None, start: float = 0.0) -> Tumbling:
    bolt = Tumbling(Delegate())
    bolt.now = start
    if state is not None:
        bolt.init_state(state)
    bolt.config = {TumblingWindowBolt.WINDOW_DURATION_SECS: duration}  # type: ignore[attr-defined]
    bolt.initialize(bolt.config, None)  # type: ignore[arg-type, attr-defined]
    return bolt


def test_sliding_windows_overlap_and_ack_on_leaving() -> None:
    bolt = sliding(10, 5)
    bolt.arrive(1, "a")
    bolt.arrive(5, "b")
    bolt.tick(5)
    bolt.arrive(6, "c")
    bolt.tick(10)
    assert bolt.delegate.acked == []
    bolt.tick(15)
    assert bolt.windows == [(-5, 5, ["a", "b"]), (0, 10, ["a", "b", "c"]), (5, 15, ["c"])]
    assert bolt.delegate.acked == ["a", "b"]


def test_tumbling_windows() -> None:
    bolt = tumbling(10)
    bolt.arrive(1, "a")
    bolt.arrive(2, "b")
    bolt.tick(10)
    assert bolt.delegate.acked == ["a", "b"]
    bolt.arrive(11, "c")
    bolt.tick(20)
    assert bolt.windows == [(0, 10, ["a", "b"]), (10, 20, ["c"])]
    assert bolt.delegate.acked == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("seconds", "tick"), [(5, {SECS: 5}), (2.0, {SECS: 2}), ("3", {SECS: 3}), (0.25, {MS: 250}), (1.5, {MS: 1500})]
)
def test_tick_frequency_is_set(seconds: Any, tick: dict[str, int]) -> None:
    for config in (sliding(10, seconds).config, tumbling(seconds).config):  # type: ignore[attr-defined]
        assert {k: v for k, v in config.items() if k in (SECS, MS)} == tick


def test_own_tick_frequency_replaces_the_configured() -> None:
    assert MS not in sliding(10, 5, **{MS: 100}).config  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [0, -1, "x", None, float("inf"), float("nan")])
def test_wrong_durations(value: Any) -> None:
    with pytest.raises(ValueError, match="tumblingwindowbolt_duration_secs"):
        tumbling(value)


def test_missing_duration() -> None:
    with pytest.raises(ValueError, match="slidingwindowbolt_duration_secs"):
        Sliding(Delegate()).initialize({}, None)  # type: ignore[arg-type]


def test_warns_when_tuples_time_out_in_the_window(caplog: pytest.LogCaptureFixture) -> None:
    mode = {api_constants.TOPOLOGY_RELIABILITY_MODE: "ATLEAST_ONCE"}
    sliding(30, 5, **mode, **{api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS: 60})
    assert caplog.text == ""
    sliding(30, 5, **mode, **{api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS: 35})
    assert "longer timeout" in caplog.text


def test_default_clock_runs() -> None:
    class Plain(TumblingWindowBolt):
        def processWindow(self, window_info: WindowContext, tuples: list[Any]) -> None:
            self.info = window_info

    bolt = Plain(Delegate())
    bolt.initialize({TumblingWindowBolt.WINDOW_DURATION_SECS: 1}, None)  # type: ignore[arg-type]
    bolt.process_tick(None)
    assert 1.6e9 < bolt.info.start <= bolt.info.end


def checkpoint(bolt: Any) -> HashMapState:
    bolt.pre_save("1")
    state: HashMapState = pickle.loads(pickle.dumps(bolt.saved_state))
    return state


@pytest.mark.parametrize("kind", ["sliding", "tumbling"])
def test_windows_survive_a_checkpoint_and_are_not_acked_again(kind: str) -> None:
    def make(state: Any, start: float) -> Any:
        if kind == "sliding":
            return sliding(10, 10, state, start)
        return tumbling(10, state, start)

    first = make(HashMapState(), 0)
    first.arrive(1, "a")
    first.arrive(4, "b")
    second = make(checkpoint(first), 6)
    second.arrive(7, "c")
    third = make(checkpoint(second), 8)
    third.arrive(9, "d")
    third.tick(10)
    third.tick(20)
    assert third.windows == [(0, 10, ["a", "b", "c", "d"]), (10, 20, [])]
    assert third.delegate.acked == ["d"]


def test_nothing_is_lost_when_the_clock_stands_still() -> None:
    for bolt in (tumbling(10), sliding(10, 10)):
        bolt.arrive(0, "a")
        bolt.tick(0)
        bolt.arrive(0, "b")
        bolt.tick(0)
        assert [w[2] for w in bolt.windows][-1] == ["b"] or bolt.windows[-1][2] == ["a", "b"]
        bolt.arrive(0, "c")
        bolt.finish()
        assert {v for w in bolt.windows for v in w[2]} == {"a", "b", "c"}
        assert bolt.delegate.acked == ["a", "b", "c"]


def test_pre_save_without_state_does_nothing() -> None:
    tumbling(1).pre_save("1")


def test_finish_processes_the_rest_once() -> None:
    for bolt in (tumbling(10), sliding(10, 5)):
        bolt.arrive(1, "a")
        bolt.now = 3
        bolt.finish()
        bolt.finish()
        assert [w[2] for w in bolt.windows] == [["a"]]
        assert bolt.delegate.acked == ["a"]


def test_gaps_between_windows_forget_tuples_at_once() -> None:
    bolt = sliding(1, 10)
    bolt.arrive(1, "a")
    bolt.arrive(5, "b")
    assert bolt.delegate.acked == ["a"]
    bolt.arrive(9.5, "c")
    bolt.tick(10)
    assert bolt.windows == [(9, 10, ["c"])]


@pytest.mark.parametrize(("duration", "slide"), [(20, 20), (5, 20)])
def test_a_tuple_is_acked_within_the_time_that_submit_allows_for(duration: float, slide: float) -> None:
    """No further tuple comes: a tick acks it, so it is not replayed and counted again."""
    for arrived in (0.5, 14.9, 15.1, 19.9):
        bolt = sliding(duration, slide)
        bolt.arrive(arrived, "a")
        bolt.tick(20.3)
        assert bolt.delegate.acked == ["a"], arrived
        bolt.tick(40)
        assert sum("a" in values for _, _, values in bolt.windows) <= 1


gaps = st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=40)


@given(st.integers(1, 10), st.integers(1, 10), gaps)
def test_every_tuple_is_in_a_window_and_none_is_too_old(
    duration: int, slide: int, steps: list[tuple[bool, int]]
) -> None:
    """Ticks may come at any time, also very late."""
    duration = max(duration, slide)
    bolt = sliding(duration, slide)
    arrivals: dict[int, float] = {}
    now = 0.0
    for is_tick, gap in steps:
        now += gap / 4
        if is_tick:
            bolt.tick(now)
        else:
            bolt.arrive(now, len(arrivals))
            arrivals[len(arrivals)] = bolt.newest
            assert bolt.newest - now < 1e-9
    bolt.finish()
    seen = {value for _, _, values in bolt.windows for value in values}
    assert seen == set(arrivals)
    for start, end, values in bolt.windows:
        assert end - start == pytest.approx(duration)
        assert all(start < arrivals[value] <= end for value in values)
    if duration == slide:
        assert sum(len(values) for _, _, values in bolt.windows) == len(arrivals), "a tuple is in two of them"
    assert bolt.delegate.acked == list(arrivals)
    assert not bolt.current_tuples
