"""The simulated topology's user code, and the world outside that it reads from and writes to.

source -> relay -> count -> sink, keyed at count; in a diamond count also hears the source itself. A record
is (source, seq, via). The source's place and what the sink makes visible lie in `Outside`, which outlives
every process; its transactions are fenced by attempt, as a real target's must be.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.state.two_phase import TwoPhaseStatefulComponent
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.proto import topology_pb2
from tests.sim.kernel import START_S, active_world, current_process, spend

EFFECTIVELY, AT_LEAST, AT_MOST = "EFFECTIVELY_ONCE", "ATLEAST_ONCE", "ATMOST_ONCE"
Record = tuple[int, int, int]
#: Mean of what user code takes, in units of a shape's cost: mostly 0.2 to 2, one time in a hundred 50 times that.
COST_MEAN = 1.1 * (0.99 + 0.01 * 50)
FIELDS = ["key", "source", "seq", "via", "pad"]


def key_of(source: int, seq: int, keys: int) -> str:
    """The key of a record; some keys are much more frequent."""
    value = (source * 7919 + seq * 104729) % 1009
    return f"k{value % keys}" if value % 3 else "k0"


def mark_of(record: Record) -> int:
    """A number that makes sums of records differ."""
    source, seq, via = record
    return (source + 1) * 1_000_003 + (seq + 1) * 7_919 + via * 131 + seq * seq * 17


@dataclass(frozen=True)
class Shape:
    """What a seed drew for its topology."""

    mode: str
    sources: int
    relays: int
    counts: int
    sinks: int
    records: int
    keys: int
    pad: int
    diamond: bool
    shuffled: bool
    containers: int
    cost_s: float
    #: Records that a source has at once, and the seconds for each of them.
    burst: int = 1
    pace_s: float = 0.0
    max_pending: int = 20
    #: Classes of source, relay, count and sink; (): those of this module. See ways.py.
    users: tuple[Any, ...] = ()

    def outside(self) -> Outside:
        """What user code finds outside of its process."""
        return Outside(self)

    @property
    def vias(self) -> tuple[int, ...]:
        return (0, 1) if self.diamond else (0,)

    def expected(self, positions: dict[int, int] | None = None) -> set[Record]:
        """The records of the sources, or of their first ones."""
        return {
            (source, seq, via)
            for source in range(self.sources)
            for seq in range(self.records if positions is None else positions.get(source, 0))
            for via in self.vias
        }

    def due(self, seq: int) -> float:
        """When a source has its record: the input does not wait for anybody."""
        return START_S + seq // self.burst * self.burst * self.pace_s

    @property
    def message_timeout_s(self) -> int:
        """Three times what one task needs for everything that may be pending, and not less than 8 seconds.

        With less, every tuple times out while it waits behind those emitted again, and nothing ever ends: that
        is a wrong setting (docs/guarantees.md), not a fault of the runtime.
        """
        one_s = self.cost_s * COST_MEAN
        return max(8, math.ceil(3 * self.sources * self.max_pending * len(self.vias) * one_s))

    def topology(self, settings: dict[str, Any]) -> topology_pb2.Topology:
        """What is submitted."""
        made = TopologyBuilder("sim")
        made.set_config(
            {
                api_constants.TOPOLOGY_STMGRS: self.containers,
                api_constants.TOPOLOGY_RELIABILITY_MODE: self.mode,
                api_constants.TOPOLOGY_MAX_SPOUT_PENDING: self.max_pending,
                api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS: self.message_timeout_s,
                **settings,
            }
        )
        key = Grouping.fields("key")
        source_class, relay_class, count_class, sink_class = self.users or (Source, Relay, Count, Sink)
        source = made.add_spout("source", source_class, par=self.sources)
        relay_inputs = {source: Grouping.SHUFFLE if self.shuffled else key}
        relay = made.add_bolt("relay", relay_class, par=self.relays, inputs=relay_inputs)
        inputs = {relay: key, source: key} if self.diamond else {relay: key}
        count = made.add_bolt("count", count_class, par=self.counts, inputs=inputs)
        made.add_bolt("sink", sink_class, par=self.sinks, inputs={count: key})
        topology = made.build()
        topology.id = "sim-00000000"
        return topology


@dataclass(frozen=True)
class Program:
    """A test's own topology and what its user code finds outside of its process, in place of a `Shape`."""

    made: TopologyBuilder
    kept: Any
    #: Most bytes of a tuple, and twice the most tuples of a frame.
    pad: int = 2000
    records: int = 1000

    def outside(self) -> Any:
        """See the class."""
        return self.kept

    def topology(self, settings: dict[str, Any]) -> topology_pb2.Topology:
        """What is submitted."""
        topology = self.made.build()
        topology.id = "sim-00000000"
        return topology


@dataclass
class Outside:
    """Everything that outlives the topology's processes."""

    shape: Shape
    #: Where the input is read: per source, the records that were acked and the next one.
    acked: dict[int, set[int]] = field(default_factory=dict)
    next: dict[int, int] = field(default_factory=dict)
    emitted: Counter[Record] = field(default_factory=Counter)
    #: What the sink got, in the modes without transactions.
    delivered: Counter[Record] = field(default_factory=Counter)
    committed: Counter[Record] = field(default_factory=Counter)
    #: The same, as each sink made it visible: checkpoint to records.
    visible: dict[int, dict[int, list[Record]]] = field(default_factory=dict)
    #: Of each sink: checkpoint to what is prepared for it, and the attempt that may write.
    prepared: dict[int, dict[int, list[Record]]] = field(default_factory=dict)
    fence: dict[int, int] = field(default_factory=dict)
    #: Checkpoints that the state manager has as complete.
    complete: set[int] = field(default_factory=set)
    #: Checkpoints that somebody wanted to go back to, whatever was committed behind them.
    rewound: set[int] = field(default_factory=set)
    commits: int = 0
    #: Who was cut for which checkpoint.
    cuts: set[tuple[str, int, int]] = field(default_factory=set)

    def cut(self, component: str, index: int, checkpoint: int) -> None:
        """A number stands for one checkpoint, so no task takes it twice."""
        if (component, index, checkpoint) in self.cuts:
            active_world().wrong(f"{component} {index} is cut twice for checkpoint {checkpoint}")
        self.cuts.add((component, index, checkpoint))

    def owns(self, sink: int, attempt: int) -> bool:
        return attempt >= self.fence.get(sink, 0)

    def prepare(self, sink: int, attempt: int, checkpoint: int, records: list[Record]) -> None:
        if self.owns(sink, attempt):
            self.prepared.setdefault(sink, {}).setdefault(checkpoint, []).extend(records)

    def commit(self, sink: int, attempt: int, checkpoint: int) -> None:
        """Publish the output that was prepared up to a checkpoint; idempotent."""
        world = active_world()
        if not self.owns(sink, attempt):
            return
        if checkpoint and checkpoint not in self.complete:
            world.wrong(f"sink {sink} commits checkpoint {checkpoint}, which is not recorded as complete")
        waiting = self.prepared.setdefault(sink, {})
        for number in sorted(n for n in waiting if n <= checkpoint):
            records = waiting.pop(number)
            self.committed.update(records)
            self.visible.setdefault(sink, {}).setdefault(number, []).extend(records)
            self.commits += 1
            again = [record for record in records if self.committed[record] > 1]
            if again:
                world.wrong(f"sink {sink} commits records {again[:3]} twice, with checkpoint {number}")
        world.trace.note("commit", f"sink {sink} up to {checkpoint}, {len(self.committed)} records")

    def rewind(self, sink: int, attempt: int, checkpoint: int) -> None:
        """A new attempt begins at a checkpoint."""
        if not self.owns(sink, attempt):
            return
        self.fence[sink] = attempt
        self.commit(sink, attempt, checkpoint)
        self.prepared[sink] = {}
        behind = [number for number in self.visible.get(sink, {}) if number > checkpoint]
        world = active_world()
        wanted = checkpoint in self.rewound or world.disk.damaged  # type: ignore[attr-defined]
        if behind and not wanted:
            world.wrong(f"sink {sink} goes back to checkpoint {checkpoint}, and {max(behind)} was committed")
        for number in behind:
            self.committed.subtract(self.visible[sink].pop(number))
        self.committed += Counter()


def _outside() -> Outside:
    outside: Outside = active_world().outside  # type: ignore[attr-defined]
    return outside


def _index(context: Any) -> int:
    tasks = sorted(context.get_component_tasks(context.get_component_id()))
    return tasks.index(context.get_task_id())


class Costly:
    """User code takes time, and sometimes much of it."""

    def take_time(self) -> None:
        process = current_process()
        cost = self.shape.cost_s  # type: ignore[attr-defined]
        if cost:
            spend(process.rng.uniform(0.2, 2.0) * cost * (50 if process.rng.random() < 0.01 else 1))


class Records(Costly, StatefulComponent):
    """A source's position in its input, and its pending records."""

    outputs = FIELDS
    state: Any = None

    def init_state(self, state: Any) -> None:
        self.state = state

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.outside = _outside()
        self.shape = self.outside.shape
        self.index = _index(context)
        self.again: list[int] = []
        self.pending: set[int] = set()
        self.position = 0
        if self.shape.mode == EFFECTIVELY:
            self.position = self.state.get("next", 0)
        elif self.shape.mode == AT_MOST:
            self.position = self.outside.next.get(self.index, 0)
        else:
            # The process before this one is gone, and with it its pending tuples.
            acked = self.outside.acked.setdefault(self.index, set())
            self.position = self.outside.next.get(self.index, 0)
            self.again = [seq for seq in range(self.position) if seq not in acked]

    def pre_save(self, checkpoint_id: str) -> None:
        self.outside.cut("source", self.index, int(checkpoint_id))
        self.state["next"] = self.position

    @property
    def over(self) -> bool:
        """Everything was emitted, and nothing can be emitted again."""
        return self.position >= self.shape.records and not self.again and not self.pending

    def next_due(self) -> int | None:
        """The record to emit now, if there is one."""
        if self.again:
            return self.again[0]
        if self.position < self.shape.records and self.shape.due(self.position) <= active_world().now:
            return self.position
        return None

    def wait_s(self) -> float:
        """How long until the next record is due; a moment when all are on their way."""
        if self.position >= self.shape.records:
            return 0.05
        return min(0.05, max(0.0, self.shape.due(self.position) - active_world().now))

    def row(self, seq: int) -> list[Any]:
        return [key_of(self.index, seq, self.shape.keys), self.index, seq, 1, b"x" * self.shape.pad]

    def id_of(self, seq: int) -> int | None:
        """The record of an ack or a fail."""
        return seq if self.shape.mode == AT_LEAST else None

    def went(self, seq: int) -> None:
        """A record was emitted; nothing came in between."""
        if self.again and self.again[0] == seq:
            self.again.pop(0)
        elif seq == self.position:
            self.position += 1
            self.outside.next[self.index] = max(self.outside.next.get(self.index, 0), self.position)
        for via in self.shape.vias:
            self.outside.emitted[(self.index, seq, via)] += 1
        if self.shape.mode == AT_LEAST:
            self.pending.add(seq)

    def ack(self, tup_id: Any) -> None:
        self.pending.discard(tup_id)
        self.outside.acked[self.index].add(tup_id)
        self.world_checks_ack(tup_id)

    def world_checks_ack(self, seq: int) -> None:
        """At least once: an acked record was delivered."""
        for via in self.shape.vias:
            if not self.outside.delivered[(self.index, seq, via)]:
                active_world().wrong(f"record {(self.index, seq, via)} was acked and never delivered")

    def fail(self, tup_id: Any) -> None:
        self.pending.discard(tup_id)
        if tup_id not in self.outside.acked[self.index]:
            self.again.append(tup_id)


class Source(Records, Spout):
    def next_tuple(self) -> None:
        self.take_time()
        seq = self.next_due()
        if seq is not None:
            self.went(seq)
            self.emit(self.row(seq), tup_id=self.id_of(seq))
        elif self.over:
            self.end_of_input()


class One:
    """A bolt that takes tuples one by one; `one` says what becomes of their values."""

    def process(self, tup: Any) -> None:
        made = self.one(tup.values)  # type: ignore[attr-defined]
        if made is not None:
            self.emit(made, anchors=[tup])  # type: ignore[attr-defined]
        self.ack(tup)  # type: ignore[attr-defined]


class Relaying(Costly, Bolt):
    outputs = FIELDS

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.shape = _outside().shape
        self.last: dict[int, int] = {}

    def one(self, values: Any) -> list[Any]:
        self.take_time()
        key, source, seq, _, pad = values
        if self.shape.mode == AT_MOST and seq <= self.last.get(source, -1):
            active_world().wrong(f"record {seq} of source {source} came after {self.last[source]}")
        self.last[source] = seq
        return [key, source, seq, 0, pad]


class Relay(One, Relaying):
    """See above."""


class Counting(Costly, Bolt):
    outputs = FIELDS

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.shape = _outside().shape
        self.totals = context.keyed_state("totals")

    def one(self, values: Any) -> list[Any]:
        self.take_time()
        key, source, seq, via, pad = values
        count, marks = self.totals.get(key, (0, 0))
        self.totals[key] = (count + 1, marks + mark_of((source, seq, via)))
        return [key, source, seq, via, pad]


class Count(One, Counting):
    """See above."""


class Sinking(Costly, Bolt, TwoPhaseStatefulComponent):
    state: Any = None

    def init_state(self, state: Any) -> None:
        self.state = state

    def _bind(self) -> None:
        self.outside = _outside()
        self.shape = self.outside.shape
        self.fresh: list[Record] = []

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self._bind()
        self.task = context.get_task_id()
        self.attempt = context.attempt
        self.transactional = self.shape.mode == EFFECTIVELY
        if self.transactional:
            self.outside.rewind(self.task, self.attempt, self.restored)

    def pre_restore(self, checkpoint_id: str) -> None:
        self.restored = int(checkpoint_id)

    def one(self, values: Any) -> None:
        self.take_time()
        _, source, seq, via, _ = values
        record = (source, seq, via)
        if self.transactional:
            self.fresh.append(record)
            count, marks = self.state.get("seen", (0, 0))
            self.state["seen"] = (count + 1, marks + mark_of(record))
        else:
            self.outside.delivered[record] += 1

    def pre_save(self, checkpoint_id: str) -> None:
        self.outside.cut("sink", self.task, int(checkpoint_id))
        if self.fresh:
            self.outside.prepare(self.task, self.attempt, int(checkpoint_id), self.fresh)
            self.fresh = []

    def post_save(self, checkpoint_id: str) -> None:
        self.outside.commit(self.task, self.attempt, int(checkpoint_id))


class Sink(One, Sinking):
    """See above."""
