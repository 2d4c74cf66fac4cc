"""The simulator against the runtime: random small programs give the same tuples and the same errors on both.

The runtime's side is the simulated cluster: real tasks, stream managers and a topology master.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder
from heronpy.common.errors import HeronError
from heronpy.common.hashing import stable_hash
from heronpy.proto import control_pb2
from heronpy.simulator import Simulator
from tests.sim import workload
from tests.sim.kernel import World, current_process
from tests.sim.run import cluster_of
from tests.sim.sockets import Pipe

TUPLE_MAX_BYTES = 200
#: Streams of every component; the last one is direct.
WIDTHS = {"default": 2, "one": 1, "empty": 0, "way": 1}


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass(frozen=True)
class Emit:
    """One call of `emit`."""

    values: Any
    stream: str
    direct_task: int | None
    need_task_ids: bool
    #: What a spout says about its next call.
    says: str = ""

    def of(self, owner: Any, **more: Any) -> Any:
        options = {"stream": self.stream, "direct_task": self.direct_task, "need_task_ids": self.need_task_ids}
        return owner.emit(self.values, **{name: value for name, value in options.items() if value}, **more)


@dataclass
class Input:
    source: str
    stream: str
    grouping: str


@dataclass
class Program:
    """A chain of components, what each one emits, and what came of it."""

    parallelism: list[int]
    inputs: dict[str, list[Input]]
    emits: dict[str, list[Emit]]
    mode: str
    allow_pickle: bool
    #: Of the cluster: its windows, batches and delays.
    seed: int
    seen: Counter[Any] = field(default_factory=Counter)

    @property
    def components(self) -> list[str]:
        return [f"c{n}" for n in range(len(self.parallelism))]

    def tasks(self) -> dict[int, str]:
        """The component of each task, numbered as the simulator does it."""
        names = [name for name, count in zip(self.components, self.parallelism, strict=True) for _ in range(count)]
        return dict(enumerate(names, 1))

    def emit(self, owner: Any, component: str, emit: Emit, **more: Any) -> None:
        """Emit and write down what it returned or raised."""
        try:
            found = emit.of(owner, **more)
        except HeronError as error:
            self.seen["error", component, type(error).__name__, str(error)] += 1
        else:
            self.seen["emitted", component, None if found is None else len(found)] += 1

    def got(self, task: int, tup: Any) -> None:
        """Write down a tuple; the task counts where the grouping fixes it."""
        component = self.tasks()[task]
        [grouping] = [i.grouping for i in self.inputs[component] if (i.source, i.stream) == (tup.component, tup.stream)]
        fixed = task if grouping != "shuffle" else 0
        self.seen["got", component, fixed, tup.component, tup.stream, repr(tup.values)] += 1

    def builder(self) -> TopologyBuilder:
        builder = TopologyBuilder("same")
        specs: dict[str, Any] = {}
        for name, count in zip(self.components, self.parallelism, strict=True):
            if name == "c0":
                specs[name] = builder.add_spout(name, Source, par=count)
                continue
            inputs = {specs[i.source][i.stream]: GROUPINGS[i.grouping] for i in self.inputs[name]}
            specs[name] = builder.add_bolt(name, Worker, par=count, inputs=inputs)
        builder.set_config(
            {
                "topology.reliability.mode": self.mode,
                "topology.stmgrs": 2,
                "heron.instance.tuple_max_bytes": TUPLE_MAX_BYTES,
                "heron.instance.allow_pickle": self.allow_pickle,
            }
        )
        return builder

    def on_the_simulator(self) -> Counter[Any]:
        self.seen = Counter()
        with Simulator(self.builder().build()) as sim:
            # Not until it is idle: a spout whose emits are refused counts as silent.
            sim.run(until_idle=False, seconds=5)
        return self.seen

    def on_the_runtime(self) -> Counter[Any]:
        self.seen = Counter()
        settings = {"instance__tuple_max_bytes": TUPLE_MAX_BYTES, "instance__allow_pickle": self.allow_pickle}
        with cluster_of(self.seed, workload.Program(self.builder(), None), **settings) as (cluster, auditor):
            cluster.until(control_pb2.LIFE_FINISHED)
            auditor.drained()
            started = [process.name for process in cluster.world.processes if process.role == "instance"]
            assert len(started) == len(self.tasks()), "none has failed"
        return self.seen


PROGRAM: Program
#: A descriptor that can always be read, with a number that no simulated process gives to one of its own.
_zero = os.open("/dev/zero", os.O_RDONLY | os.O_CLOEXEC)
READABLE = fcntl.fcntl(_zero, fcntl.F_DUPFD_CLOEXEC, 1000)
os.close(_zero)


def readable() -> int:
    """A descriptor that can always be read, in a simulated process as well."""
    if World.active is not None:
        pipe = current_process().fds[READABLE] = Pipe()
        pipe.count = 1
    return READABLE


OUTPUTS = [Stream(["a", "b"]), Stream(["a"], "one"), Stream([], "empty"), Stream(["a"], "way", direct=True)]


class Source(Spout):
    outputs = OUTPUTS

    def initialize(self, config: Any, context: Any) -> None: ...

    def next_tuple(self) -> None:
        self.left = getattr(self, "left", None) or deque(PROGRAM.emits["c0"])
        emit = self.left.popleft()
        PROGRAM.emit(self, "c0", emit, tup_id=len(self.left))
        if "wait" in emit.says:
            self.wait(2e-6)
        if "read" in emit.says:
            self.wait_readable(readable())
        if "busy" in emit.says:
            self.busy()
        if not self.left:
            self.end_of_input()

    def ack(self, tup_id: Any) -> None: ...

    def fail(self, tup_id: Any) -> None: ...


class Worker(Bolt):
    outputs = OUTPUTS

    def initialize(self, config: Any, context: Any) -> None:
        self.task = context.get_task_id()

    def process(self, tup: Any) -> None:
        PROGRAM.got(self.task, tup)
        component = PROGRAM.tasks()[self.task]
        emits = PROGRAM.emits[component]
        if emits:
            PROGRAM.emit(self, component, emits[stable_hash(repr(tup.values)) % len(emits)], anchors=[tup])
        self.ack(tup)

    def process_tick(self, tup: Any) -> None: ...


class Astray(ICustomGrouping):
    """A custom grouping that chooses a task of no consumer."""

    def prepare(self, context: Any, component: str, stream: str, target_tasks: list[int]) -> None: ...

    def choose_tasks(self, values: Any) -> list[int]:
        return [999]


GROUPINGS = {
    "shuffle": Grouping.SHUFFLE,
    "field": Grouping.fields("a"),
    "fields": Grouping.fields("a", "b"),
    "all": Grouping.ALL,
    "lowest": Grouping.LOWEST,
    "direct": Grouping.DIRECT,
    "custom": Grouping.custom(Astray()),
}
FITTING = {
    "default": ["shuffle", "field", "fields", "all", "lowest", "custom"],
    "one": ["shuffle", "field", "all", "lowest"],
    "empty": ["shuffle", "all", "lowest"],
    "way": ["direct"],
}

values = st.sampled_from([0, 1, 1.0, True, None, "x", "", "key", "é", b"ab", 2**70, (1, 2), [1], {"k": 1}, "y" * 150])
odd = st.sampled_from(
    ["a", "ab", "", b"a", b"ab", b"", bytearray(b"ab"), 5, None, {"a": 1}, {0: 1, 1: 2}, {0: 1}, {1}, set(), object()]
)
rows = st.lists(values, max_size=3)
sequences = st.one_of(rows, rows.map(tuple), rows.map(deque), st.builds(Pair, values, values), odd)


@st.composite
def emits(draw: Any, tasks: int) -> Emit:
    stream = draw(st.sampled_from([*WIDTHS, "default", "odd"]))
    right = st.lists(values, min_size=WIDTHS.get(stream, 1), max_size=WIDTHS.get(stream, 1))
    direct = (
        draw(st.one_of(st.none(), st.integers(1, tasks + 1))) if stream != "default" or draw(st.booleans()) else None
    )
    says = draw(st.sampled_from(["", "", "wait", "read", "busy", "wait read", "wait busy"]))
    return Emit(draw(st.one_of(right, right, sequences)), stream, direct, draw(st.booleans()), says)


@st.composite
def programs(draw: Any) -> Program:
    parallelism = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    names = [f"c{n}" for n in range(len(parallelism))]
    inputs: dict[str, list[Input]] = {}
    for at, name in enumerate(names[1:], 1):
        sources = st.tuples(st.sampled_from(names[:at]), st.sampled_from([*WIDTHS, "default"]))
        taken = draw(st.lists(sources, min_size=1, max_size=3, unique=True))
        inputs[name] = [Input(source, stream, draw(st.sampled_from(FITTING[stream]))) for source, stream in taken]
    of_task = emits(sum(parallelism))
    chosen = {name: draw(st.lists(of_task, min_size=name == "c0", max_size=6)) for name in names}
    mode = draw(st.sampled_from(["ATMOST_ONCE", "ATLEAST_ONCE"]))
    return Program(parallelism, inputs, chosen, mode, draw(st.booleans()), draw(st.integers(0, 999)))


@settings(max_examples=60, deadline=None)
@given(programs())
def test_simulator_and_runtime_agree(program: Program) -> None:
    global PROGRAM
    PROGRAM = program
    runtime = program.on_the_runtime()
    assert program.on_the_simulator() == runtime
