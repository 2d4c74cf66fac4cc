"""Which processes a container runs."""

from __future__ import annotations

from pathlib import Path

from heronpy.executor.desired import INSTANCE, SPARK_GATEWAY, STANDBY, Place, Roles, command_of, desired_processes
from heronpy.executor.records import progress
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.supervision import ProcessSpec
from heronpy.proto import control_pb2
from tests.support.launch import launch_spec
from tests.support.topologies import packing_plan

PLAN = packing_plan({1: [("word", 1), ("count", 3)], 2: [("count", 2)]})


def specs(container: int, needs_spark: bool = False) -> dict[str, ProcessSpec]:
    found = desired_processes(
        PLAN,
        container,
        needs_spark=needs_spark,
        stop_grace_s=2.0,
        hang_timeout_s=lambda component: 7.0 if component == "word" else 0.0,
    )
    assert all(Roles().module_of(spec.role) for spec in found)
    return {spec.name: spec for spec in found}


def test_container_0_has_the_master_and_the_gateway_stops_before_it() -> None:
    assert set(specs(0)) == {"tmaster"}
    with_spark = specs(0, needs_spark=True)
    assert with_spark["spark-gateway"].stop_rank < with_spark["tmaster"].stop_rank
    assert with_spark["tmaster"].critical
    assert not with_spark["spark-gateway"].critical


def test_the_replicator_runs_beside_the_master_when_there_is_a_replica() -> None:
    """It delays nothing and ends nothing."""
    found = {
        spec.name: spec
        for container in (0, 1)
        for spec in desired_processes(
            PLAN,
            container,
            needs_spark=False,
            stop_grace_s=2.0,
            hang_timeout_s=lambda _: 0.0,
            replicates=True,
        )
    }
    replicator = found["checkpoint-replicator"]
    assert not replicator.critical and replicator.stop_rank < found["tmaster"].stop_rank
    assert Roles().module_of(replicator.role) == "heronpy.ckpt.replicator"
    assert "checkpoint-replicator" not in specs(0)


def test_container_has_its_tasks_and_they_stop_before_the_stream_manager() -> None:
    found = specs(1)
    assert set(found) == {"stmgr-1", "container_1_word_1", "container_1_count_3"}
    task = found["container_1_word_1"]
    assert (task.task_id, task.component, task.user_code, task.hang_timeout_s) == (1, "word", True, 7.0)
    assert task.stop_rank < found["stmgr-1"].stop_rank
    assert found["stmgr-1"].critical


def test_container_that_left_the_plan_has_nothing() -> None:
    assert specs(9) == {}


def test_a_task_learns_how_the_process_before_it_ended() -> None:
    place = Place(launch_spec("words", "words1", Path("/nowhere")), "launch.json", 1, 3)

    def started(role: str, after: ExitReason | None = None) -> tuple[list[str], bool]:
        command = command_of(ProcessSpec("name", role, task_id=4), 2, place, Roles(), after=after, preload=True)
        [*argv, epoch_flag, _] = command.argv
        assert epoch_flag == "--epoch" and command.module == Roles().module_of(role)
        return argv[2:], command.fresh

    assert started(INSTANCE) == (["--container", "1", "--task", "4"], False)
    assert started(INSTANCE, ExitReason.CRASHED) == (["--container", "1", "--task", "4", "--after", "crashed"], False)
    assert started(STANDBY, ExitReason.CRASHED) == (["--name", "name"], False)
    assert started(SPARK_GATEWAY) == ([], True)


def test_what_still_starts_makes_progress_and_is_not_ready() -> None:
    def told(state: control_pb2.TaskState, task_id: int = 4, not_ready: bool = False) -> tuple[float, bool]:
        report = control_pb2.MetricsReport(task_id=task_id, state=state, loop_age_s=9.0, not_ready=not_ready)
        return progress(report)

    assert told(control_pb2.TASK_STARTING) == (0.0, False)
    assert told(control_pb2.TASK_RUNNING) == (9.0, True)
    assert told(control_pb2.TASK_RUNNING, not_ready=True) == (9.0, False)
    assert told(control_pb2.TASK_RUNNING, task_id=0) == (9.0, False)
