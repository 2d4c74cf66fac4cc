"""Batches against single tuples: random small programs give the same results in both ways.

Real tasks and stream managers on the simulated cluster, and the simulator. Each component of a program takes tuples
or batches, and emits one by one or together; what each task gets, and what its spout hears, must not tell.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
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

OUTPUTS = [Stream(["a", "b"]), Stream(["a"], "one"), Stream([], "empty"), Stream(["a"], "way", direct=True)]
FIELDS = {stream.stream_id: stream.fields for stream in OUTPUTS}
ROWS = list[list[Any]]


@dataclass(frozen=True)
class Output:
    """What comes of an input row: so many copies on a stream; a negative number fails it instead."""

    stream: str
    copies: int


@dataclass
class Program:
    """A chain: a spout, bolts that answer each tuple, and a sink."""

    parallelism: list[int]
    groupings: list[dict[str, str]]
    inputs: ROWS
    outputs: list[Output]
    mode: str
    #: By component: takes batches (a bolt), emits together, form of the columns.
    batching: list[bool]
    together: list[str]
    #: Of the cluster: its windows, batches and delays.
    seed: int
    seen: Counter[Any] = field(default_factory=Counter)

    def names(self) -> list[str]:
        return [f"c{n}" for n in range(len(self.parallelism))]

    def tasks(self) -> dict[int, str]:
        named = [n for n, count in zip(self.names(), self.parallelism, strict=True) for _ in range(count)]
        return dict(enumerate(named, 1))

    def builder(self) -> TopologyBuilder:
        builder = TopologyBuilder("same")
        names = self.names()
        spec: Any = builder.add_spout(names[0], Source, par=self.parallelism[0])
        for place, name in enumerate(names[1:]):
            kind = Together if self.batching[place + 1] else Singly
            inputs = {spec[stream]: GROUPINGS[how] for stream, how in self.groupings[place].items()}
            spec = builder.add_bolt(name, kind, par=self.parallelism[place + 1], inputs=inputs)
        builder.set_config(
            {"topology.reliability.mode": self.mode, "topology.max.spout.pending": 1000, "topology.stmgrs": 2}
        )
        return builder

    def answer(self, values: Any) -> Output:
        return self.outputs[stable_hash(repr(values)) % len(self.outputs)]

    def got(self, task: int, tup: Any) -> None:
        """Write down a tuple; the task counts where the grouping fixes it."""
        component = self.tasks()[task]
        how = self.groupings[self.names().index(component) - 1][tup.stream]
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
            assert len(started) == len(self.tasks()), "none has failed"
        return self.seen


PROGRAM: Program


class First(ICustomGrouping):
    """The first task, and a copy to the last one for some tuples."""

    tasks: list[int]

    def prepare(self, context: Any, component: str, stream: str, target_tasks: list[int]) -> None:
        self.tasks = target_tasks

    def choose_tasks(self, values: Any) -> list[int]:
        return [self.tasks[0], self.tasks[-1]] if stable_hash(repr(values)) % 3 else [self.tasks[0]]


GROUPINGS = {
    "shuffle": Grouping.SHUFFLE,
    "field": Grouping.fields("a"),
    "fields": Grouping.fields("a", "b"),
    "all": Grouping.ALL,
    "lowest": Grouping.LOWEST,
    "direct": Grouping.DIRECT,
    "custom": Grouping.custom(First()),
}
FITTING = {
    "default": ["shuffle", "field", "fields", "all", "lowest", "custom"],
    "one": ["shuffle", "field", "all", "lowest", "custom"],
    "empty": ["shuffle", "all", "lowest"],
    "way": ["direct"],
}


def emit_rows(owner: Any, form: str, stream: str, rows: ROWS, **more: Any) -> None:
    """Emit together, in one of the forms that may be given."""
    fields = FIELDS[stream]
    columns = [[row[place] for row in rows] for place in range(len(fields))]
    if form == "rows" or not fields:
        owner.emit_batch(rows=rows, stream=stream, **more)
    elif form == "dict":
        owner.emit_batch(dict(reversed(list(zip(fields, columns)))), stream=stream, **more)
    elif form == "numpy":
        arrays = []
        for column in columns:
            array = np.empty(len(column), dtype=object)
            array[:] = column
            arrays.append(array)
        owner.emit_batch(arrays, stream=stream, **more)
    else:
        owner.emit_batch(columns, stream=stream, **more)


class Source(Spout):
    outputs = OUTPUTS

    def initialize(self, config: Any, context: Any) -> None:
        self.task_id = context.get_task_id()

    def next_tuple(self) -> None:
        if getattr(self, "done", False):
            return
        self.done = True
        form = PROGRAM.together[0]
        ids = [f"{self.task_id}.{n}" for n in range(len(PROGRAM.inputs))]
        if form == "one":
            for tup_id, row in zip(ids, PROGRAM.inputs):
                self.emit(row, tup_id=tup_id)
        else:
            emit_rows(self, form, "default", PROGRAM.inputs, ids=ids)
        self.end_of_input()

    def ack(self, tup_id: Any) -> None:
        PROGRAM.seen["acked", tup_id] += 1

    def fail(self, tup_id: Any) -> None:
        PROGRAM.seen["failed", tup_id] += 1


class Answering(Bolt):
    outputs = OUTPUTS

    def initialize(self, config: Any, context: Any) -> None:
        self.task_id = context.get_task_id()

    def rows_for(self, output: Output, tup: Any) -> ROWS:
        width = len(FIELDS[output.stream])
        return [[*tup.values, n, n][:width] for n in range(output.copies)]

    @property
    def place(self) -> int:
        return PROGRAM.names().index(PROGRAM.tasks()[self.task_id])

    def receiver(self, stream: str) -> int | None:
        """The task of a direct stream, the same for each tuple."""
        following = [task for task, name in PROGRAM.tasks().items() if name == f"c{self.place + 1}"]
        return following[-1] if stream == "way" and following else None

    def is_consumed(self, stream: str) -> bool:
        return self.place < len(PROGRAM.groupings) and (stream != "way" or "way" in PROGRAM.groupings[self.place])


class Singly(Answering):
    def process(self, tup: Any) -> None:
        PROGRAM.got(self.task_id, tup)
        output = PROGRAM.answer(tup.values)
        if output.copies < 0:
            self.fail(tup)
            return
        form, rows = PROGRAM.together[self.place], self.rows_for(output, tup)
        if self.is_consumed(output.stream) and rows:
            to = self.receiver(output.stream)
            if form == "one":
                for row in rows:
                    self.emit(row, stream=output.stream, anchors=[tup], direct_task=to)
            else:
                emit_rows(self, form, output.stream, rows, anchors=tup, direct_task=to)
        self.ack(tup)


class Together(Answering):
    def process_batch(self, batch: Batch) -> None:
        form = PROGRAM.together[self.place]
        answers = [PROGRAM.answer(tup.values) for tup in batch]
        assert batch.rows() == [tuple(tup.values) for tup in batch]
        assert list(batch.columns) == FIELDS[batch.stream]
        assert list(zip(*batch.columns.values())) == (batch.rows() if batch.columns else [])
        failed = [place for place, output in enumerate(answers) if output.copies < 0]
        for tup in batch:
            PROGRAM.got(self.task_id, tup)
        for stream in FIELDS:
            parents = [n for n, o in enumerate(answers) if o.stream == stream for _ in range(max(0, o.copies))]
            if parents and self.is_consumed(stream):
                rows = [r for n, o in enumerate(answers) if o.stream == stream and o.copies > 0
                        for r in self.rows_for(o, batch[n])]  # fmt: skip
                to = self.receiver(stream)
                if form == "one":
                    for parent, row in zip(parents, rows):
                        self.emit(row, stream=stream, anchors=batch[parent], direct_task=to)
                else:
                    emit_rows(self, form, stream, rows, anchors=batch.take(parents), direct_task=to)
        if len(failed) % 2:
            self.fail(batch.take(failed))
            self.ack(batch)  # the first ack or fail of a tuple wins
        else:
            self.ack(batch.take(n for n in range(len(batch)) if n not in failed))
            self.fail(batch)


values = st.sampled_from([0, 1, 1.0, True, None, "x", "", "key", "é", b"ab", 2**70, (1, 2), "y" * 1500, float("nan")])
plain = st.sampled_from([0, 1, 2, None, "x", "key", b"ab", 0.5])


@st.composite
def programs(draw: Any) -> Program:
    length = draw(st.integers(2, 3))
    parallelism = [draw(st.integers(1, 3)) for _ in range(length)]
    # Small, because a tuple of the last component stands for up to 2 ** length of the first.
    kind = draw(st.sampled_from([values, plain, plain]))
    inputs = draw(st.lists(st.lists(kind, min_size=2, max_size=2), min_size=1, max_size=12))
    groupings = []
    for place in range(length - 1):
        streams = ["default"] if place == 0 else draw(st.lists(st.sampled_from(list(FIELDS)), min_size=1, unique=True))
        groupings.append({stream: draw(st.sampled_from(FITTING[stream])) for stream in streams})
    one = st.builds(Output, st.sampled_from([*FIELDS, "default"]), st.integers(-1 if draw(st.booleans()) else 0, 2))
    forms = st.sampled_from(["one", "rows", "dict", "numpy", "list"])
    return Program(
        parallelism, groupings, inputs, draw(st.lists(one, min_size=1, max_size=4)),
        draw(st.sampled_from(["ATMOST_ONCE", "ATLEAST_ONCE"])),
        [False, *(draw(st.booleans()) for _ in range(length - 1))], [draw(forms) for _ in range(length)], draw(st.integers(0, 1000)),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(programs())
def test_batches_and_single_tuples_give_the_same(program: Program) -> None:
    global PROGRAM
    PROGRAM = program
    batched, on_simulator = program.on_the_runtime(), program.on_the_simulator()
    PROGRAM = replace(program, batching=[False] * len(program.batching), together=["one"] * len(program.together))
    singly = PROGRAM.on_the_runtime()
    assert batched == singly
    assert on_simulator == singly
