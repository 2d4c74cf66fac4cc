"""The tuples that a spout task has emitted with an id and that are neither acked nor failed. Pure.

Roots are consecutive numbers; a batch of them is one entry, so the usual completion of a whole
batch is one dict lookup. Scattered roots are taken batch by batch, all that a message names of one at once.
Timeouts are by batch. Pure: `now` is given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heronpy.wire.runs import Runs, expand, only_run, read_runs

#: Runs of at least this many roots on average are taken one by one, shorter ones batch by batch.
RUN_LONG = 64
#: Marks an id that was taken out of its batch.
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
    """Pending spout tuples by root number."""

    def __init__(self, first_root: int) -> None:
        #: The number of the next root; the high bits are the task's incarnation, so that acks for an
        #: earlier incarnation match nothing.
        self.next_root = first_root
        self.total = 0
        self._batches: dict[int, Batch] = {}
        self._bases: deque[int] = deque()

    def add(self, ids: list[Any], now: float, stream: int) -> int:
        """Register a batch of ids; returns the root of the first one."""
        base = self.next_root
        self.next_root = base + len(ids)
        self._batches[base] = Batch(base, ids, now, stream)
        self._bases.append(base)
        self.total += len(ids)
        return base

    def complete_runs(self, runs: Runs) -> Iterator[tuple[list[Any], Batch]]:
        """Take runs of roots; yields (ids, batch) for those that were pending, each batch a few times at most."""
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
        """Take `length` roots from `first` on; yields (ids, batch) for those that were pending."""
        batch = self._batches.get(first)
        if batch is not None and batch.left == length == len(batch.ids):
            del self._batches[first]
            self.total -= length
            self._trim()
            yield batch.ids, batch
            return
        # Roots that are not pending are skipped, however many a message names.
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
        """Take single roots, in any order."""
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
        """The first root of the batch that follows a root of no batch; beyond the last root when none does."""
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
        """Forget the bases of finished batches: from the front at once, in the middle from time to time."""
        bases, batches = self._bases, self._batches
        while bases and bases[0] not in batches:
            bases.popleft()
        if len(bases) > 2 * len(batches) + 64:
            self._bases = deque(base for base in bases if base in batches)

    def expire(self, older_than: float) -> Iterator[tuple[list[Any], Batch]]:
        """Take every batch emitted before `older_than`."""
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

    def oldest(self) -> float | None:
        """When the oldest pending batch was emitted."""
        self._trim()
        return self._batches[self._bases[0]].emitted_at if self._bases else None
