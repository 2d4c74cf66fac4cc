"""The topology master's machine: registration, liveness, lifecycle, requests."""

from __future__ import annotations

import pytest

from heronpy.common.setting_types import TmasterSettings
from heronpy.plan.component_config import live_concurrency
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.tmaster import events
from heronpy.tmaster.events import Node, Persist, Send
from heronpy.tmaster.machine import PLAN_VERSION_MAX, TopologyMaster
from tests.tmaster.tmaster_world import World, make_packing, make_topology


def test_plan_is_made_when_every_stream_manager_is_in_and_stored_before_it_is_sent() -> None:
    world = World()
    world.sims[1].register()
    assert Node.PHYSICAL_PLAN not in world.store
    assert "stmgr-2" in world.status().cause
    world.sims[2].register()
    assert world.store[Node.PHYSICAL_PLAN].version == 1
    assert world.sims[1].plan is not None and world.sims[2].plan is not None
    world.running()
    assert world.status().cause == ""
    assert len(world.status().tasks) == 4


def test_missing_stream_manager_is_named_after_the_start_timeout() -> None:
    world = World(containers=3)
    world.sims[2].silent = True
    world.rounds(61)
    status = world.status()
    assert status.lifecycle == control_pb2.LIFE_STARTING
    assert "still starting after 60 s" in status.cause and "stmgr-2" in status.cause
    assert "stmgr-1" not in status.cause


def test_task_that_does_not_initialise_is_named() -> None:
    world = World()
    world.task(3).stuck = True
    world.rounds(62)
    assert world.life == control_pb2.LIFE_STARTING
    assert "container_1_count_3" in world.status().cause
    assert "container_2_count_4" not in world.status().cause


def test_steady_state_writes_nothing_and_sends_no_plan() -> None:
    world = World().running()
    writes, seen = len(world.writes), world.sims[1].plans_seen
    world.rounds(100)
    assert len(world.writes) == writes
    assert world.sims[1].plans_seen == seen


def test_restarted_stream_manager_gives_a_new_plan_to_all() -> None:
    world = World().running()
    world.sims[1].restart([world.sims[1].name])
    world.round()
    world.tick(0.1)
    assert world.sims[2].plan.version == 3
    assert {r.epoch for r in world.sims[2].plan.stmgrs if r.id == "stmgr-1"} == {2}


def test_many_restarts_at_once_make_one_plan() -> None:
    world = World(containers=4).running()
    for sim in world.sims.values():
        sim.restart([sim.name])
    for sim in world.sims.values():
        sim.register()
    world.tick(0.1)
    assert world.store[Node.PHYSICAL_PLAN].version == 3


def test_equal_registration_is_answered_with_the_current_plan() -> None:
    world = World().running()
    world.sims[1].plan = None
    world.sims[1].register()
    assert world.sims[1].plan.version == 2
    assert world.store[Node.PHYSICAL_PLAN].version == 2


def test_stale_epochs_are_refused_or_ignored() -> None:
    world = World().running()
    sim = world.sims[1]
    sim.restart([sim.name])
    world.rounds(2)
    sim.epoch = 1
    old = world.ask(events.StmgrRegistered, b"zombie", control_pb2.RegisterStmgr(stmgr=sim.record()))
    assert "stmgr-1 of epoch 1 was replaced by epoch 2" in str(old.error)
    before = world.machine.shared.registry.stmgrs["stmgr-1"].last_seen
    world.now += 1
    world.feed(events.StmgrBeat(b"zombie", control_pb2.StmgrHeartbeat(stmgr_id="stmgr-1", epoch=1)))
    assert world.machine.shared.registry.stmgrs["stmgr-1"].last_seen == before
    world.ask(events.ExecutorRegistered, b"x1", control_pb2.RegisterExecutor(container=1, epoch=5))
    older = world.ask(events.ExecutorRegistered, b"x", control_pb2.RegisterExecutor(container=1, epoch=4))
    assert "was replaced by epoch 5" in str(older.error)


def test_stranger_is_refused() -> None:
    world = World()
    record = plan_pb2.StmgrRecord(id="stmgr-9", container=9, epoch=1)
    reply = world.ask(events.StmgrRegistered, b"s9", control_pb2.RegisterStmgr(stmgr=record))
    assert "stmgr-9" in str(reply.error) and "packing plan" in str(reply.error)


def test_restarted_master_keeps_the_plan() -> None:
    world = World().running()
    before = world.store[Node.PHYSICAL_PLAN]
    world.start_master()
    assert world.life == control_pb2.LIFE_STARTING
    world.running()
    assert world.store[Node.PHYSICAL_PLAN] == before
    assert world.status().tmaster_epoch == 2


def test_restarted_master_replaces_changed_addresses() -> None:
    world = World().running()
    world.start_master()
    world.sims[2].restart([world.sims[2].name])
    world.rounds(4)
    assert world.store[Node.PHYSICAL_PLAN].version == 3
    assert world.sims[1].plan.version == 3


def test_plan_that_the_state_manager_lost_is_not_numbered_again() -> None:
    world = World().running()
    world.request(events.StateRequested, False)
    world.rounds(2)
    del world.store[Node.PHYSICAL_PLAN]
    world.start_master()
    world.rounds(4)
    assert world.store[Node.PHYSICAL_PLAN].version == 5
    assert world.sims[1].plan.version == 5


def test_old_plan_in_a_heartbeat_is_answered_with_the_plan() -> None:
    world = World().running()
    world.sims[1].plan = None
    world.rounds(2)
    assert world.sims[1].plan.version == 2


def test_silent_stream_manager_is_lost_and_found() -> None:
    world = World().running()
    world.sims[2].silent = True
    world.rounds(12)
    status = world.status()
    assert status.lifecycle == control_pb2.LIFE_DEGRADED
    assert status.cause.endswith("no heartbeat from stmgr-2")
    lost = {t.task_id for t in status.tasks if t.state == control_pb2.TASK_LOST}
    assert lost == set(world.sims[2].tasks)
    assert "stmgr-2 has been silent" in next(t.error for t in status.tasks if t.task_id in lost)
    world.sims[2].silent = False
    world.round()
    assert world.status().cause == ""
    assert not any(t.state == control_pb2.TASK_LOST for t in world.status().tasks)


def test_task_that_is_not_connected_is_lost() -> None:
    world = World().running()
    del world.sims[1].tasks[1]
    world.sims[1].heartbeat()
    status = next(t for t in world.status().tasks if t.task_id == 1)
    assert status.state == control_pb2.TASK_LOST and "not connected to stmgr-1" in status.error


def startup_exception(task: int) -> control_pb2.ExceptionReport:
    return control_pb2.ExceptionReport(
        process=f"container_1_count_{task}",
        task_id=task,
        component="count",
        type="ValueError",
        message="boom",
        traceback="Traceback (most recent call last):\n  File ...\nValueError: boom\n",
        startup=True,
    )


def test_startup_failure_fails_the_topology_with_the_last_line() -> None:
    world = World()
    world.task(3).stuck = True
    world.rounds(2)
    world.sims[1].failed["container_1_count_3"] = control_pb2.ProcessRecord(
        name="container_1_count_3",
        kind=control_pb2.PROCESS_TASK,
        task_id=3,
        state=control_pb2.PROC_FAILED,
        exit_reason="startup_failure",
        exit=control_pb2.EXIT_STARTUP_FAILURE,
    )
    world.feed(events.ExceptionsReported((startup_exception(3),)))
    world.round()
    status = world.status()
    assert status.lifecycle == control_pb2.LIFE_FAILED
    assert status.cause == "container_1_count_3 failed: ValueError: boom"
    assert [e.task_id for e in status.startup_exceptions] == [3]


def test_failed_task_status_fails_and_a_new_incarnation_heals() -> None:
    world = World()
    task = world.task(3)
    task.status.state, task.status.error = control_pb2.TASK_FAILED, "no module named x"
    world.rounds(2)
    assert world.life == control_pb2.LIFE_FAILED
    assert "container_1_count_3 failed: no module named x" in world.status().cause
    world.sims[1].restart(["container_1_count_3"])
    world.rounds(2)
    assert world.life == control_pb2.LIFE_RUNNING


def test_spent_budget_after_start_fails_but_the_rest_runs() -> None:
    world = World().running()
    world.sims[1].failed["container_1_word_1"] = control_pb2.ProcessRecord(
        name="container_1_word_1",
        kind=control_pb2.PROCESS_TASK,
        task_id=1,
        state=control_pb2.PROC_FAILED,
        exit_reason="oom",
        exit=control_pb2.EXIT_OOM,
        restarts=10,
    )
    world.round()
    assert world.life == control_pb2.LIFE_FAILED
    assert "container_1_word_1 failed: oom after 10 restarts" in world.status().cause
    assert world.sims[1].plan.topology.state == topology_pb2.RUNNING


def test_deactivate_and_activate_wait_for_every_spout_and_are_idempotent() -> None:
    world = World().running()
    first = world.request(events.StateRequested, False)
    assert first not in world.replies
    second = world.request(events.StateRequested, False)
    world.sims[1].heartbeat()
    assert first not in world.replies
    world.sims[2].heartbeat()
    assert world.replies[first].body.text == "wc is inactive" == world.replies[second].body.text
    assert world.life == control_pb2.LIFE_PAUSED
    assert world.store[Node.TOPOLOGY].state == topology_pb2.PAUSED
    third = world.request(events.StateRequested, False)
    assert world.replies[third].body.text == "wc is already inactive"
    assert world.store[Node.PHYSICAL_PLAN].version == 3
    fourth = world.request(events.StateRequested, True)
    assert world.answer(fourth).body.text == "wc is active"
    assert world.life == control_pb2.LIFE_RUNNING


def test_deactivation_that_a_spout_does_not_follow_ends_with_its_name() -> None:
    world = World().running()
    world.task(2).stuck = True
    token = world.request(events.StateRequested, False)
    other = world.request(events.StateRequested, True)
    assert str(world.replies[other].error) == "deactivate of wc is running; try again when it is done"
    error = str(world.answer(token).error)
    assert "container_2_word_2" in error and "container_1_word_1" not in error


def test_state_survives_a_master_that_died_between_its_writes() -> None:
    world = World().running()
    paused = topology_pb2.Topology()
    paused.CopyFrom(world.store[Node.TOPOLOGY])
    paused.state = topology_pb2.PAUSED
    world.store[Node.TOPOLOGY] = paused
    world.start_master()
    world.rounds(3)
    assert world.store[Node.PHYSICAL_PLAN].topology.state == topology_pb2.PAUSED
    assert world.life == control_pb2.LIFE_PAUSED


@pytest.mark.parametrize(("container", "task_id"), [(0, 1), (0, 4), (-1, 4)])
def test_restart_of_a_task(container: int, task_id: int) -> None:
    world = World().running()
    epoch = world.task(task_id).status.epoch
    token = world.request(events.RestartRequested, container, task_id)
    assert "1 task back" in world.answer(token).body.text
    assert world.task(task_id).status.epoch > epoch
    assert world.container_0_restarts == 0


def test_restart_of_a_container_and_of_all() -> None:
    world = World().running()
    token = world.request(events.RestartRequested, 2, 0)
    assert world.answer(token).body.text == "restarted container 2: 2 tasks back"
    assert world.sims[2].epoch == 2 and world.sims[1].epoch == 1
    token = world.request(events.RestartRequested, -1, 0)
    assert world.container_0_restarts == 0
    assert world.answer(token).body.text == "restarted all containers: 4 tasks back"
    assert world.container_0_restarts == 1
    token = world.request(events.RestartRequested, 0, 0)
    assert world.answer(token).body.text == "container 0 is restarting"
    assert world.container_0_restarts == 2


@pytest.mark.parametrize("container", [1, -1])
def test_a_standby_that_leads_answers_before_it_restarts_with_its_container(container: int) -> None:
    world = World(process="tmaster-standby-1").running()
    token = world.request(events.RestartRequested, container, 0)
    assert "2 tasks back" in world.answer(token).body.text or container == -1
    assert world.answer(token).error is None
    orders = [names for names in world.sims[1].restarted if "tmaster-standby-1" in names]
    assert orders == [["tmaster-standby-1"]] and world.sims[1].restarted[-1] == orders[0]
    assert all(world.sims[1].restarted), "never all of its processes at once"
    assert world.sims[1].epoch == 2 and world.container_0_restarts == (container == -1)


def test_restart_of_a_component_restarts_its_tasks_everywhere_and_nothing_else() -> None:
    world = World().running()
    before = {task.status.task_id: task.status.epoch for task in world.tasks()}
    world.task(4).stuck = True
    token = world.request(events.RestartRequested, -1, 0, "count")
    world.rounds(3)
    assert token not in world.replies, "it waits for all of them"
    world.task(4).stuck = False
    assert world.answer(token).body.text == "restarted component count: 2 tasks back"
    newer = {task.status.task_id for task in world.tasks() if task.status.epoch > before[task.status.task_id]}
    assert newer == {3, 4} and world.container_0_restarts == 0
    assert [sim.epoch for sim in world.sims.values()] == [1, 1]
    assert "no component nobody" in str(world.answer(world.request(events.RestartRequested, -1, 0, "nobody")).error)


def test_restart_that_does_not_come_back_or_cannot_begin() -> None:
    world = World().running()
    assert "no task 77" in str(world.answer(world.request(events.RestartRequested, 0, 77)).error)
    assert "no container 7" in str(world.answer(world.request(events.RestartRequested, 7, 0)).error)
    world.task(1).stuck = True
    token = world.request(events.RestartRequested, 0, 1)
    error = str(world.answer(token).error)
    assert "did not start again: container_1_word_1" in error


def test_runtime_config_is_merged_stored_and_sent() -> None:
    world = World().running()
    token = world.request(events.ConfigRequested, ("rate:5", "count:limit:7", "rate:6"))
    assert world.replies[token].body.text == "3 settings in plan 3"
    for topology in (world.store[Node.TOPOLOGY], world.sims[2].plan.topology):
        assert [(kv.key, kv.value) for kv in topology.topology_config.kvs] == [("rate", "6")]
        assert ("limit", "7") in [(kv.key, kv.value) for kv in topology.bolts[0].comp.config.kvs]
    for bad, why in (("nobody:a:b", "no component 'nobody'"), ("x", "[component:]key:value")):
        token = world.request(events.ConfigRequested, ("rate:9", bad))
        assert why in str(world.replies[token].error)
    assert world.store[Node.PHYSICAL_PLAN].version == 3


def test_the_concurrency_of_an_asynchronous_bolt_changes_and_no_other_setting() -> None:
    world = World().running()
    key = "heron.instance.async_concurrency"

    def asked(text: str) -> str:
        return str(world.replies[world.request(events.ConfigRequested, (text,))].error)

    assert "only for a single asynchronous bolt" in asked(f"count:{key}:64")
    world.machine.shared.book.topology.bolts[0].comp.asynchronous = True
    for text in (f"{key}:64", f"word:{key}:64"):
        assert "only for a single asynchronous bolt" in asked(text)
    for value in ("513", "-1", "many", "1.5"):
        assert "a whole number from 1 to 512, or 0" in asked(f"count:{key}:{value}")
    assert "cannot be changed in a running topology" in asked("count:heron.instance.slow_ms:5")
    assert "use --component-ram" in asked("count:topology.component.ram:256MB")
    for value in (512, 0):
        assert asked(f"count:{key}:{value}") == "None"
        assert live_concurrency(world.sims[1].plan.topology, "count") == value


def exhaust(world: World) -> None:
    for task in world.tasks():
        if task.spout:
            task.status.state = control_pb2.TASK_EXHAUSTED


def test_finish_goes_bolt_by_bolt_and_waits_for_the_last_tuple() -> None:
    world = World(bolts={"split": 2, "count": 2}).running()
    exhaust(world)
    world.sims[1].beat.in_flight_tuples = 3
    world.rounds(5)
    assert world.life == control_pb2.LIFE_RUNNING
    world.sims[1].beat.in_flight_tuples = 0
    world.until(lambda: world.life == control_pb2.LIFE_FINISHING)
    assert world.sims[1].finish_orders == [[3]] and world.sims[2].finish_orders == [[4]]
    # What split emits at its end keeps count from being finished.
    world.task(6).status.in_queue_tuples = 4
    world.rounds(5)
    assert world.sims[2].finish_orders == [[4]]
    world.task(6).status.in_queue_tuples, world.task(6).status.executed = 0, 4
    world.until(lambda: world.life == control_pb2.LIFE_FINISHED)
    assert world.sims[1].finish_orders == [[3], [5]]
    assert "has finished" in str(world.answer(world.request(events.StateRequested, False)).error)
    world.start_master()
    world.until(lambda: world.life == control_pb2.LIFE_FINISHED)


def test_a_deactivated_topology_is_drained_once_nothing_moves() -> None:
    world = World().running()
    world.rounds(5)
    assert not world.status().drained  # quiet, but its spouts may emit
    world.task(3).status.in_queue_tuples = 2
    world.answer(world.request(events.StateRequested, False))
    world.rounds(5)
    assert world.life == control_pb2.LIFE_PAUSED and not world.status().drained
    world.task(3).status.in_queue_tuples, world.task(3).status.executed = 0, 2
    world.until(lambda: world.status().drained)
    world.start_master()
    assert not world.status().drained
    world.until(lambda: world.status().drained)
    world.answer(world.request(events.StateRequested, True))
    assert not world.status().drained


def test_spouts_that_rest_for_good_are_at_their_end() -> None:
    world = World(bolts={"split": 2, "count": 2}).running()
    world.answer(world.request(events.StateRequested, False))
    world.rounds(10)
    assert world.life == control_pb2.LIFE_PAUSED and not world.sims[1].finish_orders
    world.answer(world.request(events.StateRequested, False, True))
    world.until(lambda: world.life == control_pb2.LIFE_FINISHED)
    assert world.sims[1].finish_orders == [[3], [5]] and world.sims[2].finish_orders == [[4], [6]]


def test_an_activation_takes_the_end_of_input_back() -> None:
    world = World().running()
    world.task(3).status.in_queue_tuples = 2
    world.answer(world.request(events.StateRequested, False, True))
    world.rounds(3)
    world.answer(world.request(events.StateRequested, True))
    world.task(3).status.in_queue_tuples, world.task(3).status.executed = 0, 2
    world.rounds(10)
    assert world.life == control_pb2.LIFE_RUNNING and not world.sims[1].finish_orders


def test_task_that_restarts_while_finishing_is_told_again() -> None:
    world = World().running()
    exhaust(world)
    world.task(3).stuck = True
    world.until(lambda: world.life == control_pb2.LIFE_FINISHING)
    world.sims[1].restart(["container_1_count_3"])
    world.task(3).stuck = False
    world.until(lambda: world.life == control_pb2.LIFE_FINISHED)
    assert world.sims[1].finish_orders == [[3], [3]]


def test_finish_order_that_was_not_delivered_is_repeated() -> None:
    world = World().running()
    exhaust(world)
    world.task(3).stuck = True
    world.until(lambda: world.life == control_pb2.LIFE_FINISHING)
    world.feed(events.SendFailed(b"s1", control_pb2.FinishTasks(task_ids=[3])))
    world.task(3).stuck = False
    world.until(lambda: world.life == control_pb2.LIFE_FINISHED, 6)


def test_tuple_between_two_stream_managers_is_not_taken_for_the_end() -> None:
    world = World().running()
    world.task(4).status.in_queue_tuples = 1
    world.rounds(4)
    exhaust(world)
    world.rounds(2)
    # stmgr-1 has been quiet for long, but only from now on is stmgr-2.
    world.task(4).status.in_queue_tuples, world.task(4).status.executed = 0, 1
    for _ in range(3):
        world.tick(0.1)
        world.sims[2].heartbeat()
        assert world.life == control_pb2.LIFE_RUNNING
    world.until(lambda: world.life == control_pb2.LIFE_FINISHED)


def test_lost_executor_is_named() -> None:
    world = World().running()
    for _ in range(17):
        world.tick(1.0)
        for sim in world.sims.values():
            sim.heartbeat()
        world.sims[1].executor_beat()
    assert "executor-2" in world.status().cause and "executor-1" not in world.status().cause


def test_a_plan_that_nothing_could_have_made_is_not_believed() -> None:
    world = World().running()
    version = world.machine.shared.book.version
    stmgr = world.sims[1]
    for claimed in ((1 << 64) - 1, PLAN_VERSION_MAX + 1):
        beat = control_pb2.StmgrHeartbeat(stmgr_id=stmgr.name, epoch=stmgr.epoch, plan_version=claimed)
        world.feed(events.StmgrBeat(stmgr.peer, beat))
        world.rounds(2)
    assert world.machine.shared.book.version == version
    beat = control_pb2.StmgrHeartbeat(stmgr_id=stmgr.name, epoch=stmgr.epoch, plan_version=version + 7)
    world.feed(events.StmgrBeat(stmgr.peer, beat))
    world.rounds(2)
    assert world.machine.shared.book.version > version + 7, "one that it could have made is skipped"


def test_registration_storm_of_1000_containers() -> None:
    topology = make_topology({"word": 5000}, {"count": 5000})
    packing = make_packing(topology, 1000)
    machine = TopologyMaster(TmasterSettings(), 1, topology=topology, packing=packing)
    machine.begin(0.0)
    sent = persisted = 0
    for container in packing.containers:
        record = plan_pb2.StmgrRecord(id=f"stmgr-{container.id}", container=container.id, epoch=1)
        message = control_pb2.RegisterStmgr(stmgr=record)
        for instance in container.instances:
            message.tasks.add(task_id=instance.task_id, epoch=1)
        for effect in machine.handle(events.StmgrRegistered(b"%d" % container.id, container.id, message), 0.1):
            persisted += isinstance(effect, Persist)
            sent += len(effect.peers) if isinstance(effect, Send) else 0
    assert (persisted, sent) == (1, 1000)
    for container in packing.containers:
        beat = control_pb2.StmgrHeartbeat(stmgr_id=f"stmgr-{container.id}", epoch=1, plan_version=1)
        for instance in container.instances:
            beat.tasks.add(task_id=instance.task_id, epoch=1, plan_version=1, state=control_pb2.TASK_RUNNING)
        machine.handle(events.StmgrBeat(b"%d" % container.id, beat), 0.2)
    assert machine.lifecycle == control_pb2.LIFE_RUNNING
    machine.validate()
