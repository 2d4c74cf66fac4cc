"""Every operator of the functional API, run through the simulator."""

from __future__ import annotations

import importlib
import itertools
import logging
import operator
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.simulator import SimulationError, Simulator
from heronpy.streamlet import (
    Builder,
    Config,
    Context,
    Resources,
    Runner,
    StreamletError,
    TransformOperator,
)
from tests.streamlet.simulated import TEN_S, Items, RunningSum, elements, partitions, results, simulate


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
        (lambda: source.clone(0), "the number of clones is 0; give an int of 1 or more"),
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
    with pytest.raises(StreamletError, match="can build only once"):
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
