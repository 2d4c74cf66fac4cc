"""The simulator against the runtime: random small programs give the same tuples and the same errors on both.

The runtime's side is the plane: real tasks and stream managers in one process.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder
from heronpy.common.errors import HeronError
from heronpy.common.hashing import stable_hash
from heronpy.simulator import Simulator
from tests.support.plane import INSTANCE, Plane

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

    def topology(self) -> Any:
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
                "heron.instance.tuple_max_bytes": TUPLE_MAX_BYTES,
                "heron.instance.allow_pickle": self.allow_pickle,
            }
        )
        return builder.build()

    def on_the_simulator(self) -> Counter[Any]:
        self.seen = Counter()
        with Simulator(self.topology()) as sim:
            # Not until it is idle: a spout whose emits are refused counts as silent.
            sim.run(until_idle=False, seconds=5)
        return self.seen

    def on_the_runtime(self) -> Counter[Any]:
        self.seen = Counter()
        with pytest.MonkeyPatch.context() as patches:
            plane = Plane(
                patches,
                self.topology(),
                {task: (component, 1 + task % 2) for task, component in self.tasks().items()},
                {name: partial(made, Source if name == "c0" else Worker) for name in self.components},
                reliability=self.mode,
                custom={(name, i.source, i.stream): Astray() for name, own in self.inputs.items() for i in own},
                instance_settings=replace(INSTANCE, tuple_max_bytes=TUPLE_MAX_BYTES, allow_pickle=self.allow_pickle),
            )
            try:
                # The plane takes a task that emits nothing for one at rest, and a refused emit emits nothing.
                # Its clock moves by looks at it, so a wait takes a few turns.
                for _ in range(4 * len(self.emits["c0"])):
                    plane.settle()
                assert not plane.failures
            finally:
                plane.close()
        return self.seen


PROGRAM: Program
#: A descriptor that can always be read.
READABLE = os.open("/dev/zero", os.O_RDONLY | os.O_CLOEXEC)


def made(kind: Any, delegate: Any) -> Any:
    delegate.logger = None
    return kind(delegate=delegate)


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
            self.wait_readable(READABLE)
        if "busy" in emit.says:
            self.busy()
        if not self.left:
            self.end_of_input()

    def ack(self, tup_id: Any) -> None: ...

    def fail(self, tup_id: Any) -> None: ...


class Worker(Bolt):
    outputs = OUTPUTS

    def initialize(self, config: Any, context: Any) -> None: ...

    def process(self, tup: Any) -> None:
        task = self.delegate.task_id
        PROGRAM.got(task, tup)
        component = PROGRAM.tasks()[task]
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
    return Program(parallelism, inputs, chosen, mode, draw(st.booleans()))


@settings(max_examples=60, deadline=None)
@given(programs())
def test_simulator_and_runtime_agree(program: Program) -> None:
    global PROGRAM
    PROGRAM = program
    runtime = program.on_the_runtime()
    assert program.on_the_simulator() == runtime
