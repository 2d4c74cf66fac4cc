"""Frames that hold what cannot be decoded, and frames that come before their plan, on a whole data plane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from heronpy.proto import control_pb2, topology_pb2
from heronpy.wire.frames import DATA, Frame
from instance import strangers
from tests.plan.builders import TopologyMessage
from tests.support.plane import Plane, UserObject

PLANES: list[Plane] = []


@pytest.fixture(autouse=True)
def close_planes() -> Iterator[None]:
    yield
    while PLANES:
        PLANES.pop().close()


def explode() -> None:
    raise RuntimeError("this value does not come back")


class Bomb:
    """It can be pickled and not unpickled."""

    def __reduce__(self) -> Any:
        return explode, ()


class Numbers(UserObject):
    """Emits values once; remembers what became of each."""

    def __init__(self, delegate: Any, book: Book) -> None:
        super().__init__(delegate)
        self.book = book
        self.todo = list(enumerate(book.values))[::-1] if self.task_id == 1 else []

    def next_tuple(self) -> None:
        if self.todo and self.todo[-1][0] < self.book.until:
            number, value = self.todo.pop()
            self.emit([number, value], tup_id=number)

    def ack(self, tup_id: int) -> None:
        self.book.acked[tup_id] += 1

    def fail(self, tup_id: int) -> None:
        self.book.failed[tup_id] += 1


class Pass(UserObject):
    def process(self, tup: Any) -> None:
        self.emit(list(tup.values), anchors=[tup])
        self.ack(tup)


class Store(UserObject):
    def __init__(self, delegate: Any, book: Book) -> None:
        super().__init__(delegate)
        self.book = book

    def process(self, tup: Any) -> None:
        self.book.stored.append(tup.values[0])
        self.ack(tup)


class Book:
    def __init__(self, values: list[Any]) -> None:
        self.values = values
        #: No value behind this one is emitted for now.
        self.until = len(values)
        self.acked: Counter[int] = Counter()
        self.failed: Counter[int] = Counter()
        self.stored: list[int] = []


def chain() -> topology_pb2.Topology:
    message = TopologyMessage()
    message.spout("spout", outputs={"default": ["n", "value"]})
    message.bolt("pass", [("spout", "default", topology_pb2.SHUFFLE, [])], outputs={"default": ["n", "value"]})
    message.bolt("store", [("pass", "default", topology_pb2.FIELDS, ["n"])], outputs={})
    return message.message


TASKS = {1: ("spout", 1), 2: ("pass", 1), 3: ("store", 1)}


def make(monkeypatch: pytest.MonkeyPatch, book: Book, mode: str, seed: int = 0) -> Plane:
    parts = {"spout": lambda d: Numbers(d, book), "pass": Pass, "store": lambda d: Store(d, book)}
    plane = Plane(monkeypatch, chain(), TASKS, parts, seed=seed, reliability=mode)
    PLANES.append(plane)
    return plane


MODES = pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])


@MODES
@pytest.mark.parametrize("seed", range(5))
def test_a_value_that_cannot_be_decoded_costs_its_own_tuple_only(
    monkeypatch: pytest.MonkeyPatch, mode: str, seed: int
) -> None:
    bombs = {3, 4, 40, 99}
    book = Book([Bomb() if n in bombs else n for n in range(100)])
    plane = make(monkeypatch, book, mode, seed)
    plane.settle()
    assert book.stored == [n for n in range(100) if n not in bombs], "the others arrive, in order"
    passing = plane.tasks[2]
    assert passing.progress.lost == len(bombs), "nothing is kept of them: poison_tries is 0 here"
    assert passing.metrics.counters["__malformed-tuples", ""] == len(bombs)
    if mode == "ATLEAST_ONCE":
        assert book.acked == Counter(range(100)) and not book.failed, "given up, so not sent again"
    plane.check_drained()


@MODES
def test_a_frame_that_cannot_be_split_is_counted_and_not_sent_again(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    book = Book(list(range(100)))
    plane = make(monkeypatch, book, mode)
    broken = 0
    while not broken:
        plane.step()
        sock = plane.sockets.get(b"t:2:1")
        for place, (header, data) in enumerate(sock.inbox if sock is not None else ()):
            frame = Frame.FromString(data)
            if frame.kind == DATA:
                # No length changes, so that credit stays what it was.
                frame.payload = b"\xc1" * len(frame.payload)
                sock.inbox[place] = (header, frame.SerializeToString())  # type: ignore[union-attr]
                broken = frame.count
                break
    plane.settle()
    assert len(book.stored) == 100 - broken
    assert plane.tasks[2].metrics.counters["__malformed-tuples", ""] == broken == plane.tasks[2].progress.lost
    if mode == "ATLEAST_ONCE":
        assert book.acked == Counter(range(100)) and not book.failed
    plane.check_drained()


def grow_without_telling(plane: Plane, task: int) -> list[Any]:
    """Another task of `pass`; `task` does not hear of it. Returns what is kept from it."""
    kept: list[Any] = []
    told = plane.tasks[task].control
    monkey, told.deliver = told.deliver, lambda kind, body: kept.append((kind, body))
    plane.places[4] = ("pass", 1)
    plane.publish()
    told.deliver = monkey
    plane.start(4)
    return kept


@MODES
@pytest.mark.parametrize("seed", range(5))
def test_frames_of_a_task_that_the_plan_does_not_have_yet_wait(
    monkeypatch: pytest.MonkeyPatch, mode: str, seed: int
) -> None:
    book = Book(list(range(300)))
    plane = make(monkeypatch, book, mode, seed)
    book.until = 50
    plane.settle()
    kept = grow_without_telling(plane, 3)
    book.until = 300
    plane.settle()
    store = plane.tasks[3]
    waiting = len(store.opener.strangers)
    assert waiting, "something came from the new task"
    assert store.progress.in_tuples > 0, "it is not drained"
    assert len(book.stored) < 300
    for message in kept:
        store.control.deliver(*message)
    plane.settle()
    assert sorted(book.stored) == list(range(300))
    assert store.progress.lost == 0 and not book.failed
    plane.check_drained()


@MODES
def test_they_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    book = Book(list(range(200)))
    plane = make(monkeypatch, book, mode)
    book.until = 50
    plane.settle()
    grow_without_telling(plane, 3)
    book.until = 200
    plane.settle()
    store = plane.tasks[3]
    assert store.opener.strangers
    plane.clock.now += strangers.WAIT_S + 1
    plane.settle()
    assert not store.opener.strangers
    missing = 200 - len(book.stored)
    assert store.metrics.counters["__gateway-lost-tuples", "unknown source"] == missing > 0
    if mode == "ATLEAST_ONCE":
        assert sum(book.failed.values()) == missing, "their spout hears at once"
        assert store.progress.lost == 0
    else:
        assert store.progress.lost == missing
    plane.check_drained()


def test_only_so_many_wait() -> None:
    held = strangers.Strangers()
    frames = [Frame(kind=DATA, source_task=1 + n % 2, count=n) for n in range(strangers.FRAMES_MAX + 1)]
    taken = [held.hold(frame, 1, 0.0) for frame in frames]
    assert taken == [True] * strangers.FRAMES_MAX + [False]
    assert [frame.count for frame, _ in held.take_known({2})] == list(range(1, strangers.FRAMES_MAX, 2))
    assert held.hold(frames[0], strangers.BYTES_MAX // 2, 0.0)
    assert not held.hold(frames[0], strangers.BYTES_MAX // 2, 0.0)
    assert len(held.take_late(strangers.WAIT_S)) == len(frames) // 2 + 1
    assert not held and held.hold(frames[0], strangers.BYTES_MAX, 0.0)
    assert held.take_all() == [(frames[0], strangers.BYTES_MAX)]


def test_a_frame_whose_arrays_do_not_fit_is_refused_and_its_credit_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book(list(range(20)))
    plane = make(monkeypatch, book, "ATLEAST_ONCE")
    plane.settle()
    passing = plane.tasks[2]
    before = passing.link.consumed_bytes, passing.link.consumed_tuples
    for wrong in (
        {"roots": b"x" * 7, "tracked": True},
        {"root_counts": b"x" * 12, "tracked": True},
        {"streams": b"x"},
        {"skip": 9},
    ):
        passing.take_frame(Frame(kind=DATA, source_task=1, count=3, **wrong), 100)  # type: ignore[arg-type]
    assert passing.link.consumed_bytes == before[0] + 400
    assert passing.metrics.counters["__malformed-frames", ""] == 4
    passing.control.interrupt()
    plane.turn(2)
    assert not passing.in_queue.waiting and passing.state == control_pb2.TASK_RUNNING
