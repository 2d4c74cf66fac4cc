"""The topologies of the examples and of other tests as a batch: the results of the stream, or the reason against it."""

from __future__ import annotations

import importlib
import json
import re
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from heronpy.api.topology import TopologyBuilder
from heronpy.api.user_code import UserCodeError
from heronpy.batch.choice import choose
from heronpy.batch.stages import BatchRefusedError, divide
from heronpy.ingest.keys import until_now
from heronpy.ingest.options import options_of
from heronpy.plan.component_config import component_config
from heronpy.proto import components_of
from heronpy.simulator import Simulator
from tests.runtime.programs import loops, shapes, stateful
from tests.support.command import EXAMPLES, REPO
from topologies import (
    ack_and_fail,
    async_bolt,
    batch_word_count,
    custom_grouping,
    direct_grouping,
    flight_delays,
    log_table,
    multi_stream,
    sick,
    spark_sink,
    stateful_word_count,
    streamlet_word_count,
    windowed,
    word_count,
)

ROWS = re.compile(r"^\| (`\w+\.py.*?) \| (.*) \|$", re.MULTILINE).findall(
    (REPO / "docs" / "howto" / "batch-runs.md").read_text()
)


def day(monkeypatch: pytest.MonkeyPatch) -> TopologyBuilder:
    made: list[TopologyBuilder] = []
    monkeypatch.setattr(TopologyBuilder, "build_and_submit", lambda builder: made.append(builder))
    sys.modules.pop("topologies.day", None)
    importlib.import_module("topologies.day")
    return made[0]


def unbounded(monkeypatch: pytest.MonkeyPatch) -> dict[str, TopologyBuilder]:
    """The examples with the arguments that make them endless, or that cannot be a batch."""
    streamlet = streamlet_word_count
    return {
        "async_bolt": async_bolt.async_bolt("test"),
        "custom_grouping": custom_grouping.custom_grouping("test"),
        "day": day(monkeypatch),
        "direct_grouping": direct_grouping.direct_grouping("test"),
        "log_table": log_table.log_table("test", "/logs", "/table"),
        "multi_stream": multi_stream.multi_stream("test"),
        "sick": sick.sick("test", "skew"),
        "streamlet_word_count": streamlet.Runner().build("test", streamlet.at_least_once(), streamlet.word_count()),
        "windowed": windowed.windowed("test"),
        "word_count": word_count.word_count("test"),
    }


def text(folder: Path) -> str:
    path = folder / "a.txt"
    path.write_text("the cat saw the dog\n" * 50 + "\nthe end")
    return str(path)


EQUAL: dict[str, Any] = {
    "async_bolt --count": lambda tmp: async_bolt.async_bolt("test", 100),
    "batch_word_count": lambda tmp: batch_word_count.batch_word_count("test", 300),
    "stateful_word_count": lambda tmp: stateful_word_count.stateful_word_count("test", text(tmp), str(tmp), 2),
    "word_count --file": lambda tmp: word_count.word_count("test", [text(tmp)]),
}


def emitted(found: Any, builder: TopologyBuilder, apart: Collection[str] = ()) -> dict[tuple[str, str], Counter[str]]:
    """What each component has emitted on each stream, but for some components."""
    parts = components_of(builder.build()).items()
    outputs = [(name, stream.stream.id) for name, part in parts if name not in apart for stream in part.outputs]
    return {(name, stream): Counter(map(repr, found.emitted(name, stream))) for name, stream in outputs}


def compare(make: Any, apart: Collection[str] = ()) -> None:
    """Nothing is changed for the batch."""
    with Simulator(make(), sinks="collect") as simulator:
        assert simulator.run().reason == "finished"
        wanted = emitted(simulator, make(), apart)
    assert any(wanted.values())
    assert emitted(Simulator.run_batch(make(), unit_bytes=200), make(), apart) == wanted


@pytest.mark.parametrize("name", EQUAL)
def test_the_result_is_that_of_the_stream(tmp_path: Path, name: str) -> None:
    compare(lambda: EQUAL[name](tmp_path))


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
    ("make", "spout"),
    [
        (custom_grouping.custom_grouping, custom_grouping.OrderSpout),
        (direct_grouping.direct_grouping, direct_grouping.JobSpout),
        (multi_stream.multi_stream, multi_stream.SensorSpout),
    ],
    ids=lambda each: each.__name__,
)
def test_the_other_groupings_give_the_same_if_the_spout_ends(
    monkeypatch: pytest.MonkeyPatch, make: Any, spout: Any
) -> None:
    step = spout.next_tuple

    def next_tuple(self: Any) -> None:
        self.left = getattr(self, "left", 12) - 1
        if self.left < 0:
            self.end_of_input()
        else:
            step(self)

    monkeypatch.setattr(spout, "next_tuple", next_tuple)
    compare(lambda: make("test"))


def test_the_list_of_examples_is_complete_and_gives_the_reasons_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is between quotation marks in the list is what is said."""
    made = unbounded(monkeypatch)
    named = {name: said for names, said in ROWS for name in re.findall(r"`(.+?)`", names)}
    assert {name.split(".")[0] for name in named} == {path.stem for path in EXAMPLES.glob("*.py")}
    assert {name.replace(".py", "") for name, said in named.items() if said.startswith("the same result")} == set(EQUAL)
    for name, said in named.items():
        if (quoted := re.search(r'"(.+)"', said)) and (topology := made.pop(name.split(".")[0], None)):
            if "refused" in said:
                with pytest.raises(BatchRefusedError, match=quoted[1]):
                    divide(topology.build())
            else:
                assert quoted[1] in choose(topology.build()).why, name
    assert not made


def test_pipelines_of_work_units_are_bounded_for_the_batch() -> None:
    """The options of both components say so, whatever the program says; with other spouts they are refused."""
    made = log_table.log_table("test", "/logs", "/table")
    for topology, wanted in ((made.build(), False), (until_now(made.build()), True)):
        names = [f"requests-{kind}" for kind in ("worker", "keeper")]
        assert [options_of(component_config(topology, name, load=True)).bounded for name in names] == [wanted] * 2
        assert choose(topology).mode == ("batch" if wanted else "stream")
    made.add_spout("day", word_count.LineSpout, par=1)
    with pytest.raises(BatchRefusedError, match=r"belongs to a pipeline of LogUnits.* without other spouts"):
        divide(made.build())


def test_failed_tuples_are_not_sent_again() -> None:
    assert len(Simulator.run_batch(ack_and_fail.ack_and_fail("test", 60)).emitted("check")) == 40
    (said,) = (said for names, said in ROWS if "ack_and_fail" in names)
    with pytest.raises(UserCodeError, match=re.search(r'"(.+)"', said)[1]):  # type: ignore[index]
        Simulator.run_batch(ack_and_fail.ack_and_fail("test", 1000))


# ---- topologies of other tests ------------------------------------------------------------------


def tallies(folder: Path) -> dict[str, list[Any]]:
    """What the tasks of each component have written, without the tasks: their numbers are others in a batch."""
    found: dict[str, list[Any]] = {}
    for path in folder.glob("*.json"):
        told = json.loads(path.read_text())
        counts, disorder = found.setdefault(path.name.split(".")[0], [Counter(), 0])
        counts.update(told["counts"])
        found[path.name.split(".")[0]][1] = disorder + told["disorder"]
        path.unlink()
    return found


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_all_shapes_give_the_same(tmp_path: Path, mode: str) -> None:
    args = Namespace(name="shapes", count=200, out=str(tmp_path), guarantee=mode, containers=1)
    with Simulator(shapes.shapes(args)) as simulator:
        assert simulator.run().reason == "finished"
    stream = tallies(tmp_path)
    Simulator.run_batch(shapes.shapes(args), records=False)
    batch = tallies(tmp_path)
    # Those that count by the number of the sending task, and one that emits at ticks, which a batch does not have.
    assert stream.pop("pulse_tally")[0] and not batch.pop("pulse_tally")[0]
    assert batch.keys() == stream.keys()
    for name, (counts, disorder) in stream.items():
        assert sorted(batch[name][0].values()) == sorted(counts.values()) and batch[name][1] == disorder, name
    assert batch["word_count"] == stream["word_count"] and batch["split_count"] == stream["split_count"]


def test_what_cannot_be_a_batch_is_refused() -> None:
    with pytest.raises(BatchRefusedError, match=r"step -> back -> step form a cycle|back -> step -> back form a cycle"):
        divide(loops.build("loops", "/out", "ATLEAST_ONCE").build())
    given = Namespace(
        name="state", out="/out", pad=0, containers=1, source_pause_ms=0, work_pause_ms=0, keys=0, asynchronous=True,
        asynchronous_source=True,
    )  # fmt: skip
    with pytest.raises(BatchRefusedError, match="bolt 'store' commits with checkpoints"):
        divide(stateful.stateful(given).build())
