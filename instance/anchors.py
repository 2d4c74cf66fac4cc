"""Tuples anchored to many tuples: their roots, and which input tuple accounts for which root. Pure.

A tuple that stands for thousands of inputs (a count, an aggregate) has all their roots, each of them once. Found for
all tuples of a batch at once, without a step per input.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heronpy.wire.frames import Array32, Array64
from heronpy.wire.runs import spread

from .outlets import Mark
from .tuples import HeronTuple, InFrame, Places


class Anchored(NamedTuple):
    """The roots of some emitted tuples, ascending by tuple, spout task and root; each root of a tuple once."""

    frames: list[InFrame]
    """The frames of the tuples that they are anchored to, unpacked."""
    owners: NDArray[np.int64]
    """The emitted tuple that has the root, counted from 0."""
    tasks: Array32
    roots: Array64
    slots: NDArray[np.int64]
    """The frame that accounts for the root: the first of the anchors that has it. An index into `frames`."""
    places: Places
    """Where that frame has the root."""

    def counts(self, tuples: int) -> NDArray[np.int64]:
        """The number of roots of each of the emitted tuples."""
        return np.bincount(self.owners, minlength=tuples)

    def by_frame(self) -> list[tuple[InFrame, NDArray[np.int64]]]:
        """Each frame with the rows that it accounts for."""
        return [(self.frames[slot], rows) for slot, rows in _by_slot(self.slots)]


def anchored(marks: Sequence[Mark]) -> Anchored:
    """What tuples with these anchors derive from; a mark is None, a tuple or several tuples."""
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
    """The first row of each distinct (owner, task, root), in the order of these."""
    # Owners and tasks have 32 bits each. The sort is stable, so the first of equal rows comes first.
    groups = owners << 32 | tasks.astype(np.int64)
    order = np.lexsort((roots, groups))
    groups, roots = groups[order], roots[order]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (groups[1:] != groups[:-1]) | (roots[1:] != roots[:-1])
    return order[fresh]


def _by_slot(slots: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """The rows of each slot, in their order."""
    if not len(slots):
        return []
    order = np.argsort(slots, kind="stable")
    cuts = np.flatnonzero(np.diff(slots[order])) + 1
    return [(int(slots[rows[0]]), rows) for rows in np.split(order, cuts)]
