"""Chooses the next batch: each sink task has a lane, the batches of a lane run in order, and lanes take turns. Pure.

Invariants: a batch is in its lane once; a lane whose first batch is taken or waits for a retry yields no other batch;
every lane with work gets its turn. A batch that may have killed the driver runs alone, so that no other batch is blamed
if the driver dies again.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

from msgspec import Struct

from heronpy.connectors.spark.handover import parse_stem


class Ticket(Struct, frozen=True):
    """One batch in a lane."""

    component: str
    stem: str


class _Lane(Struct):
    #: (number, incarnation, stem), sorted.
    batches: list[tuple[int, int, str]] = []
    taken: bool = False
    not_before: float = 0.0


class Lanes:
    """The known unfinished batches, in one lane per sink task."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._known: set[Ticket] = set()
        #: Known batches that run alone, and batches in progress.
        self._alone: set[Ticket] = set()
        self._taken: set[Ticket] = set()

    def __contains__(self, ticket: Ticket) -> bool:
        return ticket in self._known

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._known)

    @property
    def taken(self) -> frozenset[Ticket]:
        """The batches in progress."""
        return frozenset(self._taken)

    def add(self, ticket: Ticket, alone: bool = False) -> bool:
        """Put a batch into its lane. Returns False if the batch is already there or its name is invalid."""
        parsed = parse_stem(ticket.stem)
        if parsed is None or ticket in self._known:
            return False
        task, number, incarnation = parsed
        self._known.add(ticket)
        if alone:
            self._alone.add(ticket)
        lane = self._lanes.setdefault((ticket.component, task), _Lane())
        item = (number, incarnation, ticket.stem)
        if lane.taken and item < lane.batches[0]:
            # The taken batch stays first, and this batch follows it directly.
            lane.batches.insert(1, item)
        else:
            insort(lane.batches, item)
        return True

    def take(self, now: float) -> Ticket | None:
        """Take the next batch, which may run in parallel with the batches in progress; None if every lane waits."""
        ready = [key for key, lane in self._lanes.items() if not lane.taken and lane.not_before <= now]
        alone = [key for key in ready if self._first(key) in self._alone]
        if self._taken and (alone or self._taken & self._alone):
            return None  # A batch that runs alone waits for the others, and the others wait for it.
        for key in alone or ready:
            lane = self._lanes[key]
            lane.taken = True
            # Move the lane to the end of the round.
            self._lanes[key] = self._lanes.pop(key)
            ticket = self._first(key)
            self._taken.add(ticket)
            return ticket
        return None

    def _first(self, key: tuple[str, int]) -> Ticket:
        return Ticket(key[0], self._lanes[key].batches[0][2])

    def finish(self, ticket: Ticket) -> None:
        """Remove a taken batch that has an outcome or is missing."""
        key, lane = self._lane_of(ticket)
        self._known.discard(ticket)
        self._alone.discard(ticket)
        self._taken.discard(ticket)
        lane.batches.pop(0)
        lane.taken = False
        lane.not_before = 0.0
        if not lane.batches:
            del self._lanes[key]

    def retry(self, ticket: Ticket, not_before: float) -> None:
        """Return a taken batch to the head of its lane; it may be taken again at the time `not_before`."""
        _, lane = self._lane_of(ticket)
        self._taken.discard(ticket)
        lane.taken = False
        lane.not_before = not_before

    def next_deadline(self, now: float) -> float | None:
        """Return when `take` may next return a batch, unless a batch is added or finished earlier; None if never."""
        waiting = [key for key, lane in self._lanes.items() if not lane.taken]
        if self._taken:
            ready = (self._first(key) for key in waiting if self._lanes[key].not_before <= now)
            if self._taken & self._alone or not self._alone.isdisjoint(ready):
                return None
        times = [self._lanes[key].not_before for key in waiting]
        return min(times) if times else None

    def _lane_of(self, ticket: Ticket) -> tuple[tuple[str, int], _Lane]:
        parsed = parse_stem(ticket.stem)
        assert parsed is not None
        key = (ticket.component, parsed[0])
        lane = self._lanes[key]
        assert lane.taken and lane.batches[0][2] == ticket.stem, f"{ticket} is not the taken batch"
        return key, lane
