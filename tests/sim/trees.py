"""Random topologies whose every tuple carries the ids of the spout tuples it derives from: its book knows each tree.

The user's code asserts in place: order for each pair of tasks, and no ack while a copy is open.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from typing import Any

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder
from tests.sim.kernel import START_S, active_world
from tests.sim.workload import AT_LEAST

FIELDS = ["uid", "src", "seq", "ids", "extra"]
#: Small and large, plain and not.
EXTRAS = [None, 1, "x", "", b"\0", 2**70, (1, "a"), {"k": [1]}, "y" * 1500, "\ud800", 0.5]
TUPLES = 60


class Book:
    """What the test knows of all tuples: trees, deliveries, order."""

    def __init__(self, seed: int, mode: str) -> None:
        self.rng = random.Random(seed)
        self.mode = mode
        self.uids = itertools.count(1)
        self.streams: dict[str, list[str]] = {}
        self.parallelism: dict[str, int] = {}
        #: (component, stream) -> (consumer, whether all of its tasks get a copy).
        self.consumers: defaultdict[tuple[str, str], list[tuple[str, bool]]] = defaultdict(list)
        #: Copies of the tree of each spout tuple that were not acked yet.
        self.open: Counter[str] = Counter()
        self.failed: set[str] = set()
        self.outcome: defaultdict[str, list[str]] = defaultdict(list)
        self.emitted: Counter[int] = Counter()
        self.processed: Counter[int] = Counter()
        #: (source task, destination task) -> last sequence number.
        self.last: dict[tuple[int, int], int] = {}
        self.sequence: Counter[int] = Counter()
        self.raised = 0
        #: Whether bolts ack at once; how often they raise; the seconds between two tuples of a spout.
        self.calm = False
        self.raise_rate = 0.0
        self.pace_s = 0.0

    def new_tuple(self, task: int, component: str, stream: str, ids: set[str]) -> list[Any]:
        """Values for a tuple, noted with one copy for each consumer, and for each of its tasks with `ALL`."""
        copies = sum(self.parallelism[name] if every else 1 for name, every in self.consumers[component, stream])
        uid = next(self.uids)
        self.sequence[task] += 1
        self.emitted[uid] += copies
        for one in ids:
            self.open[one] += copies
        return [uid, task, self.sequence[task], " ".join(sorted(ids)), self.rng.choice(EXTRAS)]

    def draw(self, **config: Any) -> TopologyBuilder:
        """A DAG with several streams, groupings and parallelisms, over one or two containers."""
        rng, made = self.rng, TopologyBuilder("sim")
        specs: dict[str, Any] = {}
        for number in range(rng.randint(1, 2)):
            name = f"spout{number}"
            specs[name] = made.add_spout(name, TreeSpout, par=self._par(name), optional_outputs=self._outputs(name))
        for number in range(rng.randint(1, 4)):
            name, inputs = f"bolt{number}", {}
            for source in rng.sample(list(specs), k=min(len(specs), rng.randint(1, 2))):
                for stream in self.streams[source] if rng.random() < 0.6 else self.streams[source][:1]:
                    grouping = rng.choice((Grouping.SHUFFLE, Grouping.fields("uid"), Grouping.ALL, Grouping.LOWEST))
                    inputs[specs[source][stream]] = grouping
                    self.consumers[source, stream].append((name, grouping == Grouping.ALL))
            specs[name] = made.add_bolt(
                name, TreeBolt, par=self._par(name), inputs=inputs, optional_outputs=self._outputs(name)
            )
        made.set_config(
            {
                api_constants.TOPOLOGY_STMGRS: rng.randint(1, 2),
                api_constants.TOPOLOGY_RELIABILITY_MODE: self.mode,
                api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS: 100_000,
                api_constants.TOPOLOGY_TICK_TUPLE_FREQ_MS: 20,
                **config,
            }
        )
        return made

    def _par(self, name: str) -> int:
        self.parallelism[name] = self.rng.randint(1, 3)
        return self.parallelism[name]

    def _outputs(self, name: str) -> list[Stream]:
        self.streams[name] = ["default", *(["second"] if self.rng.random() < 0.5 else [])]
        return [Stream(FIELDS, stream) for stream in self.streams[name]]


class _Tree:
    """What spouts and bolts share."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.book: Book = active_world().outside  # type: ignore[attr-defined]
        self.task, self.component = context.get_task_id(), context.get_component_id()

    def new_tuple(self, ids: set[str]) -> tuple[list[Any], str]:
        """Values and their stream."""
        stream = self.book.rng.choice(self.book.streams[self.component])
        return self.book.new_tuple(self.task, self.component, stream, ids), stream


class TreeSpout(_Tree, Spout):
    left = TUPLES

    def next_tuple(self) -> None:
        rng = self.book.rng
        if not self.left:
            self.end_of_input()
            return
        if active_world().now < START_S + (TUPLES - self.left) * self.book.pace_s or rng.random() < 0.3:
            return
        self.left -= 1
        ids = {f"{self.task}-{self.left}"} if rng.random() < 0.9 else set()
        values, stream = self.new_tuple(ids)
        special = {"need_task_ids": True} if rng.random() < 0.1 else {}
        self.emit(values, tup_id=next(iter(ids), None), stream=stream, **special)

    def ack(self, tup_id: str) -> None:
        book = self.book
        if book.mode == AT_LEAST and (book.open[tup_id] or tup_id in book.failed):
            active_world().wrong(f"{tup_id} was acked with {book.open[tup_id]} copies open, or failed")
        book.outcome[tup_id].append("ack")

    def fail(self, tup_id: str) -> None:
        self.book.outcome[tup_id].append("fail")


class TreeBolt(_Tree, Bolt):
    def initialize(self, config: dict[str, Any], context: Any) -> None:
        super().initialize(config, context)
        self.kept: list[Any] = []
        self.finished: set[str] = set()

    def process(self, tup: Any) -> None:
        book, rng = self.book, self.book.rng
        uid, source, seq, _, extra = tup.values
        book.processed[uid] += 1
        place = (source, self.task)
        if seq <= book.last.get(place, 0) or extra not in EXTRAS:
            active_world().wrong(f"tuple {seq} of tasks {place} came after {book.last.get(place)}, with {extra!r}")
        book.last[place] = seq
        if rng.random() < 0.03:
            self.emit_some(tup)
            self.done(tup, "fail")
            if rng.random() < 0.5:
                self.done(tup, "ack")
            return
        self.emit_some(tup)
        if rng.random() < book.raise_rate:
            self.settle_kept()
            self.mark(tup, "fail")
            book.raised += 1
            raise ValueError("poison")
        if rng.random() < 0.25 and not book.calm:
            self.kept.append(tup)
            if len(self.kept) > 4:
                self.done(self.kept.pop(rng.randrange(len(self.kept))), "ack")
            return
        self.done(tup, "ack")
        if rng.random() < 0.05:
            self.done(tup, rng.choice(["ack", "fail"]))

    def emit_some(self, tup: Any) -> None:
        rng = self.book.rng
        for _ in range(rng.choice([0, 1, 1, 2])):
            anchors = [tup]
            if self.kept and rng.random() < 0.5:
                # Tuples of the same tree, of other trees, and twice the same.
                anchors += rng.choices(self.kept, k=rng.randint(1, 3))
            if rng.random() < 0.1:
                anchors = []
            values, stream = self.new_tuple({one for anchor in anchors for one in anchor.values[3].split()})
            given: Any = anchors[0] if len(anchors) == 1 and rng.random() < 0.5 else anchors
            self.emit(values, stream=stream, anchors=given if anchors else None)

    def done(self, tup: Any, how: str) -> None:
        (self.ack if how == "ack" else self.fail)(tup)
        self.mark(tup, how)

    def mark(self, tup: Any, how: str) -> None:
        """The first ack or fail of a copy wins."""
        if tup.id in self.finished:
            return
        self.finished.add(tup.id)
        ids = tup.values[3].split()
        if how == "ack":
            self.book.open.subtract(ids)
        else:
            self.book.failed.update(ids)

    def settle_kept(self) -> None:
        if self.book.rng.random() < 0.5:
            self.ack(self.kept)
            for kept in self.kept:
                self.mark(kept, "ack")
        else:
            for kept in self.kept:
                self.done(kept, "ack")
        self.kept.clear()

    def process_tick(self, tup: Any) -> None:
        self.settle_kept()
