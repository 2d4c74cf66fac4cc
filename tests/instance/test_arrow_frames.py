"""Frames of record batches that a peer has spoilt, in a whole cluster: counted, given up, and nothing else is harmed."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from heronpy.api.batch import Batch
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder
from heronpy.proto import control_pb2
from heronpy.wire import codec
from tests.security.mutate import mutated
from tests.sim.kernel import active_world
from tests.sim.run import cluster_of
from tests.sim.workload import AT_LEAST, AT_MOST, Program

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.large_string()), ("list", pa.list_(pa.string()))])
COUNT, PER_CALL = 400, 20
REST_S = 3.0


class Book:
    def __init__(self) -> None:
        self.until = 0
        self.acked: Counter[int] = Counter()
        self.stored: list[int] = []


class Source(Spout):
    outputs = [Stream(schema=SCHEMA)]

    def initialize(self, config: Any, context: Any) -> None:
        self.book: Book = active_world().outside  # type: ignore[attr-defined]
        self.next = 0

    def next_tuple(self) -> None:
        if self.next < self.book.until:
            numbers = list(range(self.next, self.next + PER_CALL))
            self.next += PER_CALL
            rows = {"n": numbers, "text": [str(n) for n in numbers], "list": [["x"] * (n % 3) for n in numbers]}
            self.emit_batch(pa.RecordBatch.from_pydict(rows, schema=SCHEMA), ids=numbers)

    def ack(self, tup_id: int) -> None:
        self.book.acked[tup_id] += 1


class Singly(Bolt):
    def process(self, tup: Any) -> None:
        assert len(tup.values) == 3
        active_world().outside.stored.append(tup.values[0])  # type: ignore[attr-defined]
        self.ack(tup)


class Together(Bolt):
    def process_batch(self, batch: Batch) -> None:
        batch.to_arrow().validate(full=True)
        assert len(batch.rows()) == len(batch)
        active_world().outside.stored.extend(batch.columns["n"])  # type: ignore[attr-defined]
        self.ack(batch)


def spoil(frame: Any, dice: random.Random) -> None:
    """Make the frame one that cannot be read, or has other values; its counts and arrays stay."""
    kind = dice.randrange(4)
    if kind == 0:
        frame.codec = dice.choice([codec.MSGPACK, codec.USER, 77])
    elif kind == 1:
        frame.stream = dice.choice([1, 2**31])
    elif kind == 2:
        frame.payload = frame.payload[:8] + dice.randbytes(len(frame.payload) - 8)
    else:
        frame.payload = mutated(frame.payload, [frame.payload], dice)


@pytest.mark.parametrize("mode", [AT_MOST, AT_LEAST])
@pytest.mark.parametrize("bolt", [Singly, Together])
@pytest.mark.parametrize("seed", range(8))
def test_spoilt_record_batches_cost_their_own_tuples_only(mode: str, bolt: type[Bolt], seed: int) -> None:
    dice, book = random.Random(seed), Book()
    made = TopologyBuilder("arrows")
    source = made.add_spout("source", Source, par=1)
    made.add_bolt("store", bolt, par=1, inputs={source: Grouping.SHUFFLE})
    made.set_config({"topology.reliability.mode": mode, "topology.message.timeout.secs": 100_000})
    with cluster_of(seed, Program(made, book)) as (cluster, auditor):
        cluster.until(control_pb2.LIFE_RUNNING)
        [process] = cluster.tasks("store")
        store, opened = process.program, []
        open_frame = store.open_frame

        def spoiling(frame: Any, now: float) -> bool:
            opened.append(frame.count)
            if dice.random() < 0.5:
                spoil(frame, dice)
            found: bool = open_frame(frame, now)
            return found

        store.open_frame = spoiling
        book.until = COUNT
        cluster.world.run(cluster.world.now + REST_S, lambda: False)
        lost = store.metrics.counters["__malformed-tuples", ""]
        assert sum(opened) == COUNT and 0 < lost < COUNT
        assert lost == store.progress.lost and len(book.stored) == COUNT - lost
        assert store.standing.state == control_pb2.TASK_RUNNING and cluster.tasks("store") == [process], (
            "it never failed"
        )
        if mode == AT_LEAST:
            assert book.acked == Counter(range(COUNT)), "given up, so not sent again"
        auditor.drained()
