"""The topology master's machine under everything at once, in any order.

`World.feed` calls `validate()` after every event and checks that nothing is sent before it is stored
and nothing answered twice. At the end the faults stop, and the topology must come to rest.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heronpy.proto import control_pb2
from heronpy.tmaster import events
from heronpy.tmaster.events import Node
from heronpy.tmaster.planbook import placement, placement_of_plan
from tests.tmaster.tmaster_world import World, tasks_of, with_task, without_task

ACTIONS = (
    "beat",
    "beat",
    "beat",
    "executor",
    "round",
    "tick",
    "long_tick",
    "restart_stmgr",
    "restart_task",
    "silence",
    "stuck",
    "late_beat",
    "stale_beat",
    "register",
    "activate",
    "deactivate",
    "restart_request",
    "update",
    "config",
    "master",
    "busy",
    "exhaust",
    "fail",
    "exception",
    "send_failed",
)


def random_update(world: World, rng: random.Random) -> int:
    target = world.packing()
    count = {i.component: 0 for c in target.containers for i in c.instances}
    task = max(target.next_task_id, max(tasks_of(target)) + 1)
    kind = rng.choice(("add", "remove", "move", "both"))
    bolts = sorted(i.task_id for c in target.containers for i in c.instances if i.component == "count")
    if kind in ("remove", "both") and len(bolts) > 1:
        without_task(target, rng.choice(bolts))
    if kind == "move":
        without_task(target, bolts[0])
        with_task(target, rng.randint(1, 4), bolts[0])
    if kind in ("add", "both"):
        with_task(target, rng.randint(1, 4), task)
    if rng.random() < 0.3:
        world.unstartable.add(task)
    for container in target.containers:
        for instance in container.instances:
            count[instance.component] += 1
    return world.update(target, count, drain_s=rng.choice((0.5, 5.0)))


def act(world: World, action: str, rng: random.Random, asked: dict[int, int]) -> None:
    world.reconcile()
    sim = rng.choice(list(world.sims.values()))
    task = rng.choice(list(sim.tasks.values()) or world.tasks())
    if action == "beat":
        sim.heartbeat()
    elif action == "executor":
        sim.executor_beat()
    elif action == "round":
        world.round(rng.choice((0.01, 1.0)))
    elif action in ("tick", "long_tick"):
        world.tick(rng.random() if action == "tick" else 30.0)
    elif action == "restart_stmgr":
        sim.restart([sim.name])
    elif action == "restart_task":
        sim.restart([f"container_{sim.container}_{task.status.component}_{task.status.task_id}"])
    elif action == "silence":
        sim.silent = not sim.silent
    elif action == "stuck":
        task.stuck = not task.stuck
    elif action in ("late_beat", "stale_beat"):
        epoch = sim.epoch if action == "late_beat" else max(0, sim.epoch - 1)
        late = control_pb2.StmgrHeartbeat(stmgr_id=sim.name, epoch=epoch, plan_version=rng.randint(0, 1))
        # A stream manager may tell of an earlier incarnation of a task, never of a later one.
        past = rng.randint(0, task.status.epoch)
        late.tasks.add(task_id=task.status.task_id, epoch=past, state=rng.randint(0, 6))
        world.feed(events.StmgrBeat(sim.peer, late))
    elif action == "register":
        sim.register()
    elif action in ("activate", "deactivate"):
        asked[world.request(events.StateRequested, action == "activate")] = world.epoch
    elif action == "restart_request":
        container = rng.choice((-1, 0, 1, 2, 9))
        component = rng.choice(("", "count", "nobody"))
        moved = rng.choice(((), (), (1,), (1, 2), (9,)))
        asked[world.request(events.RestartRequested, container, rng.choice((0, 1, 9)), component, moved)] = world.epoch
    elif action == "update":
        asked[random_update(world, rng)] = world.epoch
    elif action == "config":
        asked[world.request(events.ConfigRequested, (f"a:{rng.random()}",))] = world.epoch
    elif action == "master":
        world.start_master()
    elif action == "busy":
        task.status.in_queue_tuples = rng.choice((0, 5))
        task.status.executed += 1
    elif action == "exhaust" and task.spout and rng.random() < 0.2:
        task.status.state = control_pb2.TASK_EXHAUSTED
    elif action == "fail" and rng.random() < 0.3:
        task.status.state = control_pb2.TASK_FAILED
    elif action == "exception":
        world.feed(events.ExceptionsReported((control_pb2.ExceptionReport(task_id=1, startup=True),)))
    elif action == "send_failed":
        world.feed(events.SendFailed(sim.peer, control_pb2.FinishTasks(task_ids=[1, 3])))


def heal(world: World) -> None:
    world.reconcile()
    for sim in world.sims.values():
        sim.silent = False
        sim.failed.clear()
        for task in sim.tasks.values():
            task.stuck = False
            task.status.in_queue_tuples = 0
            if task.status.state == control_pb2.TASK_FAILED:
                task.status.state = control_pb2.TASK_STARTING


#: What Hypothesis draws.
DRAWN = {
    "actions": st.lists(st.sampled_from(ACTIONS), max_size=80),
    "seed": st.integers(0, 2**32),
    "containers": st.integers(1, 3),
}


@pytest.mark.parametrize("examples", [15, pytest.param(150, marks=pytest.mark.heavy)])
def test_any_order_of_events_keeps_the_invariants_and_comes_to_rest(examples: int) -> None:
    tried = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    tried(given(**DRAWN)(any_order))()


def any_order(actions: list[str], seed: int, containers: int) -> None:
    world, rng, asked = World(containers=containers), random.Random(seed), dict[int, int]()
    for action in actions:
        act(world, action, rng, asked)
    for _ in range(200):
        heal(world)
        world.round()
    assert world.machine.operation is None
    unanswered = [t for t, epoch in asked.items() if epoch == world.epoch and t not in world.replies]
    assert not unanswered
    assert Node.UPDATE not in world.store and not world.machine.shared.book.held_to_empty
    shown = placement_of_plan(world.store[Node.PHYSICAL_PLAN])
    assert shown == placement(world.store[Node.PACKING_PLAN])
    assert world.store[Node.PHYSICAL_PLAN].topology == world.store[Node.TOPOLOGY]
    calm = (
        control_pb2.LIFE_RUNNING,
        control_pb2.LIFE_PAUSED,
        control_pb2.LIFE_FINISHING,
        control_pb2.LIFE_FINISHED,
    )
    assert world.life in calm, world.status().cause
    assert {sim.plan.version for sim in world.sims.values()} == {world.store[Node.PHYSICAL_PLAN].version}
    writes = len(world.writes)
    world.rounds(5)
    assert len(world.writes) == writes
