"""Acks of a bolt against a dict model, with the real acker at the other end: every tree completes exactly once."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from heronpy.task.acks import BoltAcks
from heronpy.task.tuples import HeronTuple, InBatch, InFrame, make_tuples
from heronpy.wire.frames import ACK, FAIL, NO_RUNS, Frame, edges_of, expand, pack32, pack64, read_runs, roots_of
from stmgr.acker import Acker


def tuples_of(envelope: Frame) -> list[HeronTuple]:
    """The tuples of a tracked frame that has arrived."""
    inner = InFrame("up", "default", 3, envelope.count, 0.0)
    inner.track(envelope)
    return make_tuples(list(range(envelope.count)), 1, inner)


class Harness:
    """BoltAcks with ackers of two spout tasks behind it."""

    def __init__(self, acking: bool = True, frame_max_bytes: int = 64 << 20) -> None:
        self.messages: list[Frame] = []
        self.ackers = {1: Acker(), 2: Acker()}
        self.done: Counter[tuple[int, int]] = Counter()
        self.failed: Counter[tuple[int, int]] = Counter()
        self.metrics: Counter[tuple[str, str]] = Counter()
        self.acks = BoltAcks(7, self.send, lambda: None, acking, self.count, frame_max_bytes)
        self.next_root = {1: 1, 2: 1}

    def count(self, name: str, label: str, by: float) -> None:
        self.metrics[name, label] += int(by)

    def send(self, data: bytes) -> None:
        message = Frame.FromString(data)
        self.messages.append(message)
        acker = self.ackers[message.dest_task]
        failed = message.kind == FAIL
        runs = acker.fail(message) if failed else acker.ack(message)
        for root in expand(*read_runs(runs)).tolist():
            (self.failed if failed else self.done)[message.dest_task, root] += 1

    def frame(self, count: int, rng: random.Random, skip: int = 0) -> list[HeronTuple]:
        """A tracked frame: consecutive roots of one spout, a list of them, or several per tuple."""
        envelope = Frame(count=count, tracked=True, edge=rng.getrandbits(64) | 1, derived_edges=rng.random() < 0.5)
        kind = rng.choice(["consecutive", "list", "many"])
        if kind == "consecutive":
            envelope.root_task, envelope.root_base = 1, self.next_root[1]
            self.next_root[1] += count
        else:
            counts = [rng.choice([0, 1, 1, 3]) if kind == "many" else 1 for _ in range(count)]
            tasks = [rng.choice([1, 2]) for _ in range(sum(counts))]
            roots = []
            for task in tasks:
                roots.append(self.next_root[task])
                self.next_root[task] += 1
            envelope.roots, envelope.root_tasks = pack64(roots), pack32(tasks)
            if kind == "many":
                envelope.root_counts = pack32(counts)
        tuples = tuples_of(envelope)
        edges = edges_of(envelope).tolist()
        for tup in tuples:
            for task, root in tup.roots:
                register = Frame(count=1, root_base=root, edge=edges[tup.index])
                assert self.ackers[task].register(register) == NO_RUNS
        if rng.random() < 0.5:
            # A frame that was not unpacked: the quick way must be open.
            tuples[0].frame.values_ = tuples[0].frame.done = None
        return tuples[skip:]


@pytest.mark.parametrize("seed", range(80))
def test_first_words_count_once_each(seed: int) -> None:
    rng = random.Random(seed)
    h = Harness()
    acked: set[tuple[int, int]] = set()
    failed: set[tuple[int, int]] = set()
    late: list[HeronTuple] = []
    words = Counter[str]()
    for _ in range(30):
        tuples = h.frame(rng.randint(1, 12), rng)
        how = rng.choice(["all", "partial", "mixed", "later"])
        said: dict[int, str] = {}

        def say(tup: HeronTuple, what: str, said: dict[int, str] = said) -> None:
            h.acks.acked.append(tup) if what == "ack" else h.acks.fail(tup)
            if said.setdefault(id(tup), what) == what:
                (acked if what == "ack" else failed).update(tup.roots if what == said[id(tup)] else ())

        if how == "all":
            for tup in tuples:
                say(tup, "ack")
            if rng.random() < 0.3:
                say(rng.choice(tuples), rng.choice(["ack", "fail"]))
        elif how == "partial":
            for tup in rng.sample(tuples, rng.randint(0, len(tuples))):
                say(tup, "ack")
            late += [tup for tup in tuples if id(tup) not in said]
        elif how == "mixed":
            for tup in rng.sample(tuples, len(tuples)):
                for _ in range(rng.randint(1, 3)):
                    say(tup, rng.choice(["ack", "fail"]))
        else:
            late += tuples
        words.update(said.values())
        kept = rng.random() < 0.5 and h.acks.keep(tuples)
        if not kept or rng.random() < 0.3:
            h.acks.flush(None if kept else tuples)
        while late and rng.random() < 0.5:
            tup = late.pop(rng.randrange(len(late)))
            say(tup, "ack")
            words["ack"] += 1
        if rng.random() < 0.7:
            h.acks.flush()
    for tup in late:
        h.acks.acked.append(tup)
        acked.update(tup.roots)
        words["ack"] += 1
    h.acks.flush(None)
    assert h.done == Counter(acked)
    assert h.failed == Counter(failed)
    assert not any(acker.live_roots for acker in h.ackers.values())
    assert (h.acks.ack_count, h.acks.fail_count) == (words["ack"], words["fail"])
    assert h.metrics["__ack-count", "up/default"] == words["ack"]


def test_a_whole_frame_takes_one_message_without_arrays() -> None:
    h, rng = Harness(), random.Random(1)
    tuples = h.frame(10, rng)
    while roots_of(tuples[0].frame.envelope) is None or tuples[0].frame.envelope.roots:
        tuples = h.frame(10, rng)
    tuples[0].frame.values_ = tuples[0].frame.done = None
    h.messages.clear()
    h.acks.acked.extend(tuples)
    h.acks.flush(tuples)
    [message] = h.messages
    assert (message.kind, message.count, message.roots, message.values) == (ACK, 10, b"", b"")
    h.acks.acked.extend(tuples)
    h.acks.flush(tuples)
    assert len(h.messages) == 1 and sum(h.done.values()) == 10


def test_a_few_whole_frames_take_one_message_per_spout() -> None:
    """Also when two of them are copies of one spout tuple, when others are far away, and when they are acked twice."""
    h = Harness(frame_max_bytes=1024)
    tuples = []
    shapes = [(1, 1, 2, 5), (1, 3, 1, 6), (1, 3, 1, 7), (2, 9, 1, 8), (1, 4, 1, 9), (2, 20, 3, 11)]
    for spout, base, count, edge in shapes:
        envelope = Frame(count=count, tracked=True, edge=edge, root_task=spout, root_base=base)
        tuples += tuples_of(envelope)
        if edge != 7:
            value = 6 ^ 7 if edge == 6 else edge
            register = Frame(count=count, root_base=base, edge=value)
            assert h.ackers[spout].register(register) == NO_RUNS
    for _ in range(2):
        h.acks.acked.extend(tuples)
        h.acks.flush()
    assert [(m.dest_task, m.count, bool(m.roots)) for m in h.messages] == [(1, 4, False), (2, 4, True)]
    assert set(h.done) == {(1, 1), (1, 2), (1, 3), (1, 4), (2, 9), (2, 20), (2, 21), (2, 22)}
    assert set(h.done.values()) == {1}
    assert h.acks.ack_count == len(tuples)


@pytest.mark.parametrize(("count", "arrays"), [(1, False), (20, False), (500, True)])
def test_kept_frames_take_one_message_per_spout(count: int, arrays: bool) -> None:
    """Also if a tuple of one is acked or failed again meanwhile."""
    h = Harness()
    for frame in range(3):
        for spout in (1, 2):
            envelope = Frame(count=count, tracked=True, edge=frame + 5, root_task=spout, root_base=1 + frame * count)
            h.ackers[spout].register(envelope)
            tuples = tuples_of(envelope)
            h.acks.acked.extend(tuples)
            assert h.acks.keep(tuples) and not h.acks.keep(tuples)
    h.acks.acked.append(tuples[0])
    h.acks.fail(tuples[-1])
    assert h.acks.waiting == 6 * count + 1 and not h.messages
    h.acks.flush()
    assert [(m.kind, m.dest_task, m.count, bool(m.run_first)) for m in h.messages] == [
        (ACK, spout, 3 * count, arrays) for spout in (1, 2)
    ]
    assert set(h.done) == {(spout, 1 + root) for spout in (1, 2) for root in range(3 * count)}
    assert set(h.done.values()) == {1} and not h.failed
    assert (h.acks.ack_count, h.acks.waiting) == (6 * count, 0)


def test_what_is_no_whole_plain_frame_in_order_is_not_kept() -> None:
    for acks in ([0, 1], [1, 0, 2], [0, 1, 2, 2], []):
        h = Harness()
        envelope = Frame(count=3, tracked=True, edge=7, root_task=1, root_base=1)
        h.ackers[1].register(envelope)
        tuples = tuples_of(envelope)
        h.acks.acked.extend(tuples[place] for place in acks)
        assert not h.acks.keep(tuples) and h.acks.waiting == len(acks)
        h.acks.flush(tuples)
        assert h.done == {(1, place + 1): 1 for place in acks}


def test_a_frame_with_skip_acks_only_what_it_gave() -> None:
    for seed in range(10):
        h = Harness()
        tuples = h.frame(10, random.Random(seed), skip=4)
        h.acks.acked.extend(tuples)
        h.acks.flush(tuples)
        assert set(h.done) == {root for tup in tuples for root in tup.roots}


def test_a_frame_that_cannot_be_opened_fails() -> None:
    h = Harness()
    envelope = Frame(count=3, tracked=True, root_base=1, root_task=1, edge=9, skip=1)
    h.ackers[1].register(envelope)
    h.acks.give_up(envelope, FAIL)
    assert h.failed == {(1, 2): 1, (1, 3): 1}
    assert h.ackers[1].live_roots == 1


def test_without_acking_words_are_only_counted() -> None:
    h = Harness(acking=False)
    frames = [make_tuples([1, 2, 3], 1, InFrame("up", "default", 3, 3, 0.0)) for _ in range(3)]
    h.acks.acked.extend([*frames[0], *frames[1]])
    h.acks.fail(frames[2][0])
    h.acks.fail(frames[1][0])
    h.acks.flush(frames[0])
    h.acks.flush(frames[0])
    assert (h.acks.ack_count, h.acks.fail_count) == (6, 1)
    assert h.metrics == {("__ack-count", "up/default"): 6, ("__fail-count", "up/default"): 1}
    assert not h.messages


def test_ids_of_tuples_differ() -> None:
    frames: list[Any] = [make_tuples([1, 2, 3], 1, InFrame("up", "default", 3, 3, 0.0)) for _ in range(2)]
    frames.append(Harness().frame(5, random.Random(1)))
    ids = [tup.id for tuples in frames for tup in tuples]
    assert len(set(ids)) == len(ids)
    assert [tup.id for tuples in frames for tup in tuples] == ids


@pytest.mark.parametrize("seed", range(80))
def test_words_on_batches_are_words_on_their_tuples(seed: int) -> None:
    """Batches, parts of them and single tuples, at once or much later, with flushes in between: the first one wins."""
    rng = random.Random(seed)
    h = Harness()
    said: dict[tuple[int, int], str] = {}
    tuples: dict[tuple[int, int], HeronTuple] = {}
    batches: list[InBatch] = []
    for _ in range(12):
        frame = h.frame(rng.choice([1, 7, 8, 9, 30]), rng)
        skip = rng.choice([0, 0, len(frame) // 2])
        inner = frame[0].frame
        batch = InBatch(inner, "default", ["n"], list(range(skip, len(frame))), range(skip, len(frame)))
        # Those before `skip` were acked by the process before this one.
        h.acks.ack(frame[:skip])
        said.update(((inner.number, n), "ack") for n in range(skip))
        tuples.update(((inner.number, tup.index), tup) for tup in frame)
        batches.append(batch)
    rest = [batch for batch in batches for _ in range(4)]
    rng.shuffle(rest)
    for batch in [*rest, *batches]:
        places = rng.sample(range(len(batch)), rng.randint(0, len(batch)))
        part: Any = rng.choice([batch, batch.take(places), [batch[place] for place in places]])
        what = rng.choice(["ack", "ack", "fail"])
        (h.acks.ack if what == "ack" else h.acks.fail)(part)
        for tup in part:
            said.setdefault((tup.frame.number, tup.index), what)
        if rng.random() < 0.4:
            h.acks.flush()
    for batch in batches:
        h.acks.ack(batch)
        for tup in batch:
            said.setdefault((tup.frame.number, tup.index), "ack")
    h.acks.flush()
    assert said.keys() == tuples.keys()
    for what, found in (("ack", h.done), ("fail", h.failed)):
        assert found == Counter(root for key, tup in tuples.items() if said[key] == what for root in set(tup.roots))
    assert not any(acker.live_roots for acker in h.ackers.values())
    words = Counter(said.values())
    assert (h.acks.ack_count, h.acks.fail_count) == (words["ack"], words["fail"])
