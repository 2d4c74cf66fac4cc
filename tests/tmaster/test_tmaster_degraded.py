"""What a degraded topology says of the tasks that are down."""

from __future__ import annotations

from heronpy.api.config_values import encode_config
from heronpy.common.topology_keys import BATCH_RUN
from heronpy.proto import control_pb2
from heronpy.tmaster import events
from tests.tmaster.tmaster_world import World


def down(world: World, task: int, **how: float) -> None:
    sim = next(sim for sim in world.sims.values() if task in sim.tasks)
    name = world.machine.shared.registry.name_of(task)
    sim.failed[name] = control_pb2.ProcessRecord(
        name=name,
        kind=control_pb2.PROCESS_TASK,
        task_id=task,
        state=control_pb2.PROC_BACKOFF,
        exit_reason="user_exception",
        exit=control_pb2.EXIT_USER_EXCEPTION,
        exit_detail="OSError: away",
        **how,
    )
    sim.tasks[task].status.state = control_pb2.TASK_FAILED


def test_degraded_says_how_many_tasks_are_down_and_how_their_restarts_stand() -> None:
    world = World(bolts={"store": 4}).running()
    down(world, 3, restarts=7, restarts_charged=7, restart_budget=10, next_restart_s=3.7)
    down(world, 4, restarts=2, restarts_charged=2, restart_budget=10, next_restart_s=30.0)
    world.round()
    found = world.status()
    assert found.lifecycle == control_pb2.LIFE_DEGRADED
    assert found.cause == "2 of 4 tasks of store are down, restart 7 of 10, next in 4 s: OSError: away"
    world.now += 2
    assert world.status().cause.endswith("next in 2 s: OSError: away"), "it is of now, not of the heartbeat"
    assert not found.startup_exceptions
    for sim in world.sims.values():
        sim.failed.clear()
        sim.restart([sim.name.replace("stmgr-", "container_") + f"_store_{task}" for task in (3, 4)])
    world.rounds(2)
    assert world.life == control_pb2.LIFE_RUNNING and world.status().cause == ""


def test_a_batch_run_that_is_over_is_not_degraded_by_a_worker() -> None:
    world = World().running()
    down(world, 1)
    world.round()
    assert world.life == control_pb2.LIFE_DEGRADED
    next(sim for sim in world.sims.values() if 2 in sim.tasks).tasks[2].status.state = control_pb2.TASK_EXHAUSTED
    world.round()
    assert world.life == control_pb2.LIFE_DEGRADED, "a task of a stream"
    world.machine.shared.book.topology.spouts[0].comp.config.MergeFrom(encode_config({BATCH_RUN: "/run"}))
    world.round()
    assert world.life == control_pb2.LIFE_RUNNING and world.status().cause == ""


def test_degraded_while_a_process_waits_for_a_full_disk() -> None:
    world = World().running()
    world.feed(events.OutageReported("spark-gateway", "store /data is full or read-only"))
    world.round()
    found = world.status()
    assert found.lifecycle == control_pb2.LIFE_DEGRADED
    assert found.cause == "spark-gateway waits: store /data is full or read-only"
    assert list(found.outages) == [found.cause], "for the doctor, too"
    world.feed(events.OutageReported("spark-gateway", ""))
    world.round()
    assert world.life == control_pb2.LIFE_RUNNING and world.status().cause == "" and not world.status().outages


def test_a_topology_that_starts_says_that_a_sink_waits_for_a_full_disk() -> None:
    world = World()
    world.feed(events.OutageReported("container_1_store_3", "store /data is full or read-only"))
    world.round()
    assert "container_1_store_3 waits: store /data is full or read-only" in world.status().cause


def test_degraded_by_a_budget_of_time_and_by_other_processes() -> None:
    world = World().running()
    down(world, 3, restarts=9, restarts_charged=9, failing_s=58.2, failing_max_s=600.0, next_restart_s=25.6)
    gateway = control_pb2.ProcessRecord(
        name="spark-gateway", state=control_pb2.PROC_BACKOFF, restarts=1, next_restart_s=1.0
    )
    world.round()
    world.feed(events.ExecutorBeat(b"x0", control_pb2.ExecutorHeartbeat(container=0, epoch=1, processes=[gateway])))
    assert world.status().cause == (
        "1 of 2 tasks of count is down, restart 9, next in 26 s, failing for 59 s, restarts stop after 10 min:"
        " OSError: away;"
        " spark-gateway is down, restart 1, next in 1 s"
    )
    world.now += 0.9
    assert "next in 25 s, failing for 60 s" in world.status().cause, "it is of now, not of the heartbeat"


def test_the_only_task_is_named_so_and_an_exception_keeps_its_name() -> None:
    world = World(bolts={"store": 1}).running()
    down(world, 3, restarts=1, restarts_charged=1, restart_budget=10, next_restart_s=1.0)
    for sim in world.sims.values():
        for record in sim.failed.values():
            record.exit_detail = "ValueError: the first line\nand the second"
    world.round()
    cause = "the only task of store is down, restart 1 of 10, next in 1 s: ValueError: the first line"
    assert world.status().cause == cause


def test_a_task_that_cannot_start_again_is_no_failure_until_it_is_given_up() -> None:
    world = World().running()
    world.task(3).status.state, world.task(3).status.error = control_pb2.TASK_FAILED, "ConnectionRefusedError: no"
    world.round()
    assert world.life == control_pb2.LIFE_DEGRADED
    assert world.status().cause == "1 of 2 tasks of count is down: ConnectionRefusedError: no"
    world.sims[1].failed["container_1_count_3"] = control_pb2.ProcessRecord(
        name="container_1_count_3",
        kind=control_pb2.PROCESS_TASK,
        task_id=3,
        state=control_pb2.PROC_FAILED,
        exit_reason="user_exception",
        exit=control_pb2.EXIT_USER_EXCEPTION,
        restarts=9,
    )
    world.round()
    assert world.life == control_pb2.LIFE_FAILED and "container_1_count_3 failed" in world.status().cause


def test_the_cause_of_a_crash_loop_is_what_its_exceptions_have_in_common() -> None:
    """The last exception names one tuple; the doctor's sentence says what all exceptions have in common."""
    world = World().running()
    down(world, 3, restarts=9, restarts_charged=9, failing_s=58.2, failing_max_s=600.0, next_restart_s=25.6)
    name = world.machine.shared.registry.name_of(3)
    record = next(record for sim in world.sims.values() for record in sim.failed.values())
    record.exit_detail = "ValueError: order 49 of user 8\nmore"

    def raised(user: int, process: str = name) -> control_pb2.ExceptionReport:
        words = f"ValueError: order 49 of user {user}"
        return control_pb2.ExceptionReport(
            process=process, component="count", task_id=3, type="ValueError", message=words.partition(": ")[2], count=1,
            last_at=float(user), traceback=f'Traceback\n  File "/home/me/orders.py", line 62, in process\n{words}',
        )  # fmt: skip

    world.feed(events.ExceptionsReported((*map(raised, range(9)), raised(20, "container_9_count_3"))))
    world.round()
    ends = "next in 26 s, failing for 59 s, restarts stop after 10 min"
    assert world.status().cause == (
        f"1 of 2 tasks of count is down, restart 9, {ends}: ValueError: order 49 of user … (9 of 9 times)"
    )
    record.exit_detail = "killed by signal 9"
    world.round()
    assert world.status().cause.endswith("restarts stop after 10 min: killed by signal 9"), "that it has not raised"
