"""Spark sinks in a simulation: their rows are collected, as the sink would take them."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy import Grouping, Spout, TopologyBuilder
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.common.errors import TopologyError
from heronpy.connectors.spark import SparkSink
from heronpy.simulator import SimulationError, Simulator
from tests.simulator.parts import ATLEAST, SinkBolt


class Pairs(Spout, StatefulComponent):
    """Emits the pairs of its configuration; keeps its place."""

    outputs = ["word", "n"]

    def init_state(self, state: Any) -> None:
        self.state = state

    def initialize(self, config: Any, context: Any) -> None:
        self.pairs = config["pairs"]
        self.state.setdefault("next", 0)

    def next_tuple(self) -> None:
        place = self.state["next"]
        if place == len(self.pairs):
            self.end_of_input()
            return
        self.state["next"] = place + 1
        self.emit(self.pairs[place], tup_id=place)

    def pre_save(self, checkpoint_id: str) -> None:
        """The state is always as it should be."""


def aggregate(spark: object, df: object, batch: object) -> None:
    raise AssertionError("no Spark runs in a simulation")


def table(pairs: list[list[Any]], config: dict[str, Any], schema: dict[str, str] | None = None) -> TopologyBuilder:
    builder = TopologyBuilder("table")
    spout = builder.add_spout("source", Pairs, par=1, config={"pairs": pairs})
    inputs = {spout: Grouping.SHUFFLE}
    builder.add_spec(SparkSink.spec("table", inputs, aggregate=aggregate, schema=schema))
    builder.add_bolt("other", SinkBolt, par=1, inputs=inputs)
    builder.set_config(config)
    return builder


def test_rows_are_collected_and_acked() -> None:
    sim = Simulator(table([["a", 1], ["b", 2]], ATLEAST), sinks="collect")
    sim.run()
    assert sim.rows("table") == [{"word": "a", "n": 1}, {"word": "b", "n": 2}]
    assert sim.acked("source") == [0, 1] and sim.is_finished


def test_a_row_that_does_not_fit_fails_as_in_the_sink() -> None:
    pytest.importorskip("pyarrow")
    pairs = [["a", 1], ["b", "two"], ["c", 3]]
    sim = Simulator(table(pairs, ATLEAST, {"word": "string", "n": "int64"}), sinks="collect")
    sim.run()
    assert [row["n"] for row in sim.rows("table")] == [1, 3] and sim.failed("source") == [1]


def test_a_restore_takes_rows_back() -> None:
    pairs = [["w", number] for number in range(10)]
    sim = Simulator(table(pairs, {"topology.reliability.mode": "EFFECTIVELY_ONCE"}), sinks="collect")
    while len(sim.rows("table")) < 3:
        sim.run(max_steps=1)
    sim.checkpoint()
    saved = sim.rows("table")
    while len(sim.rows("table")) < len(saved) + 3:
        sim.run(max_steps=1)
    sim.restore()
    assert sim.rows("table") == saved
    sim.run()
    assert [row["n"] for row in sim.rows("table")] == list(range(10))


def test_without_collecting_a_sink_says_what_to_do() -> None:
    with pytest.raises(SimulationError, match=r'sinks="collect"'):
        Simulator(table([], {}))
    sim = Simulator(table([], {}), sinks="collect")
    with pytest.raises(TopologyError, match="'other' is not a SparkSink"):
        sim.rows("other")
    with pytest.raises(ValueError, match="'run' or 'collect'"):
        Simulator(table([], {}), sinks="drop")
