"""Tracks which spout tuples are still being processed. Pure.

The stream manager keeps one XOR per spout tuple; the simulator keeps the set of live edges of a tree, which is
equivalent except for random collisions. A tree is complete exactly when no edge is left. Invariants: an edge is in a
tree from its delivery until its ack. A tree that completed, failed or timed out is removed, and later acks and fails
for the tree are ignored.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Outcome(Enum):
    """The outcome of a tracked spout tuple."""

    ACKED = "acked"
    FAILED = "failed"
    TIMED_OUT = "timed out"


@dataclass(slots=True)
class Tree:
    """One tracked spout tuple."""

    root: int
    owner: int
    tup_id: Any
    opened_at: float
    deadline: float
    live: set[int] = field(default_factory=set)


class AckTracker:
    """All tracked spout tuples of a simulation. `take_ended` returns the tuples whose trees have ended."""

    def __init__(self) -> None:
        self._trees: dict[int, Tree] = {}
        self._ended: list[tuple[Tree, Outcome]] = []
        self._pending: dict[int, int] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._last_root = 0

    def open(self, owner: int, tup_id: Any, now: float, deadline: float) -> int:
        """Begin tracking a tuple of the task `owner`; call `seal` after its first deliveries."""
        self._last_root += 1
        self._trees[self._last_root] = Tree(self._last_root, owner, tup_id, now, deadline)
        self._pending[owner] = self._pending.get(owner, 0) + 1
        if deadline != float("inf"):
            heapq.heappush(self._deadlines, (deadline, self._last_root))
        return self._last_root

    def cancel(self, root: int) -> None:
        """Close a tree whose emit was refused."""
        tree = self._trees.pop(root, None)
        if tree is not None:
            self._pending[tree.owner] -= 1

    def add(self, roots: tuple[int, ...], edge: int) -> None:
        """Add the edge of a delivered tuple to these trees."""
        for root in roots:
            if (tree := self._trees.get(root)) is not None:
                tree.live.add(edge)

    def seal(self, root: int) -> None:
        """Mark a tree as completely delivered. A tree without deliveries is complete immediately."""
        tree = self._trees.get(root)
        if tree is not None and not tree.live:
            self._end(tree, Outcome.ACKED)

    def ack(self, roots: tuple[int, ...], edge: int) -> None:
        """Remove the edge of a tuple that a bolt acked."""
        for root in roots:
            tree = self._trees.get(root)
            if tree is not None and edge in tree.live:
                tree.live.remove(edge)
                if not tree.live:
                    self._end(tree, Outcome.ACKED)

    def fail(self, roots: tuple[int, ...]) -> None:
        """Fail all trees of a tuple that a bolt failed."""
        for root in roots:
            if (tree := self._trees.get(root)) is not None:
                self._end(tree, Outcome.FAILED)

    def expire(self, now: float) -> None:
        """Time out the trees that have reached their deadline."""
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            _, root = heapq.heappop(self._deadlines)
            self._end(self._trees[root], Outcome.TIMED_OUT)

    def forget_owner(self, owner: int) -> None:
        """Drop the trees of a spout task that has ended."""
        for root in [root for root, tree in self._trees.items() if tree.owner == owner]:
            del self._trees[root]
        self._pending.pop(owner, None)

    def pending(self, owner: int) -> int:
        """Return the number of pending tuples of this task."""
        return self._pending.get(owner, 0)

    def next_deadline(self) -> float | None:
        """Return the time at which the next tree times out; None if no tree has a deadline."""
        while self._deadlines and self._deadlines[0][1] not in self._trees:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def take_ended(self) -> list[tuple[Tree, Outcome]]:
        """Return the trees that ended since the last call, in the order in which they ended."""
        ended, self._ended = self._ended, []
        return ended

    def _end(self, tree: Tree, outcome: Outcome) -> None:
        del self._trees[tree.root]
        self._pending[tree.owner] -= 1
        self._ended.append((tree, outcome))
