"""Streams with an Arrow schema against single tuples: random small programs give the same results in both ways.

Real tasks and stream managers on the simulated cluster, and the simulator. Each component of a program takes tuples
or batches, and emits one by one or record batches; what each task gets, and what its spout hears, must not tell.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api.batch import Batch
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder
from heronpy.common.hashing import stable_hash
from heronpy.proto import control_pb2
from heronpy.simulator import Simulator
from tests.sim import workload
from tests.sim.run import cluster_of

ROWS = list[list[Any]]
SCHEMAS = {
    "default": pa.schema([("a", pa.string()), ("b", pa.int64())]),
    "times": pa.schema([("a", pa.timestamp("us", "UTC")), ("b", pa.list_(pa.int32())), ("c", pa.decimal128(9, 2))]),
    "way": pa.schema([("a", pa.float64())]),
}
OUTPUTS = [Stream(name=name, schema=schema, direct=name == "way") for name, schema in SCHEMAS.items()]
NOON = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)


def row_of(stream: str, values: list[Any], number: int) -> list[Any]:
    """A row of a stream that tells from which tuple it comes."""
    size = stable_hash(repr(values)) % 1000
    if stream == "default":
        return [f"{size}-{number}", None if size % 5 == 0 else size]
    if stream == "times":
        return [NOON + dt.timedelta(seconds=size % 7), [size, number], None if size % 3 else Decimal(f"{number}.25")]
    return [size / 8]


@dataclass
class Program:
    """A chain: a spout, bolts that answer each tuple, and a sink."""

    parallelism: list[int]
    groupings: list[dict[str, str]]
    inputs: ROWS
    #: Of an input tuple: the stream and the number of what comes of it; a negative number fails it.
    outputs: list[tuple[str, int]]
    mode: str
    #: By component: takes batches (a bolt); how it emits.
    batching: list[bool]
    forms: list[str]
    seed: int
    twice: bool
    seen: Counter[Any] = field(default_factory=Counter)

    def names(self) -> list[str]:
        return [f"c{n}" for n in range(len(self.parallelism))]

    def tasks(self) -> dict[int, str]:
        named = [n for n, count in zip(self.names(), self.parallelism, strict=True) for _ in range(count)]
        return dict(enumerate(named, 1))

    def builder(self) -> TopologyBuilder:
        builder = TopologyBuilder("arrows")
        names = self.names()
        source = spec = builder.add_spout(names[0], Source, par=self.parallelism[0])
        for place, name in enumerate(names[1:]):
            kind = Together if self.batching[place + 1] else Singly
            inputs = {spec[stream]: GROUPINGS[how] for stream, how in self.groupings[place].items()}
            spec = builder.add_bolt(name, kind, par=self.parallelism[place + 1], inputs=inputs)
        if self.twice:
            # The tuples of the spout have a second consumer, and so several copies.
            builder.add_bolt("aside", Aside, par=1, inputs={source["default"]: Grouping.SHUFFLE})
        builder.set_config(
            {"topology.reliability.mode": self.mode, "topology.max.spout.pending": 1000, "topology.stmgrs": 2}
        )
        return builder

    def answer(self, values: Any) -> tuple[str, int]:
        return self.outputs[stable_hash(repr(values)) % len(self.outputs)]

    def got(self, component: str, task: int, tup: Any) -> None:
        """Write down a tuple; the task counts where the grouping fixes it."""
        how = "shuffle" if component == "aside" else self.groupings[self.names().index(component) - 1][tup.stream]
        fixed = 0 if how in ("shuffle", "custom") else task
        self.seen["got", component, fixed, tup.component, tup.stream, repr(tup.values)] += 1

    def on_the_simulator(self) -> Counter[Any]:
        self.seen = Counter()
        with Simulator(self.builder().build()) as sim:
            sim.run()
        return self.seen

    def on_the_runtime(self) -> Counter[Any]:
        self.seen = Counter()
        with cluster_of(self.seed, workload.Program(self.builder(), None)) as (cluster, auditor):
            cluster.until(control_pb2.LIFE_FINISHED)
            auditor.drained()
            started = [process.name for process in cluster.world.processes if process.role == "instance"]
            assert len(started) == len(self.tasks()) + self.twice, "none has failed"
        return self.seen


PROGRAM: Program


class First(ICustomGrouping):
    tasks: list[int]

    def prepare(self, context: Any, component: str, stream: str, target_tasks: list[int]) -> None:
        self.tasks = target_tasks

    def choose_tasks(self, values: Any) -> list[int]:
        return [self.tasks[0], self.tasks[-1]] if stable_hash(repr(values)) % 3 else [self.tasks[0]]


GROUPINGS = {
    "shuffle": Grouping.SHUFFLE,
    "field": Grouping.fields("a"),
    "fields": Grouping.fields("b", "a"),
    "all": Grouping.ALL,
    "lowest": Grouping.LOWEST,
    "direct": Grouping.DIRECT,
    "custom": Grouping.custom(First()),
}
FITTING = {
    "default": ["shuffle", "field", "fields", "all", "lowest", "custom"],
    "times": ["shuffle", "field", "fields", "all"],
    "way": ["direct"],
}


def emit_rows(owner: Any, form: str, stream: str, rows: ROWS, **more: Any) -> None:
    """Emit as a record batch or table; its fields may be in another order."""
    schema = SCHEMAS[stream]
    arrays = [pa.array([row[n] for row in rows], type=kind) for n, kind in enumerate(schema.types)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if form == "table":
        batch = pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)]).select(schema.names[::-1])
    owner.emit_batch(batch, stream=stream, **more)


def as_values(stream: str, row: list[Any]) -> list[Any]:
    """A row as single tuples give it: what Arrow makes of its values."""
    return [pa.scalar(value, type=kind).as_py() for value, kind in zip(row, SCHEMAS[stream].types, strict=True)]


class Source(Spout):
    outputs = OUTPUTS

    def initialize(self, config: Any, context: Any) -> None:
        self.task_id = context.get_task_id()

    def next_tuple(self) -> None:
        if getattr(self, "done", False):
            return
        self.done = True
        ids = [None if n % 4 == 3 else f"{self.task_id}.{n}" for n in range(len(PROGRAM.inputs))]
        if PROGRAM.forms[0] == "one":
            for tup_id, row in zip(ids, PROGRAM.inputs):
                self.emit(row, tup_id=tup_id)
        else:
            emit_rows(self, PROGRAM.forms[0], "default", PROGRAM.inputs, ids=ids)
        self.end_of_input()

    def ack(self, tup_id: Any) -> None:
        PROGRAM.seen["acked", tup_id] += 1

    def fail(self, tup_id: Any) -> None:
        PROGRAM.seen["failed", tup_id] += 1


class Answering(Bolt):
    outputs = OUTPUTS

    def initialize(self, config: Any, context: Any) -> None:
        self.task_id = context.get_task_id()
        self.component = context.get_component_id()

    @property
    def place(self) -> int:
        return PROGRAM.names().index(self.component)

    def answers(self, tup: Any) -> tuple[str, ROWS] | None:
        """The stream and rows that come of a tuple; None to fail it."""
        stream, count = PROGRAM.answer(tup.values)
        return None if count < 0 else (stream, [row_of(stream, tup.values, n) for n in range(count)])

    def send(self, stream: str, rows: ROWS, parents: Any) -> None:
        used = self.place < len(PROGRAM.groupings) and (stream != "way" or "way" in PROGRAM.groupings[self.place])
        if not rows or not used:
            return
        following = [task for task, name in PROGRAM.tasks().items() if name == f"c{self.place + 1}"]
        to = following[-1] if stream == "way" else None
        if PROGRAM.forms[self.place] == "one":
            for row, parent in zip(rows, parents):
                self.emit(as_values(stream, row), stream=stream, anchors=parent, direct_task=to)
        else:
            emit_rows(self, PROGRAM.forms[self.place], stream, rows, anchors=parents, direct_task=to)


class Aside(Answering):
    def process(self, tup: Any) -> None:
        PROGRAM.got("aside", self.task_id, tup)
        self.ack(tup)


class Singly(Answering):
    def process(self, tup: Any) -> None:
        PROGRAM.got(self.component, self.task_id, tup)
        answer = self.answers(tup)
        if answer is None:
            self.fail(tup)
            return
        self.send(*answer, [tup] * len(answer[1]))
        self.ack(tup)


class Together(Answering):
    def process_batch(self, batch: Batch) -> None:
        for tup in batch:
            PROGRAM.got(self.component, self.task_id, tup)
        arrow = batch.to_arrow()
        assert arrow.schema == SCHEMAS[batch.stream]
        assert [list(row.values()) for row in arrow.to_pylist()] == [tup.values for tup in batch]
        backwards = list(range(-1, -len(batch) - 1, -1))
        assert batch.take(backwards).to_arrow().to_pylist() == arrow.to_pylist()[::-1]
        assert list(batch.take(backwards[1:]).columns) == arrow.schema.names
        answers = [self.answers(tup) for tup in batch]
        self.fail(batch.take(n for n, answer in enumerate(answers) if answer is None))
        for stream in SCHEMAS:
            pairs = [
                (n, row) for n, answer in enumerate(answers) if answer and answer[0] == stream for row in answer[1]
            ]
            self.send(stream, [row for _, row in pairs], batch.take(n for n, _ in pairs))
        self.ack(batch)


@st.composite
def programs(draw: Any) -> Program:
    length = draw(st.integers(2, 3))
    parallelism = [draw(st.integers(1, 3)) for _ in range(length)]
    row = st.tuples(st.sampled_from([None, "", "a", "b", "é", "y" * 1500]), st.sampled_from([None, 0, -1, 2**62]))
    groupings = []
    for place in range(length - 1):
        streams = ["default"] if place == 0 else draw(st.lists(st.sampled_from(list(SCHEMAS)), min_size=1, unique=True))
        groupings.append({stream: draw(st.sampled_from(FITTING[stream])) for stream in streams})
    output = st.tuples(st.sampled_from([*SCHEMAS, "default"]), st.integers(-1 if draw(st.booleans()) else 0, 2))
    return Program(
        parallelism, groupings, draw(st.lists(row.map(list), min_size=1, max_size=12)),
        draw(st.lists(output, min_size=1, max_size=4)), draw(st.sampled_from(["ATMOST_ONCE", "ATLEAST_ONCE"])),
        [False, *(draw(st.booleans()) for _ in range(length - 1))],
        [draw(st.sampled_from(["one", "arrow", "table"])) for _ in range(length)], draw(st.integers(0, 1000)), draw(st.booleans()),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(programs())
def test_arrow_and_single_tuples_give_the_same(program: Program) -> None:
    global PROGRAM
    PROGRAM = program
    as_arrow, on_simulator = program.on_the_runtime(), program.on_the_simulator()
    PROGRAM = replace(program, batching=[False] * len(program.batching), forms=["one"] * len(program.forms))
    singly = PROGRAM.on_the_runtime()
    assert as_arrow == singly
    assert on_simulator == singly
