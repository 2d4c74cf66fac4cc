"""The pure parts of the data path, per tuple."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pytest_benchmark", reason="pip install 'heronpy[bench]'")

from heronpy.common.hashing import stable_hash, stable_hash_many
from heronpy.common.setting_types import InstanceSettings
from heronpy.loadtest.histogram import Histogram
from heronpy.loadtest.inputs import word_list
from heronpy.plan.grouping import Fields, Shuffle
from heronpy.task.acks import BoltAcks
from heronpy.task.emitter import Emitter, OutStream
from heronpy.task.roots import PendingRoots
from heronpy.task.tuples import InFrame, make_tuples
from heronpy.wire import codec
from heronpy.wire.frames import DATA, Frame, pack64, runs_of
from instance.in_queue import TunedCapacity
from stmgr.acker import Acker

pytestmark = pytest.mark.bench

WORDS = word_list(5000, 10_000)
ROOT = 1 << 40
BATCH = 2000
Measure = Callable[[Callable[[], object], int], None]


class Context:
    """What the compiled emit asks the task's context."""

    has_hooks = False


def emitting(kind: str, chooser: Any, tracked: str | None = None) -> tuple[Emitter, Callable[..., Any], list[bytes]]:
    """An emitter with one stream, its public `emit`, and the frames it has sent."""
    sent: list[bytes] = []
    numbers = itertools.count(1)
    emitter = Emitter(
        "words",
        1,
        [OutStream("default", 0, ["word"], False)],
        InstanceSettings(),
        lambda dest, data, tuples: sent.append(data),
        lambda: next(numbers) * 0x9E3779B97F4A7C15 % (1 << 64),
        tracked=tracked,
        pending=PendingRoots(ROOT + 1) if tracked == "spout" else None,
    )
    emitter.route({"default": [chooser]})
    emit = emitter.compile_emit(kind, lambda *args: None, Context(), lambda tup_id: None)
    assert emit is not None
    return emitter, emit, sent


def test_emit_fields(per_item: Measure) -> None:
    _, emit, sent = emitting("spout", Fields([0], [2, 3]))

    def run() -> None:
        for word in WORDS:
            emit([word])
        sent.clear()

    per_item(run, len(WORDS))


def test_emit_shuffle(per_item: Measure) -> None:
    _, emit, sent = emitting("spout", Shuffle([2, 3, 4]))

    def run() -> None:
        for word in WORDS:
            emit([word])
        sent.clear()

    per_item(run, len(WORDS))


def test_emit_tracked_spout(per_item: Measure) -> None:
    emitter, emit, sent = emitting("spout", Fields([0], [2, 3]), "spout")
    pending = emitter.batches.pending
    assert pending is not None

    def run() -> None:
        first = pending.next_root
        for number, word in enumerate(WORDS):
            emit([word], number)
        emitter.flush()
        for frame in map(Frame.FromString, sent):
            for _ in pending.complete(frame.root_base, frame.count):
                pass
        assert pending.next_root - first == len(WORDS) and not pending.total
        sent.clear()

    per_item(run, len(WORDS))


def tracked_frame(count: int) -> InFrame:
    envelope = Frame(kind=DATA, source_task=1, dest_task=2, count=count, tracked=True)
    envelope.root_base, envelope.root_task, envelope.edge, envelope.derived_edges = ROOT, 1, 77, True
    frame = InFrame("words", "default", 1, count, 0.0)
    frame.track(envelope)
    return frame


def test_emit_anchored_bolt(per_item: Measure) -> None:
    emitter, emit, sent = emitting("bolt", Fields([0], [3, 4]), "bolt")

    def run() -> None:
        tuples = make_tuples(WORDS, 1, tracked_frame(len(WORDS)))
        for tup in tuples:
            emit(tup.values, anchors=[tup])
        emitter.flush()
        sent.clear()

    per_item(run, len(WORDS))


def test_encode_words(per_item: Measure) -> None:
    per_item(lambda: codec.encode(WORDS), len(WORDS))


def test_decode_words(per_item: Measure) -> None:
    decode, payload = codec.decoder(), codec.encode(WORDS)
    per_item(lambda: decode(payload, codec.MSGPACK), len(WORDS))


def test_freeze_encode_decode_tuples(per_item: Measure) -> None:
    """Values that MessagePack cannot give back as they were."""
    decode, values = codec.decoder(), [(word, 1) for word in WORDS[:1000]]
    per_item(lambda: decode(codec.encode([codec.freeze(value) for value in values]), codec.MSGPACK), len(values))


def test_make_tuples(per_item: Measure) -> None:
    frame = InFrame("words", "default", 1, len(WORDS), 0.0)
    per_item(lambda: make_tuples(WORDS, 1, frame), len(WORDS))


def test_stable_hash_text(per_item: Measure) -> None:
    per_item(lambda: [stable_hash(word) for word in WORDS], len(WORDS))


def test_stable_hash_two_fields(per_item: Measure) -> None:
    keys = [(word, number) for number, word in enumerate(WORDS)]
    per_item(lambda: [stable_hash_many(key) for key in keys], len(keys))


def test_fields_grouping(per_item: Measure) -> None:
    chooser, tuples = Fields([0], range(2, 10)), [[word] for word in WORDS]
    per_item(lambda: [chooser.target(tup) for tup in tuples], len(tuples))


def frames_of(roots: Iterator[int], batches: int) -> list[Frame]:
    frames = []
    for _ in range(batches):
        frame = Frame(kind=DATA, source_task=1, dest_task=2, count=BATCH, tracked=True, root_task=1)
        frame.root_base, frame.edge = next(roots), 0x9E3779B97F4A7C15
        frames.append(frame)
    return frames


def test_acker_whole_frames(per_item: Measure) -> None:
    acker, roots = Acker(), itertools.count(ROOT, BATCH)

    def run() -> None:
        frames = frames_of(roots, 10)
        for frame in frames:
            acker.register(frame)
        for frame in frames:
            acker.ack(frame)
        assert acker.live_roots == 0

    per_item(run, 10 * BATCH)


def test_acker_single_acks(per_item: Measure) -> None:
    """The worst case: a message per tuple."""
    acker, roots = Acker(), itertools.count(ROOT, BATCH)

    def run() -> None:
        frame = frames_of(roots, 1)[0]
        acker.register(frame)
        single = Frame(count=1, edge=frame.edge)
        for root in range(frame.root_base, frame.root_base + BATCH):
            single.root_base = root
            acker.ack(single)
        assert acker.live_roots == 0

    per_item(run, BATCH)


def test_acker_scattered_acks(per_item: Measure) -> None:
    """Every other tuple of the frames that a bolt has held, in one message."""
    acker, roots = Acker(), itertools.count(ROOT, BATCH)
    edge = frames_of(itertools.count(), 1)[0].edge

    def run() -> None:
        frames = frames_of(roots, 5)
        for frame in frames:
            acker.register(frame)
        end = frames[-1].root_base + BATCH
        for first in (frames[0].root_base, frames[0].root_base + 1):
            some = np.arange(first, end, 2, dtype=np.uint64)
            values = pack64(np.full(len(some), edge, dtype=np.uint64))
            acker.ack(Frame(count=len(some), roots=pack64(some), values=values))
        assert acker.live_roots == 0

    per_item(run, 5 * BATCH)


def test_bolt_acks_of_held_tuples(per_item: Measure) -> None:
    """A bolt holds 5,000 tuples of frames of 200 and acks them by key."""
    sent: list[bytes] = []
    acks = BoltAcks(2, sent.append, lambda: None, True, lambda *_: None, 64 << 20)

    def run() -> None:
        held = [tup for _ in range(25) for tup in make_tuples(WORDS[:200], 1, tracked_frame(200))]
        for key in range(100):
            acks.ack(held[key::100])
        sent.clear()
        acks.flush()
        assert len(sent) == 1

    per_item(run, 5000)


def test_pending_scattered_roots(per_item: Measure) -> None:
    pending, ids = PendingRoots(ROOT + 1), list(range(BATCH))

    def run() -> None:
        first = pending.add(list(ids), 0.0, 0)
        for base in (first, first + 1):
            runs = runs_of(np.arange(base, first + BATCH, 2, dtype=np.uint64))
            for _ in pending.complete_runs(runs):
                pass
        assert not pending.total

    per_item(run, BATCH)


def test_pending_whole_frames(per_item: Measure) -> None:
    pending, ids = PendingRoots(ROOT + 1), list(range(BATCH))

    def run() -> None:
        bases = [pending.add(list(ids), 0.0, 0) for _ in range(10)]
        for base in bases:
            for _ in pending.complete(base, BATCH):
                pass
        assert not pending.total

    per_item(run, 10 * BATCH)


def test_queue_capacity(per_item: Measure) -> None:
    capacity, clock = TunedCapacity(8192, 65536, 0.8, 0.1), itertools.count()

    def run() -> None:
        for length in range(1000):
            capacity.sample(length * 20, next(clock) * 0.1)

    per_item(run, 1000)


def test_histogram_of_the_load_test(per_item: Measure) -> None:
    values = [100_000 + 37 * number for number in range(10_000)]

    def run() -> None:
        Histogram().record(values)

    per_item(run, len(values))
