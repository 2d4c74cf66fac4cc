"""Chooses the segments that each checkpoint writes and reuses for a keyed state. Pure.

A chain is a base and the deltas since that base. A checkpoint writes the changes since the last *complete* checkpoint,
including the changes of failed captures. When the changes since the base exceed a share of the state, a new base is
written. `FAN` deltas are merged into one, level by level, so that chains stay short and changes are rarely rewritten.

Invariants: whichever earlier captures complete, the segments of a checkpoint are correct, because its links build on
the last checkpoint that is *known* to be complete; a savepoint is treated like any other checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from heronpy.proto.checkpoint_pb2 import Segment

Keys = tuple[set[Any], ...]

#: Number of deltas of one level that are merged into a delta of the next level.
FAN: Final = 16
#: Maximum number of failed captures that are kept separately; the keys of further captures are merged.
_LOOSE_MAX: Final = 8


class Link(Struct):
    """Segments that were written together."""

    segments: list[Segment]
    keys: Keys | None
    """The keys that a delta may contain; None for a base."""
    level: int = 0

    @property
    def entries(self) -> int:
        """The number of keys changed in this delta."""
        return 0 if self.keys is None else sum(segment.entries for segment in self.segments)


class Plan(Struct):
    """The keys of one keyed state that a checkpoint writes, and the segments that it reuses."""

    kept: list[Link]
    keys: Keys | None
    """The keys to write: None for all keys, as a new base; () for no keys."""
    level: int = 0

    @property
    def segments(self) -> list[Segment]:
        """The segments that the checkpoint reuses."""
        return [segment for link in self.kept for segment in link.segments]

    @property
    def entries(self) -> int:
        """Maximum number of keys written as a delta."""
        return sum(map(len, self.keys or ()))


class _Pending(Struct):
    changed: Keys
    plan: Plan | None
    links: list[Link] | None = None


class Chain(Struct):
    """The chain of one keyed state of one task."""

    links: list[Link] | None = None
    """The links of the last complete checkpoint; None before the first checkpoint."""
    _pending: dict[int, _Pending] = {}

    def plan(self, checkpoint: int, changed: set[Any], held: int, compact_ratio: float, small: bool) -> Plan:
        """Return the segments to write for a checkpoint; `changed` are the keys changed since the last capture.

        `held` is the number of keys in the state; `small` means that a base costs almost nothing.
        """
        loose = tuple(keys for pending in self._pending.values() for keys in pending.changed)
        keys = (*loose, changed) if changed else loose
        plan = self._choose(keys, held, compact_ratio, small)
        self._pending[checkpoint] = _Pending((changed,) if changed else (), plan)
        return plan

    def _choose(self, keys: Keys, held: int, compact_ratio: float, small: bool) -> Plan:
        if self.links is None:
            return Plan([], None)
        if not keys:
            return Plan(self.links, ())
        entries = sum(map(len, keys)) + sum(link.entries for link in self.links)
        if small or entries > compact_ratio * held:
            return Plan([], None)
        kept, level = list(self.links), 0
        while (run := _run(kept, level)) >= FAN - 1:
            merged = [link.keys or () for link in kept[-run:]]
            keys = (*(part for parts in merged for part in parts), *keys)
            del kept[-run:]
            level += 1
        return Plan(kept, keys, level)

    def persisted(self, checkpoint: int, segments: list[Segment]) -> None:
        """Record the segments that the checkpoint names for this state, reused segments first."""
        pending = self._pending.get(checkpoint)
        if pending is None or pending.plan is None:
            return
        plan = pending.plan
        pending.links = list(plan.kept)
        new = segments[len(plan.segments) :]
        if plan.keys is None:
            pending.links.append(Link(new, None))
        elif new:
            pending.links.append(Link(new, plan.keys, plan.level))

    def completed(self, checkpoint: int) -> None:
        """Record that later checkpoints build on this checkpoint."""
        pending = self._pending.get(checkpoint)
        if pending is None or pending.links is None:
            return
        self.links = pending.links
        # Keys of later captures stay pending; their plans build on older links and remain correct.
        self._pending = {number: item for number, item in self._pending.items() if number > checkpoint}

    def aborted(self, checkpoint: int) -> None:
        """Record that this checkpoint was aborted, so that the next checkpoint also writes its keys."""
        pending = self._pending.get(checkpoint)
        if pending is None:
            return
        pending.plan = pending.links = None
        loose = [number for number, item in self._pending.items() if item.plan is None]
        if len(loose) > _LOOSE_MAX:
            joined = set().union(*(keys for number in loose for keys in self._pending[number].changed))
            for number in loose[:-1]:
                del self._pending[number]
            self._pending[loose[-1]] = _Pending((joined,), None)

    @classmethod
    def restored(cls, base: Iterable[Segment], deltas: Iterable[tuple[Segment, set[Any]]]) -> Chain:
        links = [Link(list(base), None)]
        links += [Link([segment], (keys,)) for segment, keys in deltas]
        return cls(links)


def _run(links: list[Link], level: int) -> int:
    """Return the number of deltas of this level at the end of the chain."""
    count = 0
    for link in reversed(links):
        if link.keys is None or link.level != level:
            break
        count += 1
    return count
