"""Updates of a running topology: added, removed and moved tasks, rollback, resumption."""

from __future__ import annotations

import itertools

import pytest

from heronpy.common.errors import InvalidRpcError
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.tmaster import events
from heronpy.tmaster.events import Node, Persist
from heronpy.tmaster.figures import Figures
from heronpy.tmaster.update import middle_of, union_of
from tests.tmaster.checkpoint_world import CheckpointWorld
from tests.tmaster.tmaster_world import World, tasks_of, with_task, without_task


def ready_to_grow(world: World) -> plan_pb2.PackingPlan:
    target = world.packing()
    with_task(target, 3, 5)
    return target


def test_added_task_in_a_new_container() -> None:
    world = World().running()
    token = world.update(ready_to_grow(world), {"count": 3})
    assert world.life == control_pb2.LIFE_UPDATING
    assert Node.UPDATE in world.store
    assert tasks_of(world.store[Node.PACKING_PLAN]) == {1, 2, 3, 4, 5}
    assert tasks_of(world.sims[1].plan) == {1, 2, 3, 4}
    reply = world.answer(token).body
    assert (list(reply.added), list(reply.removed), reply.discarded_tuples) == ([5], [], 0)
    assert tasks_of(world.sims[1].plan) == {1, 2, 3, 4, 5}
    assert reply.plan_version == world.sims[3].plan.version
    assert Node.UPDATE not in world.store
    assert world.life == control_pb2.LIFE_RUNNING
    assert world.store[Node.PACKING_PLAN].version == 3


def resized(world: World, ram_bytes: int = 1 << 28) -> plan_pb2.PackingPlan:
    """The tasks of count get a limit."""
    target = world.packing()
    for task in (task for container in target.containers for task in container.instances):
        if task.component == "count":
            task.memory_limit_bytes = task.resource.ram_bytes = ram_bytes
    return target


@pytest.mark.parametrize("kind", [World, CheckpointWorld])
def test_other_sizes_in_the_same_places_restart_nothing_and_wait_for_nothing(kind: type[World]) -> None:
    world = kind().running()
    epochs = {task.status.task_id: task.status.epoch for task in world.tasks()}
    world.writes.clear()
    token = world.update(resized(world), {})
    reply = world.replies[token].body
    assert (list(reply.added), list(reply.removed)) == ([], []) and world.machine.operation is None
    assert world.writes[:2] == [Node.TOPOLOGY, Node.PACKING_PLAN] and Node.UPDATE not in world.store
    assert world.store[Node.PACKING_PLAN].version == 3
    assert world.machine.shared.book.memory_limits == {"word": 0, "count": 1 << 28}
    world.rounds(3)
    assert {task.status.task_id: task.status.epoch for task in world.tasks()} == epochs
    assert world.life == control_pb2.LIFE_RUNNING
    world.start_master()
    world.running()
    assert world.machine.shared.book.memory_limits["count"] == 1 << 28, "a successor knows it"
    late = world.update(resized(world, 1 << 29), {}, drain_s=0.0)
    assert world.answer(late).error is None


def test_removed_task_is_drained_first() -> None:
    world = World().running()
    target = world.packing()
    without_task(target, 4)
    world.task(4).status.in_queue_tuples = 10
    token = world.update(target, {"count": 1})
    world.rounds(5)
    assert tasks_of(world.sims[1].plan) == {1, 2, 3}
    assert 4 in world.sims[2].tasks and token not in world.replies
    world.task(4).status.in_queue_tuples = 0
    reply = world.answer(token).body
    assert list(reply.removed) == [4] and reply.discarded_tuples == 0
    world.round()
    assert 4 not in world.sims[2].tasks


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_splits_are_not_read_again_at_most_once(mode: str) -> None:
    """The added task of a SplitSpout read the splits that the other task had finished."""
    world = World()
    world.topology.topology_config.kvs.add(key="topology.reliability.mode", value=mode, type=1)
    world.topology.spouts[0].comp.traits.append("SplitSpout")
    world.start_master()
    world.running()
    target = world.packing()
    with_task(target, 3, 5, "word")
    error = world.answer(world.update(target, {"word": 3})).error
    rows = {row.name: row.not_scalable for row in Figures(world.machine, 0.0).reply(0, world.now).load.components}
    if mode == "ATLEAST_ONCE":
        assert not error and not any(rows.values())
        return
    assert type(error) is InvalidRpcError and str(error).startswith(
        "nothing was updated: spout word would read splits again, because"
    )
    assert rows["word"] in str(error) and not rows["count"] and Node.UPDATE not in world.store
    assert not world.answer(world.update(ready_to_grow(world), {"count": 3})).error


def test_what_a_removed_task_waited_for_is_forgotten() -> None:
    world = World().running()
    target = world.packing()
    without_task(target, 4)
    world.feed(events.OutageReported(world.machine.shared.registry.name_of(4), "store /data is full or read-only"))
    world.round()
    assert "is full" in world.status().cause
    world.answer(world.update(target, {"count": 1}))
    world.round()
    assert world.life == control_pb2.LIFE_RUNNING and world.status().cause == ""


def test_update_ends_while_everything_is_clamped() -> None:
    world = World().running()
    for sim in world.sims.values():
        sim.beat.clamped, sim.beat.queued_tuples = True, 1000
        sim.beat.culprits.add(component="count", task_id=4)
    world.task(4).status.in_queue_tuples = 70
    world.task(4).status.out_queue_tuples = 7
    target = world.packing()
    without_task(target, 4)
    token = world.update(target, {"count": 1}, drain_s=5)
    reply = world.answer(token).body
    assert reply.discarded_tuples == 77


def test_removed_container_leaves_the_plan_at_the_end() -> None:
    world = World(containers=3).running()
    target = world.packing()
    for task in [i.task_id for c in target.containers if c.id == 3 for i in c.instances]:
        without_task(target, task)
    left = tasks_of(target)
    parallel = {"word": len(left & {1, 2}), "count": len(left & {3, 4})}
    token = world.update(target, parallel)
    world.round()
    assert {r.container for r in world.sims[1].plan.stmgrs} == {1, 2, 3}
    assert list(world.answer(token).body.removed) == [3]
    assert {r.container for r in world.sims[1].plan.stmgrs} == {1, 2}
    world.rounds(2)
    assert set(world.sims) == {1, 2} and world.life == control_pb2.LIFE_RUNNING


def test_moved_task_starts_where_it_goes() -> None:
    world = World().running()
    target = world.packing()
    without_task(target, 4)
    with_task(target, 1, 4)
    token = world.update(target, {})
    world.answer(token)
    assert world.replies[token].body.plan_version == world.store[Node.PHYSICAL_PLAN].version
    assert {i.container for i in world.sims[1].plan.instances if i.task_id == 4} == {1}
    assert 4 in world.sims[1].tasks and 4 not in world.sims[2].tasks
    assert world.life == control_pb2.LIFE_RUNNING


def test_task_that_never_registers_rolls_the_update_back() -> None:
    world = World().running()
    world.unstartable = {5}
    token = world.update(ready_to_grow(world), {"count": 3})
    error = str(world.answer(token).error)
    assert "rolled back" in error and "container_3_count_5" in error
    assert tasks_of(world.store[Node.PACKING_PLAN]) == {1, 2, 3, 4}
    assert Node.UPDATE not in world.store
    world.rounds(3)
    assert world.life == control_pb2.LIFE_RUNNING and set(world.sims) == {1, 2}
    assert world.store[Node.TOPOLOGY] == world.machine.shared.book.topology


def test_task_that_cannot_initialise_rolls_back_at_once_also_after_the_switch() -> None:
    world = World().running()
    token = world.update(ready_to_grow(world), {"count": 3})
    world.reconcile()
    world.task(5).stuck = True
    world.rounds(2)
    assert tasks_of(world.sims[1].plan) == {1, 2, 3, 4, 5}
    started = world.now
    world.task(5).status.state = control_pb2.TASK_FAILED
    world.task(5).status.error = "ValueError: boom"
    error = str(world.answer(token).error)
    assert "container_3_count_5 cannot start: ValueError: boom" in error
    assert world.now - started < 5
    world.rounds(3)
    assert tasks_of(world.sims[1].plan) == {1, 2, 3, 4}
    assert world.life == control_pb2.LIFE_RUNNING
    # The id of the task that did not make it is never used again.
    assert world.store[Node.PACKING_PLAN].next_task_id == 6


def test_stuck_task_rolls_back_after_the_switch() -> None:
    world = World().running()
    token = world.update(ready_to_grow(world), {"count": 3})
    world.task(2).stuck = True
    error = str(world.answer(token).error)
    assert "did not apply the new plan: container_2_word_2" in error


def test_wrong_updates_do_not_begin() -> None:
    world = World().running()
    before = dict(world.store)
    target = ready_to_grow(world)
    message = control_pb2.UpdateTopology(topology=world.store[Node.TOPOLOGY], packing_plan=target, expected_version=9)
    token = world.request(events.UpdateRequested, message)
    assert str(world.replies[token].error) == "the packing plan has changed; run update again"
    twice = world.packing()
    with_task(twice, 1, 4)
    assert world.replies[world.update(twice, {"count": 3})].error
    assert world.replies[world.update(world.packing(), {"count": 3})].error
    other = world.packing()
    other.containers[0].instances[0].component = "count"
    assert world.replies[world.update(other, {"count": 3, "word": 1})].error
    assert world.store == before
    token = world.update(world.packing(), {})
    assert world.replies[token].body.plan_version == 2


def test_update_excludes_other_operations() -> None:
    world = World().running()
    world.unstartable = {5}
    first = world.update(ready_to_grow(world), {"count": 3})
    for token in (
        world.update(ready_to_grow(world), {"count": 3}),
        world.request(events.StateRequested, False),
        world.request(events.RestartRequested, -1, 0),
        world.request(events.ConfigRequested, ("a:b",)),
    ):
        assert str(world.replies[token].error) == "update of wc is running; try again when it is done"
    assert world.answer(first).error


def test_update_while_starting_or_failed_is_refused() -> None:
    world = World()
    assert "still starting" in str(world.replies[world.update(world.packing(), {})].error)
    world.running()
    world.sims[1].failed["stmgr-1"] = control_pb2.ProcessRecord(
        name="stmgr-1", kind=control_pb2.PROCESS_STMGR, state=control_pb2.PROC_FAILED, exit_reason="crashed"
    )
    world.round()
    assert "has failed (stmgr-1 failed: crashed)" in str(world.replies[world.update(world.packing(), {})].error)


@pytest.mark.parametrize("rounds", range(8))
@pytest.mark.parametrize("broken", [False, True])
def test_update_survives_the_master(rounds: int, broken: bool) -> None:
    world = World().running()
    target = ready_to_grow(world)
    without_task(target, 4)
    world.task(4).status.in_queue_tuples = 3
    if broken:
        world.unstartable = {5}
    world.update(target, {"count": 2}, drain_s=4)
    world.rounds(rounds, 0.5)
    world.start_master()
    world.until(lambda: Node.UPDATE not in world.store and world.life == control_pb2.LIFE_RUNNING, 200)
    world.rounds(3)
    expected = {1, 2, 3, 4} if broken else {1, 2, 3, 5}
    assert tasks_of(world.store[Node.PACKING_PLAN]) == expected
    assert tasks_of(world.store[Node.PHYSICAL_PLAN]) == expected
    assert {t for sim in world.sims.values() for t in sim.tasks} == expected


@pytest.mark.parametrize("survives", range(8))
def test_update_survives_a_crash_between_any_two_writes(survives: int) -> None:
    """Kill the master before one of its writes; the successor always ends in one of the two."""
    world = World().running()
    target = ready_to_grow(world)
    without_task(target, 4)
    store, writes = world.persist, itertools.count()

    def store_or_die(effect: Persist) -> None:
        if next(writes) == survives:
            raise RuntimeError("killed")
        store(effect)

    world.persist = store_or_die  # type: ignore[method-assign]
    try:
        world.update(target, {"count": 2})
        world.rounds(8)
    except RuntimeError:
        world.start_master()
    world.until(lambda: Node.UPDATE not in world.store and world.life == control_pb2.LIFE_RUNNING)
    world.rounds(3)
    assert tasks_of(world.store[Node.PACKING_PLAN]) == tasks_of(world.store[Node.PHYSICAL_PLAN])
    # Only before the intent is stored is there nothing to finish.
    assert tasks_of(world.store[Node.PACKING_PLAN]) == ({1, 2, 3, 5} if survives else {1, 2, 3, 4})


def test_intent_of_an_earlier_topology_is_dropped() -> None:
    world = World()
    old = topology_pb2.Topology()
    old.CopyFrom(world.topology)
    old.id = "wc-0"
    world.store[Node.UPDATE] = plan_pb2.UpdateIntent(old_topology=old, new_topology=old)
    world.start_master()
    assert Node.UPDATE not in world.store
    world.running()


def test_stream_manager_restarts_during_an_update() -> None:
    world = World().running()
    target = ready_to_grow(world)
    without_task(target, 4)
    world.task(4).status.in_queue_tuples = 3
    token = world.update(target, {"count": 2}, drain_s=6)
    for _ in range(5):
        world.sims[1].restart([world.sims[1].name])
        world.round()
    reply = world.answer(token)
    assert reply.body is not None and reply.body.discarded_tuples == 3


def test_union_and_middle() -> None:
    world = World()
    old, target = world.packing(), world.packing()
    without_task(target, 4)
    with_task(target, 1, 4)
    without_task(target, 3)
    with_task(target, 3, 7)
    assert tasks_of(union_of(old, target)) == {1, 2, 3, 4, 7}
    middle = middle_of(old, target)
    assert tasks_of(middle) == {1, 2, 4, 7}
    assert {c.id for c in middle.containers} == {1, 2, 3}
    assert 4 in {i.task_id for c in middle.containers if c.id == 2 for i in c.instances}
