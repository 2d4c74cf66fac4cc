"""Emitter, acks, links, switch and acker together, in one process: random topologies, acks, faults.

Every tuple carries the ids of the spout tuples it derives from, so the test knows each tree by itself.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from heronpy.proto import topology_pb2
from tests.plan.builders import TopologyMessage
from tests.support.plane import Plane, UserObject

FIELDS = ["uid", "src", "seq", "ids", "extra"]
#: Small and large, plain and not.
EXTRAS = [None, 1, "x", "", b"\0", 2**70, (1, "a"), {"k": [1]}, "y" * 1500, "\ud800", 0.5]
SEEDS = range(40)
PLANES: list[Plane] = []


@pytest.fixture(autouse=True)
def close_planes() -> Iterator[None]:
    yield
    while PLANES:
        PLANES.pop().close()


class Book:
    """What the test knows of all tuples: trees, deliveries, order."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.uids = itertools.count(1)
        self.plane: Plane
        #: Copies of the tree of each spout tuple that were not acked yet.
        self.open: Counter[str] = Counter()
        self.failed: set[str] = set()
        self.outcome: defaultdict[str, list[str]] = defaultdict(list)
        self.emitted: Counter[int] = Counter()
        self.processed: Counter[int] = Counter()
        #: (source task, destination task) -> last sequence number.
        self.last: dict[tuple[int, int], int] = {}
        self.sequence: Counter[int] = Counter()
        self.calm = False
        self.raise_rate = 0.0

    def copies(self, component: str, stream: str) -> int:
        """Copies of a tuple of a stream: one per consumer, one per task for `all`."""
        tasks = Counter(name for name, _ in self.plane.places.values())
        total = 0
        for bolt in self.plane.topology.bolts:
            for source in bolt.inputs:
                if (source.stream.component_name, source.stream.id) == (component, stream):
                    total += tasks[bolt.comp.name] if source.gtype == topology_pb2.ALL else 1
        return total

    def new_tuple(self, task: int, component: str, stream: str, ids: set[str]) -> list[Any]:
        copies = self.copies(component, stream)
        uid = next(self.uids)
        seq = self.sequence[task] = self.sequence[task] + 1
        self.emitted[uid] += copies
        for one in ids:
            self.open[one] += copies
        return [uid, task, seq, " ".join(sorted(ids)), self.rng.choice(EXTRAS)]


class WordSpout(UserObject):
    def __init__(self, delegate: Any, book: Book, streams: list[str], total: int) -> None:
        super().__init__(delegate)
        self.book, self.streams, self.left = book, streams, total

    def next_tuple(self) -> None:
        rng = self.book.rng
        if not self.left:
            self.delegate.end_of_input()
            return
        if rng.random() < 0.3:
            return
        self.left -= 1
        tracked = rng.random() < 0.9
        ids = {f"{self.task_id}-{self.left}"} if tracked else set()
        stream = rng.choice(self.streams)
        component = self.book.plane.places[self.task_id][0]
        values = self.book.new_tuple(self.task_id, component, stream, ids)
        special = {"need_task_ids": True} if rng.random() < 0.1 else {}
        self.emit(values, tup_id=next(iter(ids), None), stream=stream, **special)

    def ack(self, tup_id: str) -> None:
        if self.book.plane.launch.reliability == "ATLEAST_ONCE":
            assert not self.book.open[tup_id], f"{tup_id} was acked with {self.book.open[tup_id]} copies open"
            assert tup_id not in self.book.failed
        self.book.outcome[tup_id].append("ack")

    def fail(self, tup_id: str) -> None:
        self.book.outcome[tup_id].append("fail")


class WordBolt(UserObject):
    def __init__(self, delegate: Any, book: Book, streams: list[str]) -> None:
        super().__init__(delegate)
        self.book, self.streams = book, streams
        self.kept: list[Any] = []
        self.finished: set[str] = set()

    def process(self, tup: Any) -> None:
        book, rng = self.book, self.book.rng
        uid, source, seq, _, extra = tup.values
        assert extra in EXTRAS
        book.processed[uid] += 1
        place = (source, self.task_id)
        assert seq > book.last.get(place, 0), f"order of {place}"
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
        for _ in range(rng.choice([0, 1, 1, 2]) if self.streams else 0):
            anchors = [tup]
            if self.kept and rng.random() < 0.5:
                # Tuples of the same tree, of other trees, and twice the same.
                anchors += rng.choices(self.kept, k=rng.randint(1, 3))
            if rng.random() < 0.1:
                anchors = []
            ids = {one for anchor in anchors for one in anchor.values[3].split()}
            stream = rng.choice(self.streams)
            component = self.book.plane.places[self.task_id][0]
            values = self.book.new_tuple(self.task_id, component, stream, ids)
            given: Any = anchors[0] if len(anchors) == 1 and rng.random() < 0.5 else anchors
            self.emit(values, stream=stream, anchors=given if anchors else None)

    def done(self, tup: Any, how: str) -> None:
        if how == "ack":
            self.ack(tup)
        else:
            self.fail(tup)
        self.mark(tup, how)

    def mark(self, tup: Any, how: str) -> None:
        """The first word on a copy counts."""
        if tup.id in self.finished:
            return
        self.finished.add(tup.id)
        ids = tup.values[3].split()
        if how == "ack":
            self.book.open.subtract(ids)
        else:
            self.book.failed.update(ids)

    def settle_kept(self) -> None:
        for kept in self.kept:
            self.done(kept, "ack")
        self.kept.clear()

    def process_tick(self, tup: Any) -> None:
        self.settle_kept()


def random_topology(
    rng: random.Random,
) -> tuple[topology_pb2.Topology, dict[int, tuple[str, int]], dict[str, list[str]]]:
    """A DAG with several streams, groupings and parallelisms, over one or two containers."""
    message = TopologyMessage()
    streams: dict[str, list[str]] = {}
    names: list[str] = []
    par: dict[str, int] = {}

    def declare(name: str) -> dict[str, list[str]]:
        streams[name] = ["default", *(["second"] if rng.random() < 0.5 else [])]
        par[name] = rng.randint(1, 3)
        names.append(name)
        return {stream: FIELDS for stream in streams[name]}

    for number in range(rng.randint(1, 2)):
        message.spout(f"spout{number}", outputs=declare(f"spout{number}"))
    for number in range(rng.randint(1, 4)):
        inputs: list[Any] = []
        for source in rng.sample(names, k=min(len(names), rng.randint(1, 2))):
            for stream in streams[source] if rng.random() < 0.6 else streams[source][:1]:
                kind, fields = rng.choice(
                    [
                        (topology_pb2.SHUFFLE, []),
                        (topology_pb2.FIELDS, ["uid"]),
                        (topology_pb2.ALL, []),
                        (topology_pb2.LOWEST, []),
                    ]
                )
                inputs.append((source, stream, kind, fields))
        message.bolt(f"bolt{number}", inputs, outputs=declare(f"bolt{number}"))
    tasks: dict[int, tuple[str, int]] = {}
    containers = rng.randint(1, 2)
    for name in names:
        for _ in range(par[name]):
            tasks[len(tasks) + 1] = (name, rng.randint(1, containers))
    return message.message, tasks, streams


def make_plane(monkeypatch: pytest.MonkeyPatch, seed: int, total: int, **options: Any) -> tuple[Plane, Book]:
    rng = random.Random(seed)
    topology, tasks, streams = random_topology(rng)
    book = Book(seed)
    make: dict[str, Any] = {}
    for spout in topology.spouts:
        make[spout.comp.name] = lambda d, s=streams[spout.comp.name]: WordSpout(d, book, s, total)
    for bolt in topology.bolts:
        make[bolt.comp.name] = lambda d, s=streams[bolt.comp.name]: WordBolt(d, book, s)

    class Early(Plane):
        """The user's objects need the plane from their first call on."""

        def publish(self) -> None:
            book.plane = self
            super().publish()

    plane = Early(monkeypatch, topology, tasks, make, seed=seed, **options)
    PLANES.append(plane)
    return plane, book


def finish(plane: Plane) -> None:
    """Come to rest, with all acks that bolts still keep."""
    plane.settle()
    for _ in range(20):
        plane.tick()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_tuple_ends_acked_or_failed_exactly_once(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    config = {
        "topology.max.spout.pending": random.Random(seed).choice([3, 20, 100]),
        "topology.message.timeout.secs": 1e9,
    }
    plane, book = make_plane(monkeypatch, seed, 60, reliability="ATLEAST_ONCE", config=config)
    plane.steps(400)
    finish(plane)
    plane.check_drained()
    tracked = {one for one in book.outcome} | {one for one in book.open}
    for one in tracked:
        expected = "fail" if one in book.failed else "ack"
        assert book.outcome[one] == [expected], one
    assert book.processed == +book.emitted
    for task in plane.tasks.values():
        if hasattr(task, "pending"):
            assert task.pending.total == 0 and task.exhausted
    assert all(not a.live_roots for c in plane.containers.values() for a in c.switch.ackers.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_without_acking_every_tuple_comes_once_and_in_order(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    plane, book = make_plane(monkeypatch, seed, 60)
    plane.steps(300)
    finish(plane)
    plane.check_drained()
    assert book.processed == +book.emitted
    # Ids given to emit are acked at once.
    assert all(how == ["ack"] for how in book.outcome.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_orderly_restarts_lose_nothing_and_repeat_nothing(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    plane, book = make_plane(monkeypatch, seed, 60)
    bolts = [t for t, (name, _) in plane.places.items() if name.startswith("bolt")]
    book.raise_rate = 0.02
    for _ in range(12):
        plane.steps(plane.rng.randint(1, 60))
        task_id = plane.rng.choice(bolts)
        if task_id in plane.tasks:
            plane.restart(task_id)
    finish(plane)
    plane.check_drained()
    assert book.processed == +book.emitted
    assert not any(c.switch.discarded for c in plane.containers.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_orderly_restarts_with_acking_complete_every_tree(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    config = {"topology.max.spout.pending": 20, "topology.message.timeout.secs": 1e9}
    plane, book = make_plane(monkeypatch, seed, 60, reliability="ATLEAST_ONCE", config=config)
    book.raise_rate, book.calm = 0.02, True
    plane.steps(600)
    finish(plane)
    plane.check_drained()
    for one in {*book.outcome, *book.open}:
        assert book.outcome[one] == ["fail" if one in book.failed else "ack"], one
    assert book.processed == +book.emitted
