"""The decisions of a pool's keeper: which slot gets which shard, and which slot must be ended. Pure.

The protocol is level-triggered: a map states the goal, and a slot answers with the number of the newest map that it has
carried out, so losing a message is harmless.

Invariants: a shard is assigned to another slot only after its owner has answered the map that took the shard away, or
when no process can act for the owner; the number of a map is never used twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from heronpy.pools.balance import Loads, balance, is_pressing, is_uneven, level_counts
from heronpy.pools.shards import BUCKETS, Answer, Map, Owner, Pool, Size

#: Seconds in which an active slot must carry out a map; otherwise the engine ends the slot.
OBEY_S: Final = 60.0
#: Seconds between two rounds of balancing.
BALANCE_S: Final = 600.0
#: Seconds between two rounds while a slot is overloaded, or empty while another slot has several loaded shards.
SOON_S: Final = 30.0
#: If the keeper makes no decision for this many seconds, it was paused, and the silence of slots proves nothing.
OWN_STALL_S: Final = 5.0


class SlotView(Struct, frozen=True):
    """The state of a slot according to the placement, and the last answer of the slot."""

    epoch: int = 0
    """The epoch in which the slot is active or about to become active; 0 if the slot is not active."""
    over: int = 0
    """The highest epoch in which no process can act for the slot any more."""
    is_silent: bool = False
    """Whether the slot has been silent for `heron.engine.lost_s`, so its state is unknown."""
    answer: Answer | None = None

    def has_carried_out(self, number: int, epoch: int) -> bool:
        """Whether the slot has answered with this map's number, or a higher one, in this epoch."""
        return self.answer is not None and self.answer.epoch == epoch and self.answer.number >= number


class Decision(Struct, frozen=True):
    """The result of one call of `Keeper.decide`."""

    map: Map | None = None
    """The map to write; None if the last map is still valid."""
    late: tuple[int, ...] = ()
    """Slots that the engine must end."""
    notes: tuple[str, ...] = ()
    leaving: frozenset[int] = frozenset()
    """Shards that move as soon as the topologies in them are `ready`."""


class _Group(Struct):
    """The shards of one slot in one epoch."""

    shards: list[int]
    leaving: list[int]
    """Shards that the slot must drop."""
    number: int = 0
    """Number of the newest map that the slot must carry out."""


def _grouped(owners: Iterable[Owner]) -> dict[tuple[int, int], _Group]:
    found: dict[tuple[int, int], _Group] = {}
    for shard, owner in enumerate(owners):
        group = found.get((owner.slot, owner.epoch))
        if group is None:
            group = found[owner.slot, owner.epoch] = _Group([], [])
        group.shards.append(shard)
        group.number = max(group.number, owner.number)
        if owner.to:
            group.leaving.append(shard)
    return found


def first_map(pool: Pool) -> Map:
    """Return the map of a new pool, in which no shard has an owner."""
    return Map(1, (Owner(),) * pool.shards, (0,) * BUCKETS)


class Keeper:
    """Decides about the shards of a pool. Call `decide` at least once a second.

    Write the result before the next call, or drop it. A call that changes nothing costs time per slot, not per shard:
    the shards are grouped once for each map.
    """

    def __init__(self, obey_s: float = OBEY_S, balance_s: float = BALANCE_S) -> None:
        self._obey_s, self._balance_s = obey_s, balance_s
        #: Map from slot and epoch to the last answered map number and the time of the slot's last progress.
        self._owes: dict[tuple[int, int], tuple[int, float]] = {}
        self._balanced_at: float | None = None
        self._looked_at: float | None = None
        self._last_now: float | None = None
        #: Map from each shard that must move with its running containers to its owner and its next slot.
        self._leaving: dict[int, tuple[Owner, int]] = {}
        #: Why the pool is not level; "" if it is level.
        self._unlevel = ""
        #: The owners for which the groups were computed last.
        self._owners: tuple[Owner, ...] = ()
        self._groups: dict[tuple[int, int], _Group] = {}

    def decide(
        self,
        known: Map,
        pool: Pool,
        slots: Mapping[int, SlotView],
        loads: Mapping[int, Size],
        now: float,
        new: frozenset[int] = frozenset(),
        ready: Collection[int] | None = None,
    ) -> Decision:
        """Decide which map to write and which slots to end. `loads` are by shard; shards in `new` run no container
        yet, so any slot can take them at no cost.

        `ready` contains the shards that can move without losing tuples; None means all shards.
        """
        paused = self._last_now is not None and now - self._last_now > OWN_STALL_S
        self._last_now = now
        owners, groups, notes = list(known.owners), self._group(known.owners), list[str]()
        live = frozenset(
            slot for slot, view in slots.items() if view.epoch and slot <= pool.slots and slot not in pool.drained
        )
        self._settle(owners, groups, known.number + 1, live, slots, loads, pool, notes)
        if live:
            self._leave(owners, groups, known.number + 1, live, loads, pool)
            self._level(owners, self._group(owners), known.number + 1, live, loads, pool, new, now, notes)
        self._hold_back(known, owners, live, {*loads} - new, ready)
        late = self._late(self._group(owners), slots, now, paused)
        changed = self._owners != known.owners
        new_map = replace(known, number=known.number + 1, owners=self._owners) if changed else None
        return Decision(new_map, late, tuple(notes), frozenset(self._leaving))

    def _hold_back(
        self,
        known: Map,
        owners: list[Owner],
        live: frozenset[int],
        used: Collection[int],
        ready: Collection[int] | None,
    ) -> None:
        """Keep shards with running containers in their slots until they are ready to move."""
        for shard in self._leaving.keys() | {one for one in used if owners[one] is not known.owners[one]}:
            old, new = known.owners[shard], owners[shard]
            owner, to = self._leaving.pop(shard, (old, 0))
            if owner != old or to not in live:
                to = new.to
            if not to or old.to or (new.slot, new.epoch) != (old.slot, old.epoch) or shard not in used:
                continue  # the shard stays, is already moving, has lost its owner, or runs no container
            if ready is None or shard in ready:
                owners[shard] = replace(old, number=known.number + 1, to=to)
            else:
                self._leaving[shard], owners[shard] = (old, to), old

    def _group(self, owners: Sequence[Owner]) -> Mapping[tuple[int, int], _Group]:
        same = tuple(owners)
        if same != self._owners:
            self._owners, self._groups = same, _grouped(same)
        return self._groups

    def _settle(
        self, owners: list[Owner], groups: Mapping[tuple[int, int], _Group], number: int, live: frozenset[int],
        slots: Mapping[int, SlotView], loads: Mapping[int, Size], pool: Pool, notes: list[str],
    ) -> None:  # fmt: skip
        """Choose slots for the shards that were dropped or have no owner."""
        free, lost, dropped = list[int](), dict[int, int](), set[int]()
        for (slot, epoch), group in groups.items():
            view = slots.get(slot)
            if view is None or epoch <= view.over:
                for shard in group.shards:
                    if view is not None and slot in live and not owners[shard].to:
                        owners[shard] = Owner(slot, view.epoch, number)  # the slot has returned in time
                    else:
                        free.append(shard)
                        lost[slot] = lost.get(slot, 0) + 1
                continue
            for shard in group.leaving:
                owner = owners[shard]
                if not view.has_carried_out(owner.number, epoch):
                    continue
                dropped.add(shard)
                if owner.to in live:
                    owners[shard] = Owner(owner.to, slots[owner.to].epoch, number, moved=True)
                else:
                    free.append(shard)
        if not free or not live:
            return
        fill = _fill(owners, live, loads, pool, skip=frozenset(free))
        for shard in sorted(
            free, key=lambda shard: (-loads[shard].share_of(pool.size) if shard in loads else 1, shard)
        ):
            slot = fill.place(shard, loads.get(shard))
            owners[shard] = Owner(slot, slots[slot].epoch, number, moved=shard in dropped)
        notes += [f"slot {slot} is lost; its {count} shards get other slots" for slot, count in lost.items() if slot]

    def _leave(
        self, owners: list[Owner], groups: Mapping[tuple[int, int], _Group], number: int, live: frozenset[int],
        loads: Mapping[int, Size], pool: Pool,
    ) -> None:  # fmt: skip
        """Move shards away from slots that are being drained or exceed the size of the pool."""
        away = [
            shard
            for (slot, _), group in groups.items()
            if slot not in live and (slot > pool.slots or slot in pool.drained)
            for shard in group.shards
            if owners[shard].slot == slot and not owners[shard].to
        ]
        fill = _fill(owners, live, loads, pool) if away else None
        for shard in away:
            assert fill is not None
            owners[shard] = replace(owners[shard], number=number, to=fill.place(shard, loads.get(shard)))

    def _level(
        self, owners: list[Owner], groups: Mapping[tuple[int, int], _Group], number: int, live: frozenset[int],
        loads: Mapping[int, Size], pool: Pool, new: frozenset[int], now: float, notes: list[str],
    ) -> None:  # fmt: skip
        """Move shards without a load immediately, and other shards in the rounds of balancing."""
        moves, counts = dict[int, int](), _counts(owners, groups, live)
        if new:
            stays = _staying(owners, new, live)
            fill = _fill(owners, live, loads, pool, skip=stays.keys())
            for shard in sorted(stays, key=lambda one: (-loads[one].share_of(pool.size), one)):
                moves[shard] = fill.place(shard, loads[shard])
        elif is_uneven(counts):
            empty = {slot: list[int]() for slot in live}
            for shard, slot in _staying(owners, range(len(owners)), live).items():
                if shard not in loads:
                    empty[slot].append(shard)
            moves = level_counts(counts, empty)
        if self._balanced_at is None:
            self._balanced_at = now
        stays = {} if new or not self._looks(now) else _staying(owners, loads, live)
        is_due = now - self._balanced_at >= self._balance_s
        moving = bool(stays) and any(owners[shard].to for shard in loads)
        if stays and not moving and (is_due or is_pressing(stays, loads, live, pool.size)):
            self._balanced_at = now
            found = balance(stays, loads, live, pool.size)
            notes += [found.why] if found.why not in ("", self._unlevel) else []
            self._unlevel = found.why
            moves |= found.moves
        for shard, slot in moves.items():
            if owners[shard].slot != slot:
                owners[shard] = replace(owners[shard], number=number, to=slot)

    def _looks(self, now: float) -> bool:
        """Whether it is time to check the loads again; if so, note the time."""
        if self._looked_at is not None and 0 <= now - self._looked_at < min(SOON_S, self._balance_s):
            return False
        self._looked_at = now
        return True

    def _late(
        self, groups: Mapping[tuple[int, int], _Group], slots: Mapping[int, SlotView], now: float, paused: bool
    ) -> tuple[int, ...]:
        """Return the slots that have not carried out a map in time or have been silent for too long."""
        owes: dict[tuple[int, int], tuple[int, float]] = {}
        late = []
        for (slot, epoch), group in groups.items():
            view, number = slots.get(slot), group.number
            if view is None or not epoch or epoch <= view.over:
                continue
            if not view.is_silent and (view.epoch != epoch or view.has_carried_out(number, epoch)):
                continue  # the slot has another epoch, or has carried out its map
            answered = view.answer.number if view.answer is not None and view.answer.epoch == epoch else 0
            # The placement reports a slot as silent only after a long time, so a silent slot gets no additional time.
            first = answered, now - self._obey_s if view.is_silent else now
            before, since = self._owes.get((slot, epoch), first)
            if not view.is_silent and (paused or answered > before):
                since = now  # only a slot without any progress is late
            if now - since >= self._obey_s * (1 if answered or view.is_silent else 2):  # it may be starting
                late.append(slot)
                since = now
            owes[slot, epoch] = answered, since
        self._owes = owes
        return tuple(late)


def _staying(owners: Sequence[Owner], shards: Iterable[int], live: frozenset[int]) -> dict[int, int]:
    """Return the slot of each movable shard. A shard is movable if its slot is live and the shard is not moving."""
    found = ((shard, owners[shard]) for shard in shards)
    return {shard: owner.slot for shard, owner in found if owner.slot in live and not owner.to}


def _counts(owners: Sequence[Owner], groups: Mapping[tuple[int, int], _Group], live: frozenset[int]) -> dict[int, int]:
    """Return the number of shards in each slot after all pending moves."""
    counts = dict.fromkeys(live, 0)
    for (slot, _), group in groups.items():
        if slot in counts:
            counts[slot] += len(group.shards) - len(group.leaving)
        for shard in group.leaving:
            if owners[shard].to in counts:
                counts[owners[shard].to] += 1
    return counts


def _fill(
    owners: Sequence[Owner], live: Collection[int], loads: Mapping[int, Size], pool: Pool, skip: Collection[int] = ()
) -> Loads:
    """Return the loads of the slots after all pending moves."""
    found = Loads(live, pool.size)
    for shard, owner in enumerate(owners):
        slot = owner.to or owner.slot
        if slot in found.shares and shard not in skip:
            found.give(shard, loads.get(shard), slot)
    return found


def spread(known: Map, loads: Mapping[int, Size], pool: Pool) -> dict[int, tuple[int, float]]:
    """Return the number of shards in each slot, and the share of the slot that these shards use."""
    found = _fill(known.owners, sorted({owner.slot for owner in known.owners} - {0}), loads, pool)
    counts: dict[int, int] = {}
    for owner in known.owners:
        counts[owner.slot] = counts.get(owner.slot, 0) + 1
    return {slot: (counts[slot], share) for slot, share in found.shares.items()}
