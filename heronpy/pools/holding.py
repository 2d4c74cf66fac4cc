"""The containers that a slot should run, and the answer that the slot may give. Pure.

Invariant: a slot answers with the number of a map only when it runs no container that this map assigns elsewhere. So a
reader of the answer may assign all other containers to other slots.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from heronpy.pools.shards import BUCKETS, Key, Map, Run, Spec, runs_of


class Holding:
    """The state of one slot in one epoch."""

    def __init__(self, slot: int, epoch: int) -> None:
        self.slot, self.epoch = slot, epoch
        self._map: Map | None = None
        self._specs: dict[int, tuple[Spec, ...]] = {}
        self._answered = 0

    def stale(self, found: Map) -> list[int]:
        """Return the buckets of specifications to read again before `take`."""
        known = self._map.buckets if self._map is not None else (0,) * BUCKETS
        return [bucket for bucket in range(BUCKETS) if found.buckets[bucket] != known[bucket]]

    def take(self, found: Map, specs: dict[int, tuple[Spec, ...]]) -> None:
        """Apply a map and the buckets that were `stale`; a map older than the last one is ignored."""
        if self._map is None or found.number >= self._map.number:
            self._map = found
            self._specs |= specs

    @property
    def specs(self) -> Iterable[Spec]:
        """Return the specifications of all topologies of the pool."""
        return (spec for bucket in self._specs.values() for spec in bucket)

    def runs(self) -> dict[Key, Run]:
        """Return the containers that should run in this slot."""
        return runs_of(self._map, self.specs, self.slot, self.epoch) if self._map is not None else {}

    def answer(self, running: Collection[Key]) -> int:
        """Return the number of the map to answer with while these containers are running."""
        if self._map is not None and self.runs().keys() >= set(running):
            self._answered = self._map.number
        return self._answered
