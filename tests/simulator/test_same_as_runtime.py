"""The simulator against the runtime: random small programs give the same tuples and the same errors on both."""

from __future__ import annotations

import fcntl
import os
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.common.errors import HeronError
from heronpy.common.hashing import stable_hash
from tests.sim.kernel import World, current_process
from tests.sim.sockets import Pipe
from tests.simulator import random_programs
from tests.simulator.random_programs import FITTING, GROUPINGS, OUTPUTS

TUPLE_MAX_BYTES = 200
WIDTHS = {stream.stream_id: len(stream.fields) for stream in OUTPUTS}


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


class Astray(ICustomGrouping):
    """A custom grouping that chooses a task of no consumer."""

    def prepare(self, context: Any, component: str, stream: str, target_tasks: list[int]) -> None: ...

    def choose_tasks(self, values: Any) -> list[int]:
        return [999]


@dataclass(kw_only=True)
class Program(random_programs.Program):
    """What each component takes and emits."""

    #: By component: source and stream to grouping.
    inputs: dict[str, dict[tuple[str, str], str]]
    emits: dict[str, list[Emit]]
    allow_pickle: bool
    groupings_by_name = GROUPINGS | {"custom": Grouping.custom(Astray())}

    def kind_of(self, component: str) -> type[Any]:
        return Source if component == "c0" else Worker

    def inputs_of(self, component: str) -> dict[tuple[str, str], str]:
        return self.inputs[component]

    def config(self) -> dict[str, Any]:
        limits = {"heron.instance.tuple_max_bytes": TUPLE_MAX_BYTES, "heron.instance.allow_pickle": self.allow_pickle}
        return super().config() | limits

    def emit(self, owner: Any, component: str, emit: Emit, **more: Any) -> None:
        """Emit and write down what it returned or raised."""
        try:
            found = emit.of(owner, **more)
        except HeronError as error:
            self.seen["error", component, type(error).__name__, str(error)] += 1
        else:
            self.seen["emitted", component, None if found is None else len(found)] += 1


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


class Source(Spout):
    outputs = OUTPUTS

    def initialize(self, config: Any, context: Any) -> None: ...

    def next_tuple(self) -> None:
        self.left = getattr(self, "left", None) or deque(Program.current.emits["c0"])
        emit = self.left.popleft()
        Program.current.emit(self, "c0", emit, tup_id=len(self.left))
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
        Program.current.got(self.task, tup)
        component = Program.current.tasks()[self.task]
        emits = Program.current.emits[component]
        if emits:
            Program.current.emit(self, component, emits[stable_hash(repr(tup.values)) % len(emits)], anchors=[tup])
        self.ack(tup)

    def process_tick(self, tup: Any) -> None: ...


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
    inputs = {}
    for at, name in enumerate(names[1:], 1):
        sources = st.tuples(st.sampled_from(names[:at]), st.sampled_from([*WIDTHS, "default"]))
        taken = draw(st.lists(sources, min_size=1, max_size=3, unique=True))
        inputs[name] = {source: draw(st.sampled_from(FITTING[source[1]])) for source in taken}
    of_task = emits(sum(parallelism))
    return Program(
        parallelism=parallelism,
        mode=draw(st.sampled_from(["ATMOST_ONCE", "ATLEAST_ONCE"])),
        seed=draw(st.integers(0, 999)),
        inputs=inputs,
        emits={name: draw(st.lists(of_task, min_size=name == "c0", max_size=6)) for name in names},
        allow_pickle=draw(st.booleans()),
    )


@settings(max_examples=30, deadline=None)
@given(programs())
def test_simulator_and_runtime_agree(program: Program) -> None:
    runtime = program.on_the_runtime(
        instance__tuple_max_bytes=TUPLE_MAX_BYTES, instance__allow_pickle=program.allow_pickle
    )
    # Not until it is idle: a spout whose emits are refused counts as silent.
    assert program.on_the_simulator(until_idle=False, seconds=5) == runtime
