"""Spouts are held until every task of every sink has been ready once, and not again when one restarts."""

from __future__ import annotations

from heronpy.proto import control_pb2, plan_pb2
from heronpy.tmaster import events
from heronpy.tmaster.events import Node
from tests.tmaster.checkpoint_world import CheckpointWorld
from tests.tmaster.tmaster_world import SimTask, World

SPARK = "Spark is starting"


def sinks(world: World) -> list[SimTask]:
    return [task for task in world.tasks() if task.status.component == "count"]


def say(world: World, text: str, waited_s: float = 0.0) -> None:
    for task in sinks(world):
        task.status.waiting_for, task.status.waiting_s = text, waited_s


def shown(world: World) -> plan_pb2.PhysicalPlan:
    return world.store[Node.PHYSICAL_PLAN]


def waiting(kind: type[World] = World) -> World:
    """Everything has initialised, and the sinks wait for Spark."""
    world = kind(asking="count")
    world.reconcile()
    say(world, SPARK)
    world.until(lambda: world.life == control_pb2.LIFE_WAITING, 20)
    return world


def test_bolts_that_do_not_ask_are_ready_when_they_have_initialised() -> None:
    world = World()
    sinks(world)[0].stuck = True
    world.rounds(3)
    assert world.life == control_pb2.LIFE_STARTING and shown(world).spouts_held
    sinks(world)[0].stuck = False
    world.until(lambda: world.life == control_pb2.LIFE_RUNNING, 5)
    assert not shown(world).spouts_held and shown(world).version == 2


def test_spouts_are_held_until_the_last_task_is_ready() -> None:
    world = waiting()
    assert shown(world).spouts_held
    say(world, SPARK, waited_s=12.2)
    world.round(0.0)
    assert world.status().cause == f"{SPARK}, 12 s"
    first, last = sinks(world)
    first.status.ClearField("waiting_for")
    world.rounds(3)
    assert world.life == control_pb2.LIFE_WAITING and shown(world).spouts_held
    last.status.ClearField("waiting_for")
    world.until(lambda: world.life == control_pb2.LIFE_RUNNING, 5)
    assert not shown(world).spouts_held and world.status().cause == ""


def test_the_time_goes_on_between_two_heartbeats() -> None:
    world = waiting()
    say(world, SPARK, waited_s=5.0)
    world.round(0.0)
    world.now += 0.9
    assert world.status().cause == f"{SPARK}, 6 s"


def test_different_reasons_are_all_told() -> None:
    world = waiting()
    sinks(world)[0].status.waiting_for = "the index is loading"
    world.round(0.0)
    assert world.status().cause == f"{SPARK}, 0 s; the index is loading, 0 s"


def test_tasks_that_have_not_initialised_are_waited_for_as_ever() -> None:
    world = World(asking="count")
    say(world, SPARK)
    sinks(world)[0].stuck = True
    world.rounds(3)
    assert world.life == control_pb2.LIFE_STARTING


def test_a_sink_that_restarts_alone_stops_no_spout() -> None:
    world = waiting()
    say(world, "")
    world.until(lambda: world.life == control_pb2.LIFE_RUNNING, 5)
    name = next(task.status.task_id for task in sinks(world))
    world.sims[1].restart([f"container_1_count_{name}"])
    say(world, SPARK)
    world.rounds(3)
    assert world.life == control_pb2.LIFE_RUNNING and not shown(world).spouts_held


def test_a_successor_of_the_master_neither_forgets_the_hold_nor_makes_one() -> None:
    world = waiting()
    world.start_master()
    world.rounds(3)
    assert world.life == control_pb2.LIFE_WAITING and shown(world).spouts_held
    say(world, "")
    world.until(lambda: world.life == control_pb2.LIFE_RUNNING, 5)
    say(world, SPARK)
    world.start_master()
    world.rounds(3)
    assert world.life == control_pb2.LIFE_RUNNING and not shown(world).spouts_held


def test_a_restart_of_everything_waits_for_the_new_tasks() -> None:
    world = waiting()
    say(world, "")
    world.until(lambda: world.life == control_pb2.LIFE_RUNNING, 5)
    world.request(events.RestartRequested, -1, 0)
    say(world, SPARK)
    world.rounds(4)
    assert world.life == control_pb2.LIFE_WAITING and shown(world).spouts_held
    say(world, "")
    world.until(lambda: world.life == control_pb2.LIFE_RUNNING, 5)


def test_a_restart_of_one_container_holds_nothing() -> None:
    world = waiting()
    say(world, "")
    world.until(lambda: world.life == control_pb2.LIFE_RUNNING, 5)
    world.request(events.RestartRequested, 1, 0)
    say(world, SPARK)
    world.rounds(4)
    assert world.life == control_pb2.LIFE_RUNNING


def test_old_tasks_that_are_about_to_go_cannot_end_the_hold() -> None:
    world = waiting()
    say(world, "")
    world.until(lambda: world.life == control_pb2.LIFE_RUNNING, 5)
    world.machine.readiness.hold(world.now, world.machine.shared.book.asking)
    world.rounds(3)
    assert shown(world).spouts_held, "what is ready is about to be replaced"
    for sim in world.sims.values():
        sim.restart([])
    world.until(lambda: world.life == control_pb2.LIFE_RUNNING, 10)


def test_a_paused_topology_waits_too() -> None:
    world = World(asking="count", active=False)
    say(world, SPARK)
    world.until(lambda: world.life == control_pb2.LIFE_WAITING, 20)
    say(world, "")
    world.until(lambda: world.life == control_pb2.LIFE_PAUSED, 5)


def test_with_checkpoints_a_rewind_holds_until_the_new_attempt_is_ready() -> None:
    world = waiting(CheckpointWorld)
    say(world, "")
    world.until(lambda: world.life == control_pb2.LIFE_RUNNING, 10)
    world.until(lambda: bool(world.machine.checkpoints_reply(world.now).complete), 40)
    world.request(events.RewindRequested, 0)
    assert world.machine.shared.book.spouts_held
    world.until(lambda: world.life == control_pb2.LIFE_RUNNING, 40)
    assert not shown(world).spouts_held
