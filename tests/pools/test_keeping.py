"""A pool's keeper and its slots in a simulation: no container in two slots at once, none lost, and failovers in time.

Bugs that are planted into the keeper are found.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from heronpy.common.errors import DamagedStateError
from heronpy.pools.keeping import Decision, Keeper, SlotView, spread
from heronpy.pools.shards import Answer, Map, Owner, Pool, Size, Spec, pack, shard_of, unpack
from tests.pools.pool_world import PoolWorld, SimSlot
from tests.support.seeds import seeds


def _busy(seed: int, keeper: type[Keeper] = Keeper, slots: int = 3) -> PoolWorld:
    world = PoolWorld(seed, slots, keeper)
    for number in range(4):
        world.add(f"T{number}", number + 1)
    return world


@pytest.mark.parametrize("seed", seeds(6, 100))
def test_under_cuts_pauses_and_kills_no_container_runs_twice_and_none_is_lost(seed: int) -> None:
    world = _busy(seed)
    world.run(300, fault_each_s=25)
    world.remove("T1")
    world.add("T9", 3)
    world.pool = replace(world.pool, drained=(2,))
    world.run(300, fault_each_s=25)
    world.pool = replace(world.pool, drained=())
    world.run(200)
    assert world.settles(60), world.where()


class _AddBeforeDrop(Keeper):
    """Gives a shard away without waiting for its owner."""

    def decide(self, known: Map, pool: Pool, slots: dict[int, SlotView], *rest: object) -> Decision:  # type: ignore[override]
        obeying = {number: replace(view, answer=Answer(view.epoch, known.number)) for number, view in slots.items()}
        return super().decide(known, pool, obeying, *rest)  # type: ignore[arg-type]


class _SameNumber(Keeper):
    """Gives a new map the number of the last."""

    def decide(self, *given: object) -> Decision:  # type: ignore[override]
        found = super().decide(*given)  # type: ignore[arg-type]
        if found.map is None:
            return found
        owners = tuple(replace(one, number=2) for one in found.map.owners)
        return replace(found, map=replace(found.map, owners=owners))


class _NoLease(Keeper):
    """Takes a slot that is silent for lost at once."""

    def decide(self, known: Map, pool: Pool, slots: dict[int, SlotView], *rest: object) -> Decision:  # type: ignore[override]
        silent = {
            number: view
            if view.has_carried_out(known.number - 3, view.epoch)
            else replace(view, epoch=0, over=view.epoch)
            for number, view in slots.items()
        }
        return super().decide(known, pool, silent, *rest)  # type: ignore[arg-type]


@pytest.mark.parametrize("bug", [_AddBeforeDrop, _SameNumber, _NoLease])
def test_planted_bugs_are_found(bug: type[Keeper]) -> None:
    with pytest.raises(AssertionError, match=r"runs in slots|used twice"):
        for seed in range(30):
            world = _busy(seed, bug)
            world.run(200, fault_each_s=25)
            world.pool = replace(world.pool, drained=(2,))
            world.run(200, fault_each_s=25)


class _OldDisk(PoolWorld):
    """Its slots keep only the first map that they take."""

    def _keep_on_disk(self, slot: SimSlot, found: Map, buckets: dict[int, tuple[Spec, ...]]) -> None:
        if slot.disk is None:
            super()._keep_on_disk(slot, found, buckets)


def test_a_slot_that_keeps_an_old_map_is_found() -> None:
    with pytest.raises(AssertionError, match=r"runs in slots|used twice"):
        for seed in range(300):  # about one in twelve shows it
            world = _OldDisk(seed)
            for number in range(4):
                world.add(f"T{number}", number + 1)
            world.run(200, fault_each_s=25)
            world.pool = replace(world.pool, drained=(2,))
            world.run(200, fault_each_s=10)


def test_a_slot_that_crashes_while_all_else_is_away_goes_on_by_its_disk() -> None:
    world = _calm()
    there = {key for key, slots in world.where().items() if slots == [1]}
    world.state_away_until = world.now + 60
    world.crash(1)
    assert there and not any(world.where().get(key) for key in there)
    world.run(2)
    assert {key for key, slots in world.where().items() if slots == [1]} == there
    assert world.slots[1].epoch == 1 and world.slots[1].life == 1


def _calm(slots: int = 3) -> PoolWorld:
    world = _busy(1, slots=slots)
    world.crashes, world.keeper = 0.0, Keeper(balance_s=1e9)
    world.run(60)
    assert world.settles(5)
    return world


def test_a_killed_slot_s_containers_are_elsewhere_at_once_and_its_successor_gets_shards_again() -> None:
    world = _calm()
    there = {key for key, slots in world.where().items() if slots == [1]}
    assert there
    ran = {shard for shard, owner in enumerate(world.map.owners) if owner.slot == 1}
    world.kill(1)
    world.slots[1].starts_at = world.now + 200
    world.run(10)
    assert world.settles(5) and not any(slots == [1] for slots in world.where().values())
    assert not any(world.map.owners[shard].moved for shard in ran), "containers of a lost slot were lost"
    world.run(400)
    assert {owner.slot for owner in world.map.owners} == {1, 2, 3}


@pytest.mark.parametrize(("cut_s", "moved", "restarted"), [(35, False, False), (45, False, True), (70, True, True)])
def test_a_slot_that_is_cut_off(cut_s: int, moved: bool, restarted: bool) -> None:
    world = _calm()
    before, slot = dict(world.where()), world.slots[1]
    world.log.clear()
    slot.cut_until = world.now + cut_s
    world.run(cut_s + 25)
    there = [key for key, slots in before.items() if slots == [1]]
    assert there and world.settles(5)
    assert any(world.where()[key] != [1] for key in there) is moved
    assert {what for _, what, _, key, _ in world.log if key in there} >= ({"started", "ended"} if restarted else set())
    assert bool([one for one in world.log if one[3] in there]) is restarted


def test_a_slot_that_does_not_carry_out_a_map_is_ended_after_a_minute() -> None:
    world = _calm()
    world.slots[1].paused_until = 10**9
    world.rng.random = lambda: 0.5  # its first process does not see it
    world.pool = replace(world.pool, drained=(1,))
    world.run(55)
    assert not world.ended_late and not world.is_moved_from(1)
    world.run(20)
    assert world.ended_late == [1] and world.settles(5) and world.is_moved_from(1)


def test_a_slot_of_which_nobody_knows_whether_it_acts_is_ended_and_keeps_its_shards_until_then() -> None:
    pool, size = Pool(2, 4, Size(4.0, 8 << 30)), Size(1.0, 1 << 30)
    known = Map(5, (Owner(1, 1, 2), Owner(1, 1, 2), Owner(2, 1, 2), Owner(2, 1, 2)))
    keeper, other = Keeper(), SlotView(1, 0, answer=Answer(1, 5))
    silent = {1: SlotView(0, 0, is_silent=True, answer=Answer(1, 5)), 2: other}
    found = keeper.decide(known, pool, silent, {0: size}, 100.0)
    assert (found.late, found.map) == ((1,), None)
    assert keeper.decide(known, pool, silent, {0: size}, 101.0).late == ()
    leaving = {1: SlotView(0, 0, answer=Answer(1, 5)), 2: other}
    assert Keeper().decide(known, pool, leaving, {0: size}, 100.0) == Decision()
    after = keeper.decide(known, pool, {1: SlotView(0, 1), 2: other}, {0: size}, 102.0).map
    assert after is not None and {owner.slot for owner in after.owners} == {2}


def test_a_pool_of_one_slot_comes_back_by_itself() -> None:
    world = _calm(slots=1)
    world.kill(1)
    world.run(30)
    assert world.settles(5)


def test_a_slot_that_is_drained_or_beyond_the_size_gives_all_shards_in_order() -> None:
    for smaller in ({"drained": (3,)}, {"slots": 2}):
        world = _calm()
        ran = {shard for shard, owner in enumerate(world.map.owners) if owner.slot == 3}
        world.pool = replace(world.pool, **smaller)
        world.run(30)
        assert world.settles(5) and world.is_moved_from(3)
        assert all(world.map.owners[shard].moved for shard in ran), "a planned move loses no container"


@pytest.mark.parametrize(
    ("cores", "rounds"),
    [
        pytest.param([1.0] * 4, [2], id="an empty slot beside a slot with several shards"),
        pytest.param([2.0] * 4, [2], id="an overloaded slot"),
        pytest.param([1.0], [], id="one shard cannot be spread"),
    ],
)
def test_a_slot_that_was_lifted_or_lost_is_filled_within_a_minute(cores: list[float], rounds: list[int]) -> None:
    pool, keeper = Pool(2, 8, Size(4.0, 8 << 30)), Keeper()
    view = {slot: SlotView(1, 0, answer=Answer(1, 99)) for slot in (1, 2)}
    known = Map(5, tuple(Owner(1 if shard < 4 else 2, 1, 2) for shard in range(8)))
    loads = {shard: Size(one, 1 << 20) for shard, one in enumerate(cores)}
    moved = list[int]()
    for second in range(60):
        found = keeper.decide(known, pool, view, loads, float(second)).map
        if found is not None:
            known = found
            moved += [sum(owner.to == 2 for owner in known.owners[:4])] if any(one.to for one in known.owners) else []
    assert moved == rounds
    assert [owner.slot for owner in known.owners[:4]].count(2) == sum(rounds)


def test_shards_of_new_topologies_go_to_the_slots_with_room_before_anybody_runs_them() -> None:
    pool, size = Pool(2, 8, Size(4.0, 8 << 30)), Size(1.0, 1 << 30)
    view = {slot: SlotView(1, 0, answer=Answer(1, 5)) for slot in (1, 2)}
    owners = tuple(Owner(1 if shard < 4 else 2, 1, 2) for shard in range(8))
    loads = dict.fromkeys(range(4), size)
    found = Keeper().decide(Map(5, owners), pool, view, loads, 0.0, frozenset(range(4))).map
    assert found is not None
    assert [owner.to for owner in found.owners[:4]].count(2) == 2


def test_a_shard_in_which_something_runs_moves_once_that_is_ready() -> None:
    pool, size = Pool(2, 4, Size(4.0, 8 << 30), drained=(1,)), Size(1.0, 1 << 30)
    known = Map(5, (Owner(1, 1, 2), Owner(1, 1, 2), Owner(2, 1, 2), Owner(2, 1, 2)))
    view = {slot: SlotView(1, 0, answer=Answer(1, 5)) for slot in (1, 2)}
    keeper = Keeper()
    first = keeper.decide(known, pool, view, {0: size}, 0.0, ready=())
    assert first.map is not None and [one.to for one in first.map.owners] == [0, 2, 0, 0], "nothing runs in the other"
    assert first.leaving == {0}
    again = keeper.decide(first.map, pool, view, {0: size}, 1.0, ready=())
    assert (again.map, again.leaving) == (None, {0})
    ready = keeper.decide(first.map, pool, view, {0: size}, 2.0, ready=(0,))
    assert ready.map is not None and ready.map.owners[0] == Owner(1, 1, 7, 2) and not ready.leaving
    lost = keeper.decide(first.map, pool, {1: SlotView(0, 1), 2: view[2]}, {0: size}, 3.0, ready=())
    assert lost.map is not None and lost.map.owners[0].slot == 2 and not lost.leaving, "it waits for nobody"


@given(st.lists(st.integers(0, 3), min_size=4, max_size=12), st.integers(0, 10))
@settings(max_examples=100, deadline=None)
def test_numbers_only_grow_and_a_shard_changes_only_when_it_was_let_go(slots: list[int], answered: int) -> None:
    pool = Pool(3, len(slots), Size(4.0, 8 << 30))
    known = Map(9, tuple(Owner(slot, 1 if slot else 0, 7, slot % 3 + 1 if slot else 0) for slot in slots))
    views = {slot: SlotView(1, 0, answer=Answer(1, answered)) for slot in (1, 2, 3)}
    found = Keeper().decide(known, pool, views, {}, 0.0).map
    after = found or known
    for old, new in zip(known.owners, after.owners, strict=True):
        if old.slot and answered < 7:
            assert new == old
        elif old != new:
            assert new.number == after.number == 10


def test_a_container_keeps_its_shard_and_the_master_lives_with_container_one() -> None:
    assert shard_of(("T", 0), 192) == shard_of(("T", 1), 192)
    assert shard_of(("T", 1), 192) == shard_of(("T", 1), 192) < 192
    assert len({shard_of((f"T{number}", 1), 192) for number in range(200)}) > 100
    spec = Spec("T", "T", "", {0: Size(1.0, 1), 1: Size(2.0, 2)})
    assert spec.loads(192) == {shard_of(("T", 1), 192): Size(3.0, 3)}


def test_a_damaged_document_is_named() -> None:
    pool = Pool(2, 8, Size(4.0, 8 << 30))
    assert unpack(Pool, pack(pool), "pool 'p'") == pool
    with pytest.raises(DamagedStateError, match="pool 'p' is damaged"):
        unpack(Pool, b"\xc1", "pool 'p'")


def test_what_slots_have_is_told() -> None:
    world = _calm()
    found = spread(world.map, world.loads(), world.pool)
    assert sum(count for count, _ in found.values()) == world.pool.shards
    assert any(share > 0 for _, share in found.values())
