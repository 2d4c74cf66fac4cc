"""Streamlet programs as a batch: the elements of the stream, or the operator that cannot be in a batch."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from heronpy.batch.choice import choose
from heronpy.batch.stages import BatchRefusedError, divide
from heronpy.simulator import Simulator
from heronpy.streamlet import Builder, Config, Runner
from tests.batch.programs.tally import tally
from tests.streamlet.simulated import TEN_S, Items, elements

MODES = [Config.ATMOST_ONCE, Config.ATLEAST_ONCE, Config.EFFECTIVELY_ONCE]


def config(mode: int) -> Config:
    made = Config({"factor": 3})
    made.set_delivery_semantics(mode)
    return made


def evens() -> Iterator[int]:
    yield from range(0, 40, 2)


def operators() -> Builder:
    builder = Builder()
    items = builder.new_source(Items(*range(30)), bounded=True).set_name("items").set_num_partitions(2)
    some = items.map(lambda x: x * 2).filter(lambda x: x % 3).flat_map(lambda x: [x, -x]).set_name("some")
    both = some.union(builder.new_source(evens, bounded=True)).set_name("both")
    both.repartition(3, lambda element, n: element % n).set_name("parts").consume(abs)
    for number, copy in enumerate(both.clone(2)):
        copy.set_name(f"copy{number}").log()
    return builder


@pytest.mark.parametrize("mode", MODES)
def test_operators_give_what_they_give_in_a_stream(mode: int) -> None:
    with Simulator(Runner().build("test", config(mode), operators())) as stream:
        stream.run()
        wanted = {name: Counter(elements(stream, name)) for name in ("some", "both", "parts", "copy0", "copy1")}
    batch = Simulator.run_batch(Runner().build("test", config(mode), operators()))
    assert {name: Counter(row[0] for row in batch.emitted(name, "output")) for name in wanted} == wanted
    assert (
        len(wanted["both"]) > 30 and choose(Runner().build("test", config(mode), operators()).build()).mode == "batch"
    )


@pytest.mark.parametrize("mode", MODES)
def test_what_an_operator_has_kept_comes_at_the_end_of_the_input(tmp_path: Path, mode: int) -> None:
    for name, text in (("a", "one two one\n"), ("b", "two 2 three\n\none")):
        (tmp_path / f"{name}.txt").write_text(text)
    found = []
    for run in (lambda builder: Simulator(builder).run(), Simulator.run_batch):
        out = tmp_path / "out"
        run(Runner().build("test", config(mode), tally(f"{tmp_path}/*.txt", str(out))))
        found.append(sorted(out.read_text().splitlines()))
        out.unlink()
    assert found == [["one 3", "three 1", "two 2"]] * 2
    topology = Runner().build("test", config(mode), tally(f"{tmp_path}/*.txt", "out")).build()
    assert choose(topology).mode == "batch"
    assert [(stage.components[0], stage.tasks) for stage in divide(topology)] == [("lines", 2), ("sums", 1)]


@pytest.mark.parametrize("kind", ["reduce_by_window", "reduce_by_key_and_window", "join", "outer_join"])
def test_windows_are_refused_by_name(kind: str) -> None:
    builder = Builder()
    pairs = builder.new_source(Items(("a", 1)), bounded=True)
    more = (builder.new_source(Items(("a", 2)), bounded=True),) if "join" in kind else ()
    getattr(pairs, kind)(*more, TEN_S, operator.add).set_name("windows")
    topology = Runner().build("test", Config(), builder).build()
    with pytest.raises(BatchRefusedError, match=r"bolt 'windows' uses processing-time windows.*TransformOperator"):
        divide(topology)
    assert choose(topology).mode == "stream"


def test_a_source_that_may_not_end_is_a_stream_for_auto() -> None:
    builder = Builder()
    builder.new_source(evens).set_name("evens").log()
    why = choose(Runner().build("test", Config(), builder).build()).why
    assert why == "spout 'evens' is not known to end; give new_source bounded=True if the spout ends"
