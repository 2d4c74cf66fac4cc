"""Random small programs that run on the simulator and on the runtime, and write down what their components get and hear.

The runtime is the simulated cluster: real tasks, stream managers and a topology master.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

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
#: Streams of every component, and the groupings that fit to each.
OUTPUTS = [Stream(["a", "b"]), Stream(["a"], "one"), Stream([], "empty"), Stream(["a"], "way", direct=True)]
FITTING = {
    "default": ["shuffle", "field", "fields", "all", "lowest", "custom"],
    "one": ["shuffle", "field", "all", "lowest", "custom"],
    "empty": ["shuffle", "all", "lowest"],
    "way": ["direct"],
}


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
    "fields": Grouping.fields("b", "a"),
    "all": Grouping.ALL,
    "lowest": Grouping.LOWEST,
    "direct": Grouping.DIRECT,
    "custom": Grouping.custom(First()),
}


@dataclass(kw_only=True)
class Program:
    """Components c0, a spout, and c1, c2, ...: bolts."""

    parallelism: list[int]
    mode: str
    #: Of the cluster: its windows, batches and delays.
    seed: int
    seen: Counter[Any] = field(default_factory=Counter)
    groupings_by_name: ClassVar[dict[str, Any]] = GROUPINGS
    #: The one that runs; its components look here.
    current: ClassVar[Any]

    def kind_of(self, component: str) -> type[Any]:
        raise NotImplementedError("a subclass defines kind_of")

    def inputs_of(self, component: str) -> dict[tuple[str, str], str]:
        """Source and stream to the name of the grouping."""
        raise NotImplementedError("a subclass defines inputs_of")

    def config(self) -> dict[str, Any]:
        return {"topology.reliability.mode": self.mode, "topology.stmgrs": 2}

    def names(self) -> list[str]:
        return [f"c{n}" for n in range(len(self.parallelism))]

    def tasks(self) -> dict[int, str]:
        """The component of each task, numbered as the simulator does it."""
        named = [n for n, count in zip(self.names(), self.parallelism, strict=True) for _ in range(count)]
        return dict(enumerate(named, 1))

    def builder(self) -> TopologyBuilder:
        builder = TopologyBuilder("same")
        spout, *bolts = zip(self.names(), self.parallelism, strict=True)
        specs: dict[str, Any] = {spout[0]: builder.add_spout(spout[0], self.kind_of(spout[0]), par=spout[1])}
        for name, par in bolts:
            named = self.inputs_of(name).items()
            inputs = {specs[source][stream]: self.groupings_by_name[how] for (source, stream), how in named}
            specs[name] = builder.add_bolt(name, self.kind_of(name), par=par, inputs=inputs)
        builder.set_config(self.config())
        return builder

    def got(self, task: int, tup: Any) -> None:
        """Write down a tuple; the task counts where the grouping fixes it."""
        component = self.tasks()[task]
        how = self.inputs_of(component)[tup.component, tup.stream]
        fixed = 0 if how in ("shuffle", "custom") else task
        self.seen["got", component, fixed, tup.component, tup.stream, repr(tup.values)] += 1

    def begin(self) -> TopologyBuilder:
        Program.current, self.seen = self, Counter()
        return self.builder()

    def on_the_simulator(self, **options: Any) -> Counter[Any]:
        with Simulator(self.begin().build()) as sim:
            sim.run(**options)
        return self.seen

    def on_the_runtime(self, **settings: Any) -> Counter[Any]:
        with cluster_of(self.seed, workload.Program(self.begin(), None), **settings) as (cluster, auditor):
            cluster.until(control_pb2.LIFE_FINISHED)
            auditor.drained()
            started = [process.name for process in cluster.world.processes if process.role == "instance"]
            assert len(started) == len(self.tasks()), "none has failed"
        return self.seen


@dataclass(kw_only=True)
class Chain(Program):
    """A spout, bolts that answer each tuple, a sink, and maybe a second consumer of the spout's tuples.

    Each takes tuples or batches, and emits one by one or together.
    """

    #: Of each component but the last: stream to grouping.
    groupings: list[dict[str, str]]
    inputs: ROWS
    #: Of an input tuple: the stream and the number of what comes of it; a negative number fails it.
    outputs: list[tuple[str, int]]
    #: By component: takes batches (a bolt); how it emits.
    batching: list[bool]
    forms: list[str]
    #: The spout, and the bolts that take tuples and batches.
    kinds: ClassVar[tuple[type[Source], type[Singly], type[Together]]]

    def kind_of(self, component: str) -> type[Any]:
        place = self.names().index(component)
        return self.kinds[1 + self.batching[place] if place else 0]

    def inputs_of(self, component: str) -> dict[tuple[str, str], str]:
        place = self.names().index(component)
        if place > len(self.groupings):
            return {("c0", "default"): "shuffle"}
        return {(f"c{place - 1}", stream): how for stream, how in self.groupings[place - 1].items()}

    def config(self) -> dict[str, Any]:
        return super().config() | {"topology.max.spout.pending": 1000}

    def answer(self, values: Any) -> tuple[str, int]:
        return self.outputs[stable_hash(repr(values)) % len(self.outputs)]

    def check(self) -> None:
        """What each task gets, and what its spout hears, is the same with single tuples."""
        together, on_simulator = self.on_the_runtime(), self.on_the_simulator()
        count = len(self.parallelism)
        singly = replace(self, batching=[False] * count, forms=["one"] * count).on_the_runtime()
        assert together == singly
        assert on_simulator == singly


@st.composite
def chains(draw: Any, kind: type[Chain], fitting: dict[str, list[str]], inputs: Any, forms: list[str]) -> Chain:
    """Small, because a tuple of the last component stands for up to 2 ** length of the first."""
    length = draw(st.integers(2, 3))
    groupings = []
    for place in range(length - 1):
        streams = ["default"] if place == 0 else draw(st.lists(st.sampled_from(list(fitting)), min_size=1, unique=True))
        groupings.append({stream: draw(st.sampled_from(fitting[stream])) for stream in streams})
    count = length + draw(st.booleans())
    output = st.tuples(st.sampled_from([*fitting, "default"]), st.integers(-1 if draw(st.booleans()) else 0, 2))
    return kind(
        parallelism=[draw(st.integers(1, 3)) for _ in range(count)],
        mode=draw(st.sampled_from(["ATMOST_ONCE", "ATLEAST_ONCE"])),
        seed=draw(st.integers(0, 1000)),
        groupings=groupings,
        inputs=draw(st.lists(inputs, min_size=1, max_size=12)),
        outputs=draw(st.lists(output, min_size=1, max_size=4)),
        batching=[draw(st.booleans()) for _ in range(count)],
        forms=[draw(st.sampled_from(["one", *forms])) for _ in range(count)],
    )


class Component:
    """What the components of a chain share; a test adds how they emit."""

    task_id: int

    def initialize(self, config: Any, context: Any) -> None:
        self.task_id = context.get_task_id()
        self.place = Program.current.names().index(context.get_component_id())
        self.form = Program.current.forms[self.place]

    def emit_rows(self, form: str, stream: str, rows: ROWS, **more: Any) -> None:
        """Emit together, in one of the forms that may be given."""
        raise NotImplementedError("a subclass defines emit_rows")

    def row_of(self, stream: str, values: list[Any], number: int) -> list[Any]:
        """A row of a stream that tells from which tuple it comes."""
        raise NotImplementedError("a subclass defines row_of")

    def as_values(self, stream: str, row: list[Any]) -> list[Any]:
        """A row as single tuples give it."""
        return row


class Source(Component, Spout):
    def next_tuple(self) -> None:
        rows = Program.current.inputs
        ids = [None if n % 4 == 3 else f"{self.task_id}.{n}" for n in range(len(rows))]
        if self.form == "one":
            for tup_id, row in zip(ids, rows):
                self.emit(row, tup_id=tup_id)
        else:
            self.emit_rows(self.form, "default", rows, ids=ids)
        self.end_of_input()

    def ack(self, tup_id: Any) -> None:
        Program.current.seen["acked", tup_id] += 1

    def fail(self, tup_id: Any) -> None:
        Program.current.seen["failed", tup_id] += 1


class Answering(Component, Bolt):
    def send(self, stream: str, rows: ROWS, parents: Any, anchors: Any) -> None:
        program = Program.current
        if not rows or self.place >= len(program.groupings):
            return
        to = None
        if stream == "way":
            if stream not in program.groupings[self.place]:
                return
            to = [task for task, name in program.tasks().items() if name == f"c{self.place + 1}"][-1]
        if self.form == "one":
            for row, parent in zip(rows, parents, strict=True):
                self.emit(self.as_values(stream, row), stream=stream, anchors=[parent], direct_task=to)
        else:
            self.emit_rows(self.form, stream, rows, anchors=anchors, direct_task=to)


class Singly(Answering):
    def process(self, tup: Any) -> None:
        Program.current.got(self.task_id, tup)
        stream, count = Program.current.answer(tup.values)
        if count < 0:
            self.fail(tup)
            return
        parents = [tup] * count
        rows = [self.row_of(stream, tup.values, n) for n in range(count)]
        self.send(stream, rows, parents, tup if Program.current.seed % 2 else parents)
        self.ack(tup)


class Together(Answering):
    def check(self, batch: Batch) -> None:
        """What must hold of every batch."""

    def process_batch(self, batch: Batch) -> None:
        self.check(batch)
        for tup in batch:
            Program.current.got(self.task_id, tup)
        answers = [Program.current.answer(tup.values) for tup in batch]
        for stream in dict(answers):
            counts = [(n, count) for n, (name, count) in enumerate(answers) if name == stream]
            parents = batch.take(n for n, count in counts for _ in range(count))
            rows = [self.row_of(stream, batch[n].values, copy) for n, count in counts for copy in range(count)]
            self.send(stream, rows, parents, parents)
        failed = [n for n, (_, count) in enumerate(answers) if count < 0]
        if len(failed) % 2:
            self.fail(batch.take(failed))
            self.ack(batch)  # the first ack or fail of a tuple wins
        else:
            self.ack(batch.take(n for n in range(len(batch)) if n not in failed))
            self.fail(batch)
