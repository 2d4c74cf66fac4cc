"""Which processes a container runs."""

from __future__ import annotations

from heronpy.executor.desired import Roles, desired_processes
from heronpy.procs.supervision import ProcessSpec
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
