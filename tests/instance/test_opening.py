"""Frames that hold what cannot be decoded, and frames that come before their plan, in a whole cluster."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.proto import control_pb2
from heronpy.wire.frames import DATA, Frame, header_and_frame, message_of
from instance import in_queue
from tests.sim.cluster import Cluster
from tests.sim.kernel import Process, active_world
from tests.sim.run import cluster_of
from tests.sim.verbs import Verbs
from tests.sim.workload import AT_LEAST, AT_MOST, Program

MODES = pytest.mark.parametrize("mode", [AT_MOST, AT_LEAST])
#: After it everything that can happen has happened.
REST_S = 3.0


def explode() -> None:
    raise RuntimeError("this value does not come back")


class Bomb:
    """It can be pickled and not unpickled."""

    def __reduce__(self) -> Any:
        return explode, ()


class Book:
    """What the spout emits, and what became of it."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values
        #: No value behind this one is emitted for now.
        self.until = len(values)
        self.acked: Counter[int] = Counter()
        self.failed: Counter[int] = Counter()
        self.stored: list[int] = []

    def program(self, mode: str) -> Program:
        made = TopologyBuilder("sim")
        spout = made.add_spout("spout", Numbers, par=1)
        passing = made.add_bolt("pass", Pass, par=1, inputs={spout: Grouping.SHUFFLE})
        made.add_bolt("store", Store, par=1, inputs={passing: Grouping.fields("n")})
        made.set_config(
            {
                api_constants.TOPOLOGY_RELIABILITY_MODE: mode,
                api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS: 100_000,
            }
        )
        return Program(made, self)


class Numbers(Spout):
    outputs = ["n", "value"]

    def initialize(self, config: Any, context: Any) -> None:
        self.book: Book = active_world().outside  # type: ignore[attr-defined]
        self.next = 0

    def next_tuple(self) -> None:
        if self.next < self.book.until:
            self.next += 1
            self.emit([self.next - 1, self.book.values[self.next - 1]], tup_id=self.next - 1)

    def ack(self, tup_id: int) -> None:
        self.book.acked[tup_id] += 1

    def fail(self, tup_id: int) -> None:
        self.book.failed[tup_id] += 1


class Pass(Bolt):
    outputs = ["n", "value"]

    def process(self, tup: Any) -> None:
        self.emit(list(tup.values), anchors=[tup])
        self.ack(tup)


class Store(Bolt):
    def process(self, tup: Any) -> None:
        active_world().outside.stored.append(tup.values[0])  # type: ignore[attr-defined]
        self.ack(tup)


def rest(cluster: Cluster) -> None:
    cluster.world.run(cluster.world.now + REST_S, lambda: False)


def the(cluster: Cluster, component: str) -> Process:
    """The process of a component's one task, once the topology runs."""
    cluster.until(control_pb2.LIFE_RUNNING)
    [process] = cluster.tasks(component)
    return process


@MODES
@pytest.mark.parametrize("seed", range(5))
def test_a_value_that_cannot_be_decoded_costs_its_own_tuple_only(mode: str, seed: int) -> None:
    bombs = {3, 4, 40, 99}
    book = Book([Bomb() if n in bombs else n for n in range(100)])
    with cluster_of(seed, book.program(mode)) as (cluster, auditor):
        passing = the(cluster, "pass").program
        rest(cluster)
        assert book.stored == [n for n in range(100) if n not in bombs], "the others arrive, in order"
        assert passing.progress.lost == len(bombs), "nothing is kept of them: poison_tries is 0 here"
        assert passing.metrics.counters["__malformed-tuples", ""] == len(bombs)
        if mode == AT_LEAST:
            assert book.acked == Counter(range(100)) and not book.failed, "given up, so not sent again"
        auditor.drained()


@MODES
def test_a_frame_that_cannot_be_split_is_counted_and_not_sent_again(mode: str) -> None:
    book = Book(list(range(100)))
    book.until = 0
    with cluster_of(0, book.program(mode)) as (cluster, auditor):
        passing = the(cluster, "pass").program
        book.until = 100
        broken = 0
        while not broken:
            cluster.world.step()
            inbox = passing.link.sock.inbox
            for place, parts in enumerate(inbox):
                header, data = header_and_frame(parts)
                frame = Frame.FromString(data)
                if frame.kind == DATA:
                    # No length changes, so that credit stays what it was.
                    frame.payload = b"\xc1" * len(frame.payload)
                    inbox[place] = message_of(header, frame.SerializeToString())
                    broken = frame.count
                    break
        rest(cluster)
        assert len(book.stored) == 100 - broken
        assert passing.metrics.counters["__malformed-tuples", ""] == broken == passing.progress.lost
        if mode == AT_LEAST:
            assert book.acked == Counter(range(100)) and not book.failed
        auditor.drained()


def grow_without_telling(cluster: Cluster, verbs: Verbs, book: Book) -> tuple[Any, list[Any]]:
    """Another task of `pass`, of which `store` does not hear: its task, with frames that wait, and what it is not told."""
    store = the(cluster, "store").program
    cluster.run(lambda: not store.plan.spouts_held)  # the plan that starts the spouts has come
    kept: list[Any] = []
    tell = store.control.deliver
    store.control.deliver = lambda message: (
        kept.append(message) if isinstance(message, control_pb2.NewPlan) else tell(message)
    )
    verbs.scale("pass", 2)
    cluster.run(lambda: len(cluster.tasks("pass")) == 2 and bool(kept))
    book.until = len(book.values)
    cluster.run(lambda: bool(store.opener.early_frames))
    return store, kept


@MODES
@pytest.mark.parametrize("seed", range(5))
def test_frames_of_a_task_that_the_plan_does_not_have_yet_wait(mode: str, seed: int) -> None:
    book = Book(list(range(300)))
    book.until = 50
    with cluster_of(seed, book.program(mode)) as (cluster, auditor):
        store, kept = grow_without_telling(cluster, Verbs(cluster, auditor, cluster.world.rng), book)
        assert store.progress.in_tuples > 0, "it is not drained"
        assert len(book.stored) < 300
        with cluster.world.acting(the(cluster, "store")):
            del store.control.deliver
            for message in kept:
                store.control.deliver(message)
        rest(cluster)
        assert sorted(book.stored) == list(range(300))
        assert store.progress.lost == 0 and not book.failed
        auditor.drained()


@MODES
def test_they_do_not_wait_for_ever(mode: str) -> None:
    book = Book(list(range(200)))
    book.until = 50
    with cluster_of(0, book.program(mode)) as (cluster, auditor):
        store, _ = grow_without_telling(cluster, Verbs(cluster, auditor, cluster.world.rng), book)
        cluster.run(lambda: not store.opener.early_frames)
        rest(cluster)
        missing = 200 - len(book.stored)
        assert store.metrics.counters["__gateway-lost-tuples", "unknown source"] == missing > 0
        if mode == AT_LEAST:
            assert sum(book.failed.values()) == missing, "their spout hears at once"
            assert store.progress.lost == 0
        else:
            assert store.progress.lost == missing
        auditor.drained()


@MODES
def test_those_without_room_are_sent_again_or_count_as_lost(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_queue, "STRANGE_FRAMES_MAX", 1)
    book = Book(list(range(300)))
    book.until = 50
    with cluster_of(0, book.program(mode)) as (cluster, auditor):
        store, kept = grow_without_telling(cluster, Verbs(cluster, auditor, cluster.world.rng), book)
        counted, of_unknown = store.metrics.counters, ("__gateway-lost-tuples", "unknown source")
        cluster.run(lambda: counted.get(of_unknown, 0) > 0)
        with cluster.world.acting(the(cluster, "store")):
            del store.control.deliver
            for message in kept:
                store.control.deliver(message)
        rest(cluster)
        missing = 300 - len(book.stored)
        assert counted[of_unknown] == missing > 0, "the one frame that fits has waited"
        assert counted.get(("__malformed-tuples", ""), 0) == 0
        if mode == AT_LEAST:
            assert sorted([*book.stored, *book.failed]) == list(range(300)) == sorted([*book.acked, *book.failed])
            assert store.progress.lost == 0, "their spout hears of each, so it can send them again"
        else:
            assert store.progress.lost == missing
        auditor.drained()


def test_only_so_many_wait() -> None:
    held = in_queue.EarlyFrames()
    frames = [Frame(kind=DATA, source_task=1 + n % 2, count=n) for n in range(in_queue.STRANGE_FRAMES_MAX + 1)]
    taken = [held.hold(frame, 1, 0.0) for frame in frames]
    assert taken == [True] * in_queue.STRANGE_FRAMES_MAX + [False]
    assert [frame.count for frame, _ in held.take_known({2})] == list(range(1, in_queue.STRANGE_FRAMES_MAX, 2))
    assert held.hold(frames[0], in_queue.STRANGE_BYTES_MAX // 2, 0.0)
    assert not held.hold(frames[0], in_queue.STRANGE_BYTES_MAX // 2, 0.0)
    assert len(held.take_late(in_queue.STRANGE_WAIT_S)) == len(frames) // 2 + 1
    assert not held and held.hold(frames[0], in_queue.STRANGE_BYTES_MAX, 0.0)
    assert held.take_all() == [(frames[0], in_queue.STRANGE_BYTES_MAX)]


def test_a_frame_whose_arrays_do_not_fit_is_refused_and_its_credit_returned() -> None:
    book = Book(list(range(20)))
    with cluster_of(0, book.program(AT_LEAST)) as (cluster, _):
        process = the(cluster, "pass")
        rest(cluster)
        passing = process.program
        before = passing.link.consumed_bytes
        # As if they had come: what is returned is not more than what was received.
        passing.link.received_bytes += 400
        with cluster.world.acting(process):
            for wrong in (
                {"roots": b"x" * 7, "tracked": True},
                {"root_counts": b"x" * 12, "tracked": True},
                {"streams": b"x"},
                {"skip": 9},
            ):
                passing.take_frame(Frame(kind=DATA, source_task=1, count=3, **wrong), 100)  # type: ignore[arg-type]
        assert passing.link.consumed_bytes == before + 400
        assert passing.metrics.counters["__malformed-frames", ""] == 4
        assert not passing.in_queue.waiting and passing.standing.state == control_pb2.TASK_RUNNING
