"""Containers that their scheduler moves: nothing is needed of them when they end, and the spouts wait until they are back."""

from __future__ import annotations

from heronpy.proto import control_pb2
from heronpy.tmaster import events
from tests.tmaster.checkpoint_world import CheckpointWorld
from tests.tmaster.test_tmaster_emptying import held, losing, started


def test_a_move_is_answered_when_the_topology_is_empty_and_loses_nothing() -> None:
    world = started()
    world.sims[1].beat.queued_tuples = 20
    token = world.request(events.RestartRequested, 0, 0, "", (2,))
    world.rounds(3)
    assert held(world) and token not in world.replies
    world.sims[1].beat.queued_tuples = 0
    assert world.answer(token).body.text == "it is empty" and world.sims[2].epoch == 1
    world.rounds(3)
    assert held(world), "until the container is back"
    busy = world.request(events.RestartRequested, 0, 3)
    assert "move of container 2 of wc is running" in str(world.answer(busy).error)
    world.sims[2].restart([])
    world.until(lambda: not held(world), 20)
    assert world.life == control_pb2.LIFE_RUNNING and not losing(world).lost_unknown


def test_with_checkpoints_the_answer_waits_for_one_that_the_moved_tasks_restore() -> None:
    world = CheckpointWorld()
    world.until(lambda: world.life == control_pb2.LIFE_RUNNING, 60)
    before = world.log.completed
    token = world.request(events.RestartRequested, 0, 0, "", (1,))
    assert world.answer(token).body.text == "a checkpoint exists"
    assert world.log.completed == before + 1 and held(world)
    world.sims[1].restart([])
    world.until(lambda: not held(world) and world.life == control_pb2.LIFE_RUNNING, 60)
    assert {region.checkpoint for region in world.regions()} == {world.log.complete[-1].checkpoint}


def test_a_move_that_never_comes_or_cannot_be_prepared_holds_the_spouts_for_a_time_only() -> None:
    world = started()
    assert world.answer(world.request(events.RestartRequested, 0, 0, "", (2,))).error is None
    world.until(lambda: not held(world), 200)
    world.sims[1].silent = True
    world.until(lambda: world.life == control_pb2.LIFE_DEGRADED, 60)
    token = world.request(events.RestartRequested, 0, 0, "", (2,))
    assert "not all tasks of" in world.answer(token).body.text and not held(world)
    exact = CheckpointWorld()
    exact.until(lambda: exact.life == control_pb2.LIFE_RUNNING, 60)
    exact.mute = {1}
    assert exact.answer(exact.request(events.RestartRequested, 0, 0, "", (1,))).error is None
