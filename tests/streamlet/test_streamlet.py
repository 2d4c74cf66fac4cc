"""Every operator of the functional API, run through the simulator."""

from __future__ import annotations

import datetime
import importlib
import itertools
import logging
import operator
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.simulator import SimulationError, Simulator
from heronpy.streamlet import (
    Builder,
    Config,
    Context,
    Generator,
    KeyedWindow,
    Resources,
    Runner,
    Streamlet,
    StreamletError,
    TransformOperator,
    Window,
    WindowConfig,
)

TEN_S = WindowConfig.create_tumbling_window(10)


class Items(Generator):
    """The given items, then the end of the input."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def setup(self, context: Context) -> None:
        index, count = context.get_partition_index(), context.get_num_partitions()
        self.rest = iter(self.items[index::count])

    def get(self) -> Any:
        return next(self.rest)


def simulate(builder: Builder, config: Config | None = None, seed: int = 0) -> Simulator:
    simulator = Simulator(Runner().build("test", config or Config(), builder), seed=seed)
    simulator.run()
    return simulator


def results(describe: Callable[[Streamlet], Streamlet], *items: Any, seed: int = 0) -> list[Any]:
    """What the operators make of the items."""
    builder = Builder()
    describe(builder.new_source(Items(*items)).set_name("items")).set_name("result")
    return elements(simulate(builder, seed=seed), "result")


def elements(simulator: Simulator, name: str) -> list[Any]:
    return [values[0] for values in simulator.emitted(name, "output")]


def test_modules_and_names_of_apache_heronpy_exist() -> None:
    for module, name in {
        "builder": "Builder",
        "config": "Config",
        "context": "Context",
        "generator": "Generator",
        "keyedwindow": "KeyedWindow",
        "resources": "Resources",
        "runner": "Runner",
        "streamlet": "Streamlet",
        "transformoperator": "TransformOperator",
        "window": "Window",
        "windowconfig": "WindowConfig",
        "impl.streamletboltbase": "StreamletBoltBase",
        "impl.streamletspoutbase": "StreamletSpoutBase",
        "impl.contextimpl": "ContextImpl",
        "impl.mapbolt": "MapBolt",
        "impl.joinbolt": "JoinBolt",
    }.items():
        assert hasattr(importlib.import_module(f"heronpy.streamlet.{module}"), name)


# -- sources ------------------------------------------------------------------------------------


def test_generator_source_ends_the_input() -> None:
    builder = Builder()
    builder.new_source(Items(1, 2, 3, 4)).set_num_partitions(2).map(lambda x: x)
    simulator = simulate(builder)
    assert simulator.is_finished
    assert sorted(elements(simulator, "map-1")) == [1, 2, 3, 4]


def test_function_source_and_none_for_nothing_now() -> None:
    answers = [1, None, 2, None]

    def supply() -> int | None:
        if not answers:
            raise StopIteration
        return answers.pop()

    builder = Builder()
    builder.new_source(supply).map(lambda x: x * 10)
    simulator = simulate(builder)
    assert simulator.is_finished
    assert elements(simulator, "supplier-1") == [2, 1]
    assert elements(simulator, "map-1") == [20, 10]


def test_generator_function_source() -> None:
    def count() -> Iterator[int]:
        yield from range(5)

    builder = Builder()
    builder.new_source(count).filter(lambda x: x % 2)
    assert elements(simulate(builder), "filter-1") == [1, 3]


def test_at_least_once_replays_failed_elements() -> None:
    config = Config()
    config.set_delivery_semantics(Config.ATLEAST_ONCE)
    builder = Builder()
    seen = builder.new_source(Items(*range(30))).set_name("items").map(lambda x: x)
    seen.set_name("mapped").reduce_by_window(TEN_S, operator.add).set_name("sums")
    simulator = Simulator(Runner().build("test", config, builder))
    while not simulator.pending("items"):
        simulator.run(max_steps=1)
    simulator.kill_task("mapped")
    simulator.run()
    assert simulator.is_finished
    assert len(simulator.failed("items")) > 0
    assert set(elements(simulator, "mapped")) == set(range(30))
    assert len(simulator.acked("items")) == 30
    assert sum(total or 0 for _, total in elements(simulator, "sums")) >= sum(range(30))


def test_source_without_tracking_sends_no_ids() -> None:
    builder = Builder()
    builder.new_source(Items(1, 2)).set_name("items").map(lambda x: x)
    assert simulate(builder).acked("items") == []


# -- one element at a time ----------------------------------------------------------------------


def test_map_filter_flat_map() -> None:
    assert results(lambda s: s.map(lambda x: (x, x + 1)), 1, 2) == [(1, 2), (2, 3)]
    assert results(lambda s: s.filter(lambda x: x > 1), 1, 2, 3) == [2, 3]
    assert results(lambda s: s.flat_map(str.split), "a b", "", "c") == ["a", "b", "c"]
    assert results(lambda s: s.flat_map(lambda x: x), "ab", 7) == ["a", "b", 7]


class RunningSum(TransformOperator):
    def setup(self, context: Context) -> None:
        self.context = context
        self.facts = (
            context.get_stream_name(),
            context.get_num_partitions(),
            context.get_partition_index(),
            context.get_config()["factor"],
        )

    def transform(self, tup: Any) -> None:
        state = self.context.get_state()
        state.put("sum", (state.get("sum") or 0) + tup)
        self.context.emit(state.get("sum"))
        self.context.emit(self.facts)


def test_transform() -> None:
    config = Config()
    config.set_user_config("factor", 3)
    builder = Builder()
    builder.new_source(Items(1, 2)).transform(RunningSum())
    simulator = simulate(builder, config)
    facts = ("output", 1, 0, 3)
    assert elements(simulator, "transform-1") == [1, facts, 3, facts]


def test_log_goes_to_the_logger_and_not_to_stdout(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = Builder()
    builder.new_source(Items("hello", ("a", 1))).log()
    with caplog.at_level(logging.INFO):
        simulate(builder)
    assert [record.getMessage() for record in caplog.records] == ["hello", "('a', 1)"]
    assert capsys.readouterr().out == ""


def test_consume(tmp_path: Path) -> None:
    out = tmp_path / "consumed"

    def consume(element: int) -> None:
        # The function travels by value, so its effect must be outside.
        with out.open("a") as file:
            file.write(f"{element}\n")

    builder = Builder()
    builder.new_source(Items(1, 2)).consume(consume)
    simulator = simulate(builder)
    assert out.read_text().split() == ["1", "2"]
    assert simulator.metrics("consume-1")["__ack-count/output"] == 2


# -- routing ------------------------------------------------------------------------------------


def partitions(simulator: Simulator, name: str) -> list[list[Any]]:
    """What each partition of a stage was given."""
    by_task: dict[int, list[Any]] = {task: [] for task in simulator.task_ids(name)}
    world = simulator._world
    for task, delivery in world.records.executed.get(name, ()):
        codec = world.tasks[task].codec
        by_task[task].append(codec.decode(delivery.payload, delivery.codec)[0])
    return [by_task[task] for task in sorted(by_task)]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda element, n: element % n, [[0, 3, 6], [1, 4], [2, 5]]),
        (lambda values, n: values[0] % n, [[0, 3, 6], [1, 4], [2, 5]]),
        (lambda element, n: [0, 2] if element < 2 else 7, [[0, 1], [2, 3, 4, 5, 6], [0, 1]]),
        (lambda element, n: (), [[], [], []]),
    ],
)
def test_repartition_with_a_function(function: Any, expected: list[list[int]]) -> None:
    builder = Builder()
    builder.new_source(Items(*range(7))).repartition(3, function).set_name("parts")
    simulator = simulate(builder)
    assert partitions(simulator, "parts") == expected


def test_repartition_without_function_spreads_evenly() -> None:
    builder = Builder()
    parts = builder.new_source(Items(*range(9))).repartition(3)
    assert parts.get_num_partitions() == 3
    sizes = [len(part) for part in partitions(simulate(builder), "repartition-1")]
    assert sizes == [3, 3, 3]


def test_repartition_function_of_the_wrong_shape() -> None:
    source = Builder().new_source(Items(1))
    with pytest.raises(StreamletError, match="takes two arguments"):
        source.repartition(2, lambda element: element)
    builder = Builder()
    builder.new_source(Items(1)).repartition(2, lambda element, n: "x")
    with pytest.raises(SimulationError, match=r"generator-1\[0\].*function returned 'x'"):
        simulate(builder)


def test_clone() -> None:
    builder = Builder()
    one, two = builder.new_source(Items(1, 2)).set_num_partitions(2).clone(2)
    one.map(lambda x: x).set_name("one")
    two.map(lambda x: -x).set_name("two")
    simulator = simulate(builder)
    assert (sorted(elements(simulator, "one")), sorted(elements(simulator, "two"))) == (
        [1, 2],
        [-2, -1],
    )
    assert one.get_num_partitions() == 2


def test_union_also_with_itself() -> None:
    builder = Builder()
    left, right = builder.new_source(Items(1, 2)), builder.new_source(Items(3))
    left.union(right).set_name("both")
    left.union(left).set_name("twice")
    simulator = simulate(builder)
    assert sorted(elements(simulator, "both")) == [1, 2, 3]
    assert sorted(elements(simulator, "twice")) == [1, 1, 2, 2]


def test_union_of_a_streamlet_and_its_descendant() -> None:
    builder = Builder()
    source = builder.new_source(Items(1, 2))
    source.map(lambda x: x * 10).union(source).set_name("both")
    assert sorted(elements(simulate(builder), "both")) == [1, 2, 10, 20]


# -- windows ------------------------------------------------------------------------------------


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


# -- building -----------------------------------------------------------------------------------


def test_names_and_partitions() -> None:
    builder = Builder()
    source = builder.new_source(Items(1)).set_num_partitions(3)
    mapped = source.map(lambda x: x).map(lambda x: x)
    Runner().build("names", Config(), builder)
    assert (source.get_name(), mapped.get_name()) == ("generator-1", "map-2")
    assert mapped.get_num_partitions() == 3
    assert mapped.reduce_by_key_and_window(TEN_S, operator.add).get_num_partitions() == 1


def test_long_chains_do_not_meet_the_recursion_limit() -> None:
    builder = Builder()
    streamlet = builder.new_source(Items(0))
    for _ in range(1500):
        streamlet = streamlet.map(lambda x: x + 1)
    Runner().build("long", Config(), builder)
    assert streamlet.get_name() == "map-1500"


def test_mistakes_are_named() -> None:
    source = Builder().new_source(Items(1))
    for wrong, sentence in (
        (lambda: Builder().new_source(7), "must be a Generator or a function, not int"),  # type: ignore[arg-type]
        (lambda: source.map("x"), "map takes a function, not str"),  # type: ignore[arg-type]
        (lambda: source.set_num_partitions(0), "number of partitions is 0"),
        (lambda: source.set_name(""), "non-empty str"),
        (lambda: source.transform(len), "TransformOperator subclass"),  # type: ignore[arg-type]
        (lambda: source.clone(0), "clone takes 1 or more clones"),
        (lambda: source.union(3), "union takes a Streamlet"),  # type: ignore[arg-type]
        (lambda: source.join(source, 10, operator.add), "takes a WindowConfig"),  # type: ignore[arg-type]
        (lambda: Config([]), "Config takes a dict"),  # type: ignore[arg-type]
        (lambda: Config().set_delivery_semantics(9), "unknown delivery semantics 9"),
        (lambda: Config().set_container_resources(1), "must be a Resources"),  # type: ignore[arg-type]
        (lambda: Resources().set_cpu(-1), "greater than zero"),
        (lambda: Runner().build("x", Config(), Builder()), "has no source"),
        (lambda: Runner().build("x", {}, Builder()), "must be a heronpy.streamlet Config"),  # type: ignore[arg-type]
    ):
        with pytest.raises(RuntimeError, match=sentence):
            wrong()


def test_two_streamlets_of_one_name_and_two_builds() -> None:
    builder = Builder()
    builder.new_source(Items(1)).set_name("same").map(lambda x: x).set_name("same")
    with pytest.raises(StreamletError, match="two streamlets are named 'same'"):
        Runner().build("x", Config(), builder)
    builder = Builder()
    builder.new_source(Items(1)).map(lambda x: x)
    Runner().build("x", Config(), builder)
    with pytest.raises(StreamletError, match="builds only once"):
        Runner().build("x", Config(), builder)


def test_streamlets_of_two_builders_do_not_join() -> None:
    one, two = Builder(), Builder()
    one.new_source(Items(1)).union(two.new_source(Items(2)))
    with pytest.raises(StreamletError, match="another Builder"):
        Runner().build("x", Config(), one)


def test_config_and_resources() -> None:
    given_config = {"mine": 1}
    config = Config(given_config)
    config.set_num_containers(2)
    config.set_container_resources(Resources().set_cpu(2).set_ram_in_mb(512))
    config.set_delivery_semantics(Config.EFFECTIVELY_ONCE)
    assert config._api_config == {
        "mine": 1,
        "topology.stmgrs": 2,
        "topology.container.cpu.requested": 2.0,
        "topology.container.ram.requested": 512 * 1024 * 1024,
        "topology.reliability.mode": "EFFECTIVELY_ONCE",
    }
    assert given_config == {"mine": 1}
    resources = Resources().set_ram_in_gb(1)
    assert (resources.get_ram(), resources.get_cpu()) == (1024**3, 0)


class Paced(Items):
    """Says before each item when it is to be asked again."""

    def setup(self, context: Context) -> None:
        super().setup(context)
        self.context, self.turns, self.began = context, 0, time.monotonic()
        self.says = itertools.cycle([lambda: context.wait(10), context.busy, lambda: context.wait_readable(self.fd)])

    def get(self) -> Any:
        self.turns += 1
        if self.turns % 2:
            next(self.says)()
            return None
        return next(self.rest), round(time.monotonic() - self.began)

    def __init__(self, fd: int, *items: Any) -> None:
        super().__init__(*items)
        self.fd = fd


def test_a_generator_says_when_it_is_called_again() -> None:
    fd = os.open("/dev/zero", os.O_RDONLY)
    try:
        builder = Builder()
        builder.new_source(Paced(fd, "a", "b", "c", "d")).set_name("paced")
        simulator = simulate(builder)
    finally:
        os.close(fd)
    # It waits, is busy, can read, and waits again.
    assert elements(simulator, "paced") == [("a", 10), ("b", 10), ("c", 10), ("d", 20)]
    assert simulator.is_finished


def test_an_operator_cannot_put_off_its_elements() -> None:
    class Putting(TransformOperator):
        def setup(self, context: Context) -> None:
            self.context = context

        def transform(self, tup: Any) -> None:
            self.context.wait(1)

    with pytest.raises(SimulationError, match=r"wait\(\) is for the generator of a source"):
        results(lambda source: source.transform(Putting()), 1)
