"""The example topologies as a batch: the results of the stream, or the reason why there is no batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from heronpy.api.topology import TopologyBuilder
from heronpy.batch.choice import choose
from heronpy.batch.stages import BatchRefusedError, divide
from heronpy.simulator import Simulator
from topologies import (
    ack_and_fail,
    async_bolt,
    batch_word_count,
    custom_grouping,
    direct_grouping,
    flight_delays,
    multi_stream,
    spark_sink,
    windowed,
    word_count,
)


def counted(tmp_path: Path) -> TopologyBuilder:
    (tmp_path / "a.txt").write_text("the cat saw the dog\n" * 50 + "\nthe end")
    return word_count.word_count("test", [str(tmp_path / "a.txt")])


@pytest.mark.parametrize(
    ("made", "component"),
    [
        (counted, "count"),
        (lambda tmp_path: batch_word_count.batch_word_count("test", 300), "split"),
        (lambda tmp_path: async_bolt.async_bolt("test", 100), "look_up"),
    ],
    ids=["word_count", "batch_word_count", "async_bolt"],
)
def test_the_result_is_that_of_the_stream(tmp_path: Path, made: Any, component: str) -> None:
    """Nothing is changed for the batch."""
    with Simulator(made(tmp_path)) as simulator:
        assert simulator.run().reason == "finished"
        wanted = Counter(map(repr, simulator.emitted(component)))
    assert wanted
    result = Simulator.run_batch(made(tmp_path), unit_bytes=200)
    assert Counter(map(repr, result.emitted(component))) == wanted


def test_spark_gets_the_flights_of_the_stream(tmp_path: Path) -> None:
    """In fewer rows: a bolt that counts emits at its end what it emits at each tick of a stream."""
    line = "2013,1,1,5,5,{delay},8,8,11,{carrier},15,N1,{origin}"
    flights = [("AA", "JFK", "2"), ("UA", "LGA", "NA"), ("AA", "LGA", "-3")] * 40
    lines = [line.format(carrier=carrier, origin=origin, delay=delay) for carrier, origin, delay in flights]
    (tmp_path / "flights.csv").write_text("\n".join(["header", *lines, ""]))

    def summed(rows: Any) -> Counter[Any]:
        counts: Counter[Any] = Counter()
        for kind, key, delay, number in rows:
            counts[kind, key, delay] += number
        return counts

    def made() -> TopologyBuilder:
        return flight_delays.flight_delays("test", tmp_path / "flights.csv", tmp_path / "table")

    wanted = flight_delays.file_counts(tmp_path / "flights.csv")
    with Simulator(made(), sinks="collect") as simulator:
        assert simulator.run().reason == "finished"
        assert summed(row for kind in flight_delays.KINDS for row in simulator.emitted(f"by_{kind}")) == wanted
    assert summed(Simulator.run_batch(made(), unit_bytes=1000).rows("table")) == wanted


def test_spark_gets_all_readings() -> None:
    """They are random, so the number counts."""
    assert len(Simulator.run_batch(spark_sink.spark_sink("test", "/table", 300)).rows("averages")) == 300


@pytest.mark.parametrize(
    "topology",
    [
        custom_grouping.custom_grouping("test"),
        direct_grouping.direct_grouping("test"),
        multi_stream.multi_stream("test"),
        word_count.word_count("test"),
        # It ends, but its results are those of tuples that are sent again, and a batch sends none again.
        ack_and_fail.ack_and_fail("test", 60),
    ],
    ids=lambda builder: type(builder).__name__,
)
def test_spouts_that_may_not_end_are_streams_for_auto(topology: TopologyBuilder) -> None:
    """Mode auto names the spout."""
    found = choose(topology.build())
    assert found.mode == "stream" and "is not known to end" in found.why


def test_windows_of_processing_time_have_no_batch() -> None:
    """They are refused by name."""
    with pytest.raises(BatchRefusedError, match="has windows of processing time"):
        divide(windowed.windowed("test").build())
