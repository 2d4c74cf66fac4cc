"""Roots of tuple trees: pending roots, the roots of emitted tuples, and the messages that ack or fail them. Pure."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heronpy.proto import frame_pb2
from heronpy.wire.frames import (
    ACK,
    COUNT_MAX,
    Array32,
    Array64,
    Frame,
    Kind,
    Runs,
    distinct,
    expand,
    lengths_of,
    only_run,
    pack32,
    pack64,
    read_runs,
    spread,
    starts_of,
)

from .outlets import Mark
from .tuples import HeronTuple, InFrame, Places

#: Runs of at least this number of roots on average are completed one by one, shorter runs batch by batch.
RUN_LONG = 64
#: Marks an id that was removed from its batch.
GONE = object()


class Batch:
    """Consecutive roots base .. base + len(ids) - 1; `left` of them are still pending."""

    __slots__ = ("base", "emitted_at", "ids", "left", "stream")

    def __init__(self, base: int, ids: list[Any], emitted_at: float, stream: int) -> None:
        self.base = base
        self.ids = ids
        self.left = len(ids)
        self.emitted_at = emitted_at
        self.stream = stream


class PendingRoots:
    """Pending spout tuples by root number.

    Roots are consecutive numbers; a batch of them is one entry, so the usual completion of a whole batch is one dict
    lookup. Scattered roots are completed batch by batch: all roots of a message that are in one batch are completed
    together. A timeout affects a whole batch.
    """

    def __init__(self, first_root: int) -> None:
        #: The number of the next root; the high bits are the task's incarnation, so that acks for an
        #: earlier incarnation match nothing.
        self.next_root = first_root
        self.total = 0
        self._batches: dict[int, Batch] = {}
        self._bases: deque[int] = deque()

    def add(self, ids: list[Any], now: float, stream: int) -> int:
        """Register a batch of ids; return the root of the first id."""
        base = self.next_root
        self.next_root = base + len(ids)
        self._batches[base] = Batch(base, ids, now, stream)
        self._bases.append(base)
        self.total += len(ids)
        return base

    def complete_runs(self, runs: Runs) -> Iterator[tuple[list[Any], Batch]]:
        """Complete runs of roots; yield (ids, batch) for the pending roots, each batch at most a few times."""
        if (only := only_run(runs)) is not None:
            yield from self.complete(*only)
            return
        first, length = read_runs(runs)
        if len(first) > 1 and int(length.sum()) < RUN_LONG * len(first):
            yield from self._complete_roots(expand(first, length))
            return
        for root, count in zip(first.tolist(), length.tolist(), strict=True):
            yield from self.complete(root, count)

    def complete(self, first: int, length: int) -> Iterator[tuple[list[Any], Batch]]:
        """Complete `length` roots from `first` on; yield (ids, batch) for the pending roots."""
        batch = self._batches.get(first)
        if batch is not None and batch.left == length == len(batch.ids):
            del self._batches[first]
            self.total -= length
            self._trim()
            yield batch.ids, batch
            return
        # Roots that are not pending are skipped, even if a message names very many.
        end = min(first + length, self.next_root)
        while first < end:
            batch = self._find(first)
            if batch is None:
                first = self._base_after(first)
                continue
            start = first - batch.base
            stop = min(end - batch.base, len(batch.ids))
            ids = [i for i in batch.ids[start:stop] if i is not GONE]
            batch.ids[start:stop] = [GONE] * (stop - start)
            self._taken(batch, len(ids))
            if ids:
                yield ids, batch
            first = batch.base + stop

    def _complete_roots(self, roots: NDArray[np.uint64]) -> Iterator[tuple[list[Any], Batch]]:
        """Complete single roots, in any order."""
        if not (roots[1:] > roots[:-1]).all():
            roots = np.unique(roots)
        place = 0
        while place < len(roots):
            root = int(roots[place])
            batch = self._find(root)
            after = self._base_after(root) if batch is None else batch.base + len(batch.ids)
            end = int(np.searchsorted(roots, np.uint64(after)))
            if batch is not None:
                places = (roots[place:end] - np.uint64(batch.base)).tolist()
                ids = batch.ids
                taken = [one for one in map(ids.__getitem__, places) if one is not GONE]
                for number in places:
                    ids[number] = GONE
                self._taken(batch, len(taken))
                if taken:
                    yield taken, batch
            place = end

    def _taken(self, batch: Batch, count: int) -> None:
        batch.left -= count
        self.total -= count
        if not batch.left:
            del self._batches[batch.base]
            self._trim()

    def _base_after(self, root: int) -> int:
        """Return the first root of the next batch after a root that is in no batch; without a next batch, a number
        beyond the last root.
        """
        place = bisect_right(self._bases, root)
        return self._bases[place] if place < len(self._bases) else max(self.next_root, root + 1)

    def _find(self, root: int) -> Batch | None:
        place = bisect_right(self._bases, root) - 1
        if place < 0:
            return None
        batch = self._batches.get(self._bases[place])
        if batch is None or root >= batch.base + len(batch.ids):
            return None
        return batch

    def _trim(self) -> None:
        """Drop the bases of finished batches: at the front immediately, in the middle from time to time."""
        bases, batches = self._bases, self._batches
        while bases and bases[0] not in batches:
            bases.popleft()
        if len(bases) > 2 * len(batches) + 64:
            self._bases = deque(base for base in bases if base in batches)

    def expire(self, older_than: float) -> Iterator[tuple[list[Any], Batch]]:
        """Remove and return every batch emitted before `older_than`."""
        while self._bases:
            batch = self._batches.get(self._bases[0])
            if batch is None:
                self._bases.popleft()
                continue
            if batch.emitted_at >= older_than:
                return
            self._bases.popleft()
            del self._batches[batch.base]
            ids = [i for i in batch.ids if i is not GONE]
            self.total -= len(ids)
            yield ids, batch


class Anchored(NamedTuple):
    """The roots of some emitted tuples, each once per tuple, ascending by tuple, spout task and root.

    A tuple that derives from thousands of inputs (a count, an aggregate) has all their roots. The roots of all tuples
    of a batch are found together, without a step per input.
    """

    frames: list[InFrame]
    """The unpacked frames of the anchors."""
    owners: NDArray[np.int64]
    """The emitted tuple of each root, counted from 0."""
    tasks: Array32
    roots: Array64
    slots: NDArray[np.int64]
    """The frame that accounts for each root, as an index into `frames`: that of the first anchor with the root."""
    places: Places
    """The position of each root in its frame."""

    def counts(self, tuples: int) -> NDArray[np.int64]:
        """Return the number of roots of each emitted tuple."""
        return np.bincount(self.owners, minlength=tuples)

    def by_frame(self) -> list[tuple[InFrame, NDArray[np.int64]]]:
        """Return each frame with the rows of the roots that it accounts for."""
        return [(self.frames[slot], rows) for slot, rows in _by_slot(self.slots)]


def anchored(marks: Sequence[Mark]) -> Anchored:
    """Return the roots of tuples with these anchors; a mark is None, a tuple or several tuples."""
    several = [() if mark is None else (mark,) if type(mark) is HeronTuple else mark for mark in marks]
    anchors: list[HeronTuple] = list(chain.from_iterable(several))
    slot_of: dict[InFrame, int] = {}
    slots = np.array([slot_of.setdefault(anchor.frame, len(slot_of)) for anchor in anchors], dtype=np.int64)
    indices = np.array([anchor.index for anchor in anchors], dtype=np.int64)
    owners = np.repeat(np.arange(len(several)), [len(some) for some in several])
    frames = list(slot_of)
    by_slot = _by_slot(slots)
    counts = np.ones(len(anchors), dtype=np.int64)
    for slot, rows in by_slot:
        frame = frames[slot]
        frame.unpack()
        if frame.root_counts is not None:
            counts[rows] = frame.root_counts[indices[rows]]
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    tasks, roots = np.empty(total, dtype=np.uint32), np.empty(total, dtype=np.uint64)
    places = np.empty(total, dtype=np.int64)
    for slot, rows in by_slot:
        frame = frames[slot]
        at = frame.root_places(indices[rows])
        target = spread(ends[rows] - counts[rows], counts[rows])
        tasks[target], roots[target], places[target] = frame.root_tasks[at], frame.roots[at], at
    owners, slots = np.repeat(owners, counts), np.repeat(slots, counts)
    first = _first_of_each(owners, tasks, roots)
    return Anchored(frames, owners[first], tasks[first], roots[first], slots[first], places[first])


def _first_of_each(owners: NDArray[np.int64], tasks: Array32, roots: Array64) -> NDArray[np.int64]:
    """Return the first row of each distinct (owner, task, root), in ascending order."""
    # Owners and tasks have 32 bits each. The sort is stable, so that the first of equal rows is kept.
    groups = owners << 32 | tasks.astype(np.int64)
    order = np.lexsort((roots, groups))
    groups, roots = groups[order], roots[order]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (groups[1:] != groups[:-1]) | (roots[1:] != roots[:-1])
    return order[fresh]


def _by_slot(slots: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    if not len(slots):
        return []
    order = np.argsort(slots, kind="stable")
    cuts = np.flatnonzero(np.diff(slots[order])) + 1
    return [(int(slots[rows[0]]), rows) for rows in np.split(order, cuts)]


#: Maximum size of a message without its roots or runs, which take up to 16 and 20 bytes each.
HEAD_BYTES, ROOT_BYTES, RUN_BYTES = 256, 16, 20
#: Maximum number of roots or runs per message.
MESSAGE_MAX = 1 << 16


def whole_ack(task_id: int, envelope: frame_pb2.Frame) -> bytes:
    """Return the message that acks all roots of a frame, if they belong to one spout task; `envelope` is the frame
    without payload."""
    message = Frame()
    message.CopyFrom(envelope)
    message.kind, message.source_task, message.dest_task = ACK, task_id, envelope.root_task
    return message.SerializeToString()


def few_acks(task_id: int, spout: int, values: dict[int, int]) -> bytes:
    """Return one message that acks these roots of a spout task with these values. For a few roots, this costs a tenth
    of the method with arrays.
    """
    roots = sorted(values)
    message = Frame(kind=ACK, source_task=task_id, dest_task=spout, count=len(roots))
    if roots[-1] - roots[0] == len(roots) - 1:
        message.root_base = roots[0]
    else:
        message.roots = _packed(roots)
    if len(roots) == 1:
        message.edge = values[roots[0]]
    else:
        message.values = _packed([values[root] for root in roots])
    return message.SerializeToString()


def _packed(numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


class AckMessages:
    """The acks or fails of one flush; `packed` yields them as frames.

    Roots are collected over all frames of one flush and packed by spout task. Acks of tuples without anchored outputs
    are sent as runs of roots with one XOR value each, when that is shorter. All other acks are sent as ascending,
    distinct roots with one value each: the XOR of the tuple's own edge and the edges of all tuples anchored to it.
    """

    def __init__(self, kind: Kind, task_id: int, frame_max_bytes: int) -> None:
        self._kind = kind
        self._task_id = task_id
        room = frame_max_bytes - HEAD_BYTES
        self._roots_max = min(MESSAGE_MAX, max(1, room // ROOT_BYTES))
        self._runs_max = min(MESSAGE_MAX, max(1, room // RUN_BYTES))
        #: Maps a spout task to first roots, lengths and edges of runs.
        self._runs: dict[int, tuple[list[int], list[int], list[int]]] = {}
        #: Maps a spout task to roots and their values.
        self._single: defaultdict[int, list[tuple[Array64, Array64]]] = defaultdict(list)
        #: Roots of several spout tasks: the tasks, the roots, and their values.
        self._mixed: list[tuple[Array32, Array64, Array64]] = []

    def add(self, frame: InFrame, places: Places) -> None:
        """Add tuples of a tracked frame by position, ascending, each once."""
        envelope = frame.envelope
        if envelope is None or not len(places):
            return
        if frame.plain():
            self._add_plain(envelope.root_task, envelope.root_base, envelope.edge, places)
            return
        frame.unpack()
        if len(places) < frame.count:
            at = frame.root_places(places)
            tasks, roots, values = frame.root_tasks[at], frame.roots[at], frame.values_[at]  # type: ignore[index]
        else:
            tasks, roots, values = frame.root_tasks, frame.roots, frame.values_
        if envelope.root_tasks:
            self._mixed.append((tasks, roots, values))
        else:
            self._single[envelope.root_task].append((roots, values))

    def add_run(self, spout: int, base: int, count: int, edge: int) -> None:
        """Add the acks of consecutive roots of a spout task with one edge."""
        firsts, lengths, edges = self._runs.setdefault(spout, ([], [], []))
        firsts.append(base)
        lengths.append(count)
        edges.append(edge)

    def _add_plain(self, spout: int, base: int, edge: int, places: Places) -> None:
        starts = starts_of(places)
        if self._kind == ACK and 2 * len(starts) <= len(places):
            firsts, lengths, edges = self._runs.setdefault(spout, ([], [], []))
            firsts += (places[starts] + base).tolist()
            lengths += lengths_of(starts, len(places)).tolist()
            edges += [edge] * len(starts)
            return
        roots = places.astype(np.uint64)
        roots += np.uint64(base)
        self._single[spout].append((roots, np.full(len(places), edge, dtype=np.uint64)))

    def packed(self) -> Iterator[bytes]:
        """Yield the messages, each within the limit of a frame."""
        for spout, (firsts, lengths, edges) in self._runs.items():
            yield from self._pack_runs(spout, firsts, lengths, edges)
        self._split_mixed()
        for spout, parts in self._single.items():
            roots = np.concatenate([roots for roots, _ in parts])
            values = np.concatenate([values for _, values in parts])
            if len(roots):
                yield from self._pack_roots(spout, *distinct(roots, values))

    def _split_mixed(self) -> None:
        if not self._mixed:
            return
        tasks, roots, values = (np.concatenate(arrays) for arrays in zip(*self._mixed, strict=True))
        for task in np.unique(tasks).tolist():
            mine = tasks == task
            self._single[task].append((roots[mine], values[mine]))

    def _pack_runs(self, spout: int, firsts: list[int], lengths: list[int], edges: list[int]) -> Iterator[bytes]:
        ends = np.cumsum(lengths)
        low, done = 0, 0
        while low < len(firsts):
            # A run has no more roots than a frame may have, so each message has at least one run.
            within = int(np.searchsorted(ends, done + COUNT_MAX, side="right"))
            high = min(low + self._runs_max, within)
            count = int(ends[high - 1]) - done
            message = Frame(kind=self._kind, source_task=self._task_id, dest_task=spout, count=count)
            if high == low + 1:
                message.root_base, message.edge = firsts[low], edges[low]
            else:
                message.run_first = pack64(firsts[low:high])
                message.run_length = pack32(lengths[low:high])
                message.run_edge = pack64(edges[low:high])
            yield message.SerializeToString()
            low, done = high, done + count

    def _pack_roots(self, spout: int, roots: Array64, values: Array64) -> Iterator[bytes]:
        for low in range(0, len(roots), self._roots_max):
            part = roots[low : low + self._roots_max]
            message = Frame(kind=self._kind, source_task=self._task_id, dest_task=spout, count=len(part))
            if int(part[-1]) - int(part[0]) == len(part) - 1:
                message.root_base = int(part[0])
            else:
                message.roots = pack64(part)
            if self._kind == ACK:
                message.values = pack64(values[low : low + self._roots_max])
            yield message.SerializeToString()
