"""Bolts that take batches, and emits of many tuples, on the simulator: what a batch offers, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from heronpy import AsyncSpout, Batch, Bolt, Grouping, Spout, Stream, TopologyBuilder
from heronpy.api.bolt.basic_bolt import BasicBolt
from heronpy.api.bolt.bolt import takes_batches
from heronpy.common.errors import TopologyError
from heronpy.simulator import SimulationError, Simulator

COUNT = 40


class Numbers(Spout):
    outputs = ["number", "name"]

    def next_tuple(self) -> None:
        numbers = list(range(COUNT))
        self.emit_batch([numbers, list(map(str, numbers))], ids=numbers)
        self.end_of_input()


class AsyncNumbers(AsyncSpout):
    outputs = ["number", "name"]

    async def run(self) -> None:
        for low in range(0, COUNT, 10):
            numbers = list(range(low, low + 10))
            await self.emit_batch({"number": numbers, "name": list(map(str, numbers))}, ids=numbers)


class Seen(Bolt):
    """Keeps its batches; `check` is the test's."""

    outputs = ["number", Stream(["name"], "names")]
    check: Any = None

    def initialize(self, config: Any, context: Any) -> None:
        self.batches: list[Batch] = []

    def process_batch(self, batch: Batch) -> None:
        self.batches.append(batch)
        if type(self).check is not None:
            type(self).check(self, batch)
        self.ack(batch)


def simulator(check: Any = None, spout: Any = Numbers, seed: int = 0) -> Simulator:
    Seen.check = None if check is None else staticmethod(check)
    builder = TopologyBuilder("batches")
    numbers = builder.add_spout("numbers", spout, par=1)
    builder.add_bolt("seen", Seen, par=1, inputs={numbers: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", "topology.max.spout.pending": 1000})
    return Simulator(builder, seed=seed)


@pytest.mark.parametrize("spout", [Numbers, AsyncNumbers])
@pytest.mark.parametrize("seed", range(3))
def test_what_queued_up_is_one_batch(spout: Any, seed: int) -> None:
    with simulator(spout=spout, seed=seed) as sim:
        sim.run()
        batches = sim.task("seen").batches
        assert [row for batch in batches for row in batch.rows()] == [(n, str(n)) for n in range(COUNT)]
        assert sorted(sim.acked("numbers")) == list(range(COUNT))
        assert sim.metrics("seen")["__execute-count/default"] == COUNT
        if spout is Numbers:
            assert len(batches) == 1


def test_a_batch_is_columns_rows_and_tuples() -> None:
    with simulator() as sim:
        sim.run()
        [batch] = sim.task("seen").batches
        assert (batch.component, batch.stream, batch.task, batch.fields) == (
            "numbers",
            "default",
            1,
            ("number", "name"),
        )
        assert batch.columns == {"number": list(range(COUNT)), "name": [str(n) for n in range(COUNT)]}
        assert len(batch) == COUNT and [tup.values for tup in batch] == [list(row) for row in batch.rows()]
        assert batch[3] is batch[3] and [tup.values for tup in batch[1:3]] == [[1, "1"], [2, "2"]]
        taken = batch.take(np.array([5, 5, 0]))
        assert taken.rows() == [(5, "5"), (5, "5"), (0, "0")] and taken.take([2]).columns == {
            "number": [0],
            "name": ["0"],
        }
        assert len(batch.take([])) == 0 and batch.take([]).rows() == []
        arrow = batch.to_arrow()
        assert arrow.column_names == ["number", "name"] and arrow.num_rows == COUNT
        assert batch.to_pandas()["number"].sum() == sum(range(COUNT))
        assert repr(batch) == f"<Batch of {COUNT} tuples of numbers/default from task 1>"
        with pytest.raises(IndexError, match="out of range for a batch of 40 tuples"):
            batch.take([COUNT])
        for mask in ([True, False], np.array([True, False])):
            with pytest.raises(TypeError, match="not a mask"):
                batch.take(mask)


def test_the_first_word_on_a_tuple_counts() -> None:
    def check(bolt: Bolt, batch: Batch) -> None:
        bolt.fail(batch.take([1, 2]))
        bolt.fail(batch[5])

    with simulator(check) as sim:
        sim.run()
        assert sorted(sim.failed("numbers")) == [1, 2, 5]
        assert sorted(sim.acked("numbers")) == sorted(set(range(COUNT)) - {1, 2, 5})


def test_one_output_of_all() -> None:
    """Anchors of one output that derives from the whole batch."""

    def check(bolt: Bolt, batch: Batch) -> None:
        bolt.emit_batch([[sum(batch.columns["number"])]], anchors=[batch])
        bolt.emit_batch({"name": batch.columns["name"]}, stream="names", anchors=batch)
        bolt.emit_batch(rows=[[1], [2]], anchors=batch[0])

    with simulator(check) as sim:
        sim.run()
        assert sim.emitted("seen") == [[sum(range(COUNT))], [1], [2]]
        assert sim.emitted("seen", "names") == [[str(n)] for n in range(COUNT)]
        assert sorted(sim.acked("numbers")) == list(range(COUNT))


@pytest.mark.parametrize(
    ("emit", "why"),
    [
        (lambda bolt, batch: bolt.emit_batch([[1, 2]], anchors=batch), "2 tuples with 40 anchors"),
        (lambda bolt, batch: bolt.emit_batch([[1]], stream="nowhere"), "which it does not declare"),
        (lambda bolt, batch: bolt.emit_batch({"n": [1]}), "the columns 'n'; the stream declares 1: number"),
    ],
)
def test_a_wrong_emit_names_what_is_wrong(emit: Any, why: str) -> None:
    with simulator(emit) as sim, pytest.raises(SimulationError, match=why):
        sim.run()


def test_which_bolts_take_batches() -> None:
    class Both(Seen):
        def process(self, tup: Any) -> None: ...

    class Basic(BasicBolt):
        def process_batch(self, batch: Batch) -> None: ...

    class Waiting(Bolt):
        async def process_batch(self, batch: Batch) -> None: ...  # type: ignore[override]

    assert takes_batches(Seen)
    # As in a program that was written before batches, whose own method has this name.
    assert not takes_batches(Both) and not takes_batches(Basic) and not takes_batches(Bolt)
    with pytest.raises(TopologyError, match=r"Waiting.process_batch is a coroutine; define it with `def`"):
        Waiting.spec("w", inputs=[Numbers.spec("n")])
