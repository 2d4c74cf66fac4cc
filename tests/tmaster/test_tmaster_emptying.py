"""A container restarts in order when the topology has run empty, and its stream manager then takes nothing along."""

from __future__ import annotations

from typing import Any

from heronpy.proto import control_pb2
from heronpy.tmaster import events
from heronpy.tmaster.events import Node
from heronpy.tmaster.operations import NO_PROGRESS_S
from heronpy.tmaster.totals import Totals
from tests.tmaster.checkpoint_world import CheckpointWorld
from tests.tmaster.tmaster_world import World


def held(world: World) -> bool:
    return bool(world.store[Node.PHYSICAL_PLAN].spouts_held)


def losing(world: World) -> control_pb2.TupleTotals:
    """Its totals, if spouts do not send again."""
    totals: control_pb2.TupleTotals = world.status().totals
    return totals


def started(**settings: Any) -> World:
    world = World(**settings).running()
    world.until(lambda: not held(world), 5)
    world.rounds(2)
    return world


def test_the_spouts_wait_until_the_topology_is_empty_and_nothing_is_lost() -> None:
    world = started()
    world.sims[1].beat.queued_tuples = left = 20
    token = world.request(events.RestartRequested, 2, 0)
    for _ in range(10):  # it takes longer than a queue without progress may
        left -= 1
        world.sims[1].beat.queued_tuples = left
        world.round()
        assert held(world) and world.sims[2].epoch == 1 and token not in world.replies
    world.sims[1].beat.queued_tuples = 0
    assert world.answer(token).body.text == "restarted container 2: 2 tasks back"
    assert world.sims[2].epoch == 2
    world.until(lambda: not held(world), 5)
    assert not losing(world).lost_estimated and not losing(world).lost_unknown
    world.sims[2].restart([])
    world.until(lambda: losing(world).lost_unknown, 5)


def test_queues_that_do_not_run_empty_hold_it_up_for_a_moment_only() -> None:
    world = started()
    world.sims[1].beat.queued_tuples = 20
    begun = world.now
    token = world.request(events.RestartRequested, 2, 0)
    assert world.answer(token).body.text == "restarted container 2: 2 tasks back; queues were not empty before"
    assert world.now - begun < NO_PROGRESS_S + 8
    assert losing(world).lost_unknown and not held(world)


def test_the_spouts_go_on_when_a_restart_fails_and_a_later_death_is_a_loss() -> None:
    world = started()
    world.task(4).stuck = True
    token = world.request(events.RestartRequested, 2, 0)
    assert "did not start again" in str(world.answer(token).error)
    world.until(lambda: not held(world), 5)
    world.task(4).stuck = False
    assert not losing(world).lost_unknown
    world.sims[2].restart([])
    world.until(lambda: losing(world).lost_unknown, 5)


def test_what_is_down_already_restarts_at_once() -> None:
    world = started()
    world.sims[1].silent = True
    world.until(lambda: world.life == control_pb2.LIFE_DEGRADED, 60)
    epoch = world.sims[2].epoch
    world.request(events.RestartRequested, 2, 0)
    assert world.sims[2].epoch == epoch + 1 and not held(world)


def test_a_restart_of_tasks_or_of_the_master_or_with_checkpoints_empties_nothing() -> None:
    world = started()
    version = world.store[Node.PHYSICAL_PLAN].version
    for target in ((0, 3), (0, 0)):
        assert world.answer(world.request(events.RestartRequested, *target)).error is None
    assert world.store[Node.PHYSICAL_PLAN].version == version
    exact = CheckpointWorld()
    exact.until(lambda: exact.life == control_pb2.LIFE_RUNNING, 60)
    exact.request(events.RestartRequested, 1, 0)
    assert not exact.machine.shared.book.held_to_empty


def test_a_stream_manager_that_has_told_all_that_it_held_leaves_nothing_uncounted() -> None:
    totals = Totals()
    totals.take_stmgr("stmgr-1", 1, 2, 2)
    changes = totals.changes
    totals.take_stmgr("stmgr-1", 1, 2, 2, ends=True)
    assert totals.changes > changes, "it is written for a successor"
    totals = Totals.of(control_pb2.TotalsLedger.FromString(totals.ledger("id").SerializeToString()), "id")
    totals.take_stmgr("stmgr-1", 2)
    found = totals.summed()
    assert (found.lost, found.lost_estimated, found.lost_unknown) == (2, False, False)
    totals.take_stmgr("stmgr-1", 2, 9, 7, ends=True)
    totals.take_stmgr("stmgr-1", 3)
    found = totals.summed()
    assert (found.lost, found.lost_estimated, found.lost_unknown) == (9, True, False), "a peer may have had some"
    totals.take_stmgr("stmgr-1", 4)
    assert totals.summed().lost_unknown, "this one was killed"
