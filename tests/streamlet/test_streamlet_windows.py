"""Windows, reductions and joins of streamlets, on the simulator."""

from __future__ import annotations

import datetime
import itertools
import operator
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.simulator import SimulationError, Simulator
from heronpy.streamlet import (
    Builder,
    Config,
    KeyedWindow,
    Runner,
    Streamlet,
    StreamletError,
    Window,
    WindowConfig,
)
from tests.streamlet.simulated import TEN_S, Items, RunningSum, elements, results, simulate


def test_reduce_by_window_begins_with_the_first_element() -> None:
    [(window, total)] = results(lambda s: s.reduce_by_window(TEN_S, operator.add), 1, 2, 3)
    assert isinstance(window, Window)
    assert total == 6


def test_reduce_by_window_without_elements_gives_none() -> None:
    builder = Builder()
    builder.new_source(lambda: None).reduce_by_window(TEN_S, operator.add).set_name("sums")
    simulator = Simulator(Runner().build("test", Config(), builder))
    simulator.run(seconds=20)
    [(first, one), (second, two)] = elements(simulator, "sums")
    assert (one, two) == (None, None)
    assert (first.end - first.start, second.start) == (10, first.end)


def test_reduce_by_key_and_window() -> None:
    pairs = [("a", 1), ("b", 2), ("a", 3)]
    found = results(lambda s: s.reduce_by_key_and_window(TEN_S, operator.add), *pairs)
    assert {keyed.key: total for keyed, total in found} == {"a": 4, "b": 2}
    assert all(isinstance(keyed, KeyedWindow) for keyed, _ in found)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.text(max_size=3), st.integers(0, 5), st.booleans(), st.floats(0, 5)),
            st.integers(0, 9),
        ),
        max_size=30,
    ),
    st.integers(0, 99),
)
def test_equal_keys_meet_in_one_partition(pairs: list[tuple[Any, int]], seed: int) -> None:
    def describe(source: Streamlet) -> Streamlet:
        spread = source.repartition(3)  # three senders must agree on the partition of a key
        return spread.reduce_by_key_and_window(TEN_S, operator.add).set_num_partitions(4)

    expected: Counter[Any] = Counter()
    for key, value in pairs:
        expected[key] += value
    found = results(describe, *pairs, seed=seed)
    assert len(found) == len(expected)
    assert {keyed.key: total for keyed, total in found} == dict(expected)


def test_tumbling_windows_never_overlap_when_ticks_are_late() -> None:
    def steady() -> int:
        time.sleep(0.1)
        return 1

    def slow_sum(one: int, two: int) -> int:
        time.sleep(0.013)  # delays the tick after next by another odd amount
        return one + two

    builder = Builder()
    windows = WindowConfig.create_tumbling_window(1)
    builder.new_source(steady).set_name("items").reduce_by_window(windows, slow_sum).set_name("sums")
    simulator = Simulator(Runner().build("test", Config(), builder))
    simulator.run(seconds=20)
    found = elements(simulator, "sums")
    assert all(one.end == two.start for (one, _), (two, _) in itertools.pairwise(found))
    seen = sum(total for _, total in found)
    waiting = len(simulator.task("sums").current_tuples)
    assert seen + waiting == len(simulator.executed("sums"))


def test_windows_and_operators_survive_a_restore() -> None:
    config = Config()
    config.set_delivery_semantics(Config.EFFECTIVELY_ONCE)
    config.set_user_config("factor", 1)
    builder = Builder()
    source = builder.new_source(lambda: None).set_name("items")
    source.transform(RunningSum()).set_name("running")
    source.reduce_by_window(TEN_S, operator.add).set_name("sums")
    simulator = Simulator(Runner().build("test", config, builder))
    for component in ("running", "sums"):
        simulator.inject(component, [5])
    simulator.checkpoint()
    for component in ("running", "sums"):
        simulator.inject(component, [100])
    simulator.run(seconds=1)
    simulator.restore()
    for component in ("running", "sums"):
        simulator.inject(component, [2])
    simulator.run(seconds=10)
    assert elements(simulator, "running")[-2] == 7
    assert [total for _, total in elements(simulator, "sums")] == [7]


JOINS = {
    "join": {("a", "1x"), ("a", "1y"), ("a", "2x"), ("a", "2y")},
    "outer_left_join": {("a", "1x"), ("a", "1y"), ("a", "2x"), ("a", "2y"), ("b", "3None")},
    "outer_right_join": {("a", "1x"), ("a", "1y"), ("a", "2x"), ("a", "2y"), ("c", "Nonez")},
    "outer_join": {
        ("a", "1x"),
        ("a", "1y"),
        ("a", "2x"),
        ("a", "2y"),
        ("b", "3None"),
        ("c", "Nonez"),
    },
}


@pytest.mark.parametrize("kind", JOINS)
def test_joins(kind: str) -> None:
    builder = Builder()
    left = builder.new_source(Items(("a", 1), ("a", 2), ("b", 3))).set_num_partitions(2)
    right = builder.new_source(Items(("a", "x"), ("c", "z"), ("a", "y")))
    joined = getattr(left, kind)(right, TEN_S, lambda one, two: f"{one}{two}").set_name("joined")
    assert joined.get_num_partitions() == 2
    found = elements(simulate(builder), "joined")
    assert {(keyed.key, result) for keyed, result in found} == JOINS[kind]
    assert len(found) == len(JOINS[kind])


def test_join_with_itself() -> None:
    builder = Builder()
    source = builder.new_source(Items(("a", 1), ("b", 2)))
    source.join(source, TEN_S, operator.add).set_name("joined")
    found = elements(simulate(builder), "joined")
    assert {(keyed.key, total) for keyed, total in found} == {("a", 2), ("b", 4)}


def test_overlapping_windows_join_again_in_each() -> None:
    def slow(items: list[Any]) -> Callable[[], Iterator[Any]]:
        def supply() -> Iterator[Any]:
            for item in items:
                time.sleep(0.3)
                yield item
            time.sleep(1.5)
            yield ("end", 0)

        return supply

    window = WindowConfig.create_sliding_window(1, datetime.timedelta(milliseconds=500))
    builder = Builder()
    left, right = builder.new_source(slow([("a", 1)])), builder.new_source(slow([("a", 10)]))
    left.join(right, window, operator.add).set_name("joined")
    found = [(k.key, v) for k, v in elements(simulate(builder), "joined") if k.key == "a"]
    assert found == [("a", 11), ("a", 11)]


@pytest.mark.parametrize("element", ["ab", 7, (1, 2, 3)])
def test_elements_that_are_no_pairs_are_named(element: Any) -> None:
    with pytest.raises(SimulationError, match=r"items\[0\].*\(key, value\) pairs"):
        results(lambda s: s.reduce_by_key_and_window(TEN_S, operator.add), element)


def test_window_config() -> None:
    day = WindowConfig.create_tumbling_window(datetime.timedelta(days=1, milliseconds=500))
    assert (day.duration_s, day.slide_s) == (86400.5, 86400.5)
    assert WindowConfig.create_tumbling_window(10).duration_s == 10
    assert WindowConfig.create_sliding_window(0.5, 0.25).slide_s == 0.25
    for wrong in (0, -1, "10", True, float("nan"), datetime.timedelta(0)):
        with pytest.raises(StreamletError):
            WindowConfig.create_tumbling_window(wrong)  # type: ignore[arg-type]
    with pytest.raises(StreamletError, match="longer than the window"):
        WindowConfig.create_sliding_window(1, 2)
