"""A keeper and slots as they are, over a simulated engine, network and state manager, under drawn faults.

The engine, the leases and the processes are modelled: a slot that hears no grant for 40 s stops what it runs, one that
was not heard for 60 s is replaced, one that is killed is known to have ended at once. `audit` raises AssertionError when
a container runs in two slots at once, or when an epoch is used twice. The lease log has each start and end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from heronpy.pools.holding import Holding
from heronpy.pools.keeping import Keeper, SlotView, first_map
from heronpy.pools.shards import Answer, Key, Map, Pool, Size, Spec, bucket_of, loads_of

SELF_STOP_S, LOST_S, GRACE_S, HUNG_S = 40, 60, 2, 30
SIZE = Size(4.0, 8 << 30)


@dataclass
class SimSlot:
    number: int
    epoch: int = 0
    over: int = 0
    starts_at: int = 0
    heard_at: int = 0
    granted_at: int = 0
    cut_until: int = 0
    paused_until: int = 0
    holding: Holding | None = None
    #: To the epoch in which each runs, and when what is stopping is gone.
    running: dict[Key, int] = field(default_factory=dict)
    stopping: dict[Key, int] = field(default_factory=dict)
    starts: dict[Key, int] = field(default_factory=dict)
    #: The newest map that was taken, which is on its disk with its specifications; how often it has crashed.
    disk: tuple[Map, dict[int, tuple[Spec, ...]]] | None = None
    life: int = 0
    answer: Answer | None = None


class PoolWorld:
    def __init__(self, seed: int, slots: int = 3, keeper: type[Keeper] = Keeper) -> None:
        self.rng, self.now, self._kind = random.Random(seed), 0, keeper
        self.pool = Pool(slots, 16 * slots, SIZE)
        self.map: Map = first_map(self.pool)
        self.keeper = keeper(balance_s=100.0)
        self.slots = {number: SimSlot(number, starts_at=self.rng.randint(0, 5)) for number in range(1, slots + 1)}
        self.specs: dict[str, Spec] = {}
        self.buckets: dict[int, tuple[Spec, ...]] = {}
        self.state_away_until = 0
        #: Of an executor, in a second.
        self.crashes = 0.01
        self.ended_late: list[int] = []
        self.log: list[tuple[int, str, int, Key, int]] = []
        self._epochs: dict[Key, int] = {}

    # ---- what users and faults do -----------------------------------------------------------
    def add(self, name: str, containers: int) -> None:
        size = Size(self.rng.uniform(0.1, 1.0), self.rng.randint(1 << 20, 1 << 30))
        self._publish(name, Spec(name, name, "", dict.fromkeys(range(containers + 1), size)))

    def remove(self, name: str) -> None:
        self._publish(name, None)

    def _publish(self, name: str, spec: Spec | None) -> None:
        self.specs.pop(name, None)
        if spec is not None:
            self.specs[name] = spec
        bucket, counts = bucket_of(name), list(self.map.buckets)
        self.buckets[bucket] = tuple(one for one in self.specs.values() if bucket_of(one.topology_id) == bucket)
        counts[bucket] += 1
        self.map = Map(self.map.number + 1, self.map.owners, tuple(counts))

    def kill(self, slot: int) -> None:
        one = self.slots[slot]
        for key in list(one.running):
            self._end(one, key)
        one.stopping.clear()
        one.over, one.holding, one.starts_at = one.epoch, None, self.now + self.rng.randint(1, 8)
        one.paused_until = one.cut_until = 0

    def crash(self, slot: int) -> None:
        """End the process of a slot that acts: its first process starts it again in the same epoch."""
        one = self.slots[slot]
        if one.holding is None or one.life >= 3:
            return self.kill(slot)
        for key in list(one.running):
            self._end(one, key)
        one.stopping.clear()
        one.starts.clear()
        one.holding, one.life = Holding(slot, one.epoch), one.life + 1
        if one.disk is not None:
            one.holding.take(*one.disk)

    def fault(self) -> None:
        slot = self.slots[self.rng.randint(1, len(self.slots))]
        what = self.rng.choice(("cut", "cut", "pause", "kill", "crash", "state", "keeper"))
        if what == "cut":
            slot.cut_until = self.now + self.rng.randint(5, 90)
        elif what == "pause":
            slot.paused_until = self.now + self.rng.randint(5, 120)
        elif what == "kill":
            self.kill(slot.number)
        elif what == "crash":
            self.crash(slot.number)
        elif what == "state":
            self.state_away_until = self.now + self.rng.randint(5, 60)
        else:
            self.keeper = self._kind(balance_s=100.0)

    # ---- time -------------------------------------------------------------------------------
    def run(self, seconds: int, fault_each_s: int = 0) -> None:
        for _ in range(seconds):
            self.now += 1
            if fault_each_s and self.rng.random() < 1 / fault_each_s:
                self.fault()
            for slot in self.slots.values():
                self._engine(slot)
                self._slot(slot)
            if self.now >= self.state_away_until:
                self._keep()
            self.audit()

    def _engine(self, slot: SimSlot) -> None:
        """Leases and placement."""
        if slot.over >= slot.epoch:
            if self.now >= slot.starts_at:
                slot.epoch += 1
                slot.heard_at = slot.granted_at = self.now
                slot.holding, slot.answer = Holding(slot.number, slot.epoch), None
                slot.starts.clear()
                slot.disk, slot.life = None, 0
            return
        if self.now >= slot.cut_until:
            slot.heard_at = slot.granted_at = self.now
        if self.now - slot.granted_at >= SELF_STOP_S and slot.holding is not None:
            slot.holding = None
            for key in slot.running:
                slot.stopping.setdefault(key, self.now + GRACE_S)
        if slot.holding is None and not slot.running and self.now >= slot.cut_until:
            slot.over, slot.starts_at = slot.epoch, self.now  # it stands by again, and is activated at once
            self._engine(slot)
        elif self.now - slot.heard_at >= LOST_S:
            slot.over, slot.starts_at = slot.epoch, self.now + self.rng.randint(0, 5)
        if slot.paused_until - self.now > HUNG_S and self.rng.random() < 0.05:
            self.kill(slot.number)  # its first process sees that it hangs

    def _slot(self, slot: SimSlot) -> None:
        for key, gone_at in list(slot.stopping.items()):
            if self.now >= gone_at:
                del slot.stopping[key]
                self._end(slot, key)
        if slot.holding is None or self.now < slot.paused_until:
            return
        reads = self.now >= max(self.state_away_until, slot.cut_until) and self.rng.random() < 0.7
        if reads:
            found = self.map, {one: self.buckets.get(one, ()) for one in slot.holding.stale(self.map)}
            self._keep_on_disk(slot, *found)
            slot.holding.take(*found)
        runs = slot.holding.runs()
        for key in slot.running:
            if key not in runs:
                slot.stopping.setdefault(key, self.now + self.rng.randint(0, GRACE_S))
            elif self.rng.random() < self.crashes:
                slot.stopping.setdefault(key, self.now)  # it crashes
        for key in runs.keys() - slot.running.keys():
            slot.starts[key] = slot.starts.get(key, 0) + 1
            slot.running[key] = runs[key].epoch(slot.starts[key], slot.life)
            self.log.append((self.now, "started", slot.number, key, slot.running[key]))
            assert slot.running[key] > self._epochs.get(key, 0), f"an epoch of {key} is used twice"
            self._epochs[key] = slot.running[key]
        if reads:
            slot.answer = Answer(slot.epoch, slot.holding.answer(slot.running.keys()))

    def _keep_on_disk(self, slot: SimSlot, found: Map, buckets: dict[int, tuple[Spec, ...]]) -> None:
        slot.disk = found, (slot.disk[1] if slot.disk is not None else {}) | buckets

    def _end(self, slot: SimSlot, key: Key) -> None:
        self.log.append((self.now, "ended", slot.number, key, slot.running.pop(key)))

    def _keep(self) -> None:
        views = {
            slot.number: SlotView(0 if slot.over >= slot.epoch else slot.epoch, slot.over, answer=slot.answer)
            for slot in self.slots.values()
        }
        found = self.keeper.decide(self.map, self.pool, views, self.loads(), self.now)
        for slot in found.late:
            self.ended_late.append(slot)
            self.kill(slot)
        if found.map is not None:
            self.map = found.map

    # ---- looking ----------------------------------------------------------------------------
    def loads(self) -> dict[int, Size]:
        return loads_of(self.specs.values(), {}, self.pool.shards)

    def where(self) -> dict[Key, list[int]]:
        found: dict[Key, list[int]] = {}
        for slot in self.slots.values():
            for key in slot.running:
                found.setdefault(key, []).append(slot.number)
        return found

    def audit(self) -> None:
        for key, slots in self.where().items():
            assert len(slots) == 1, f"{key} runs in slots {slots} at second {self.now}"

    def is_whole(self) -> bool:
        """Whether all that should run does, and nothing else."""
        wanted = {(spec.topology_id, container) for spec in self.specs.values() for container in spec.containers}
        return self.where().keys() == wanted

    def settles(self, within_s: int) -> bool:
        """Whether that is so at some second from now on: one may just crash or move."""
        for _ in range(within_s):
            if self.is_whole():
                return True
            self.run(1)
        return False

    def is_moved_from(self, slot: int) -> bool:
        """Whether a slot has no shard."""
        return all(owner.slot != slot for owner in self.map.owners) and not self.slots[slot].running
