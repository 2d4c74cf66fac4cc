"""What a task is, and how it ends when it is not wanted any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from heronpy.common import exit_codes
from heronpy.common.errors import FencedError, RetryableError
from heronpy.common.folders import replace_file
from heronpy.procs.handed_plans import plan_file, topology_file
from heronpy.proto import plan_pb2, topology_pb2
from instance import lifecycle
from instance.lifecycle import exit_code_of
from tests.support.launch import launch_spec


def plans(*tasks: int) -> tuple[bytes, bytes]:
    packing = plan_pb2.PackingPlan()
    packing.containers.add(id=1).instances.extend(
        plan_pb2.InstancePlan(component="count", task_id=task) for task in tasks
    )
    return topology_pb2.Topology(name="words").SerializePartialToString(), packing.SerializeToString()


def test_a_task_that_the_plan_has_not_may_be_tried_again(tmp_path: Path) -> None:
    """Its executor, or the plan that could be read, is behind: that is not the task's failure."""
    launch = launch_spec("words", "words1", tmp_path)
    with pytest.raises(RetryableError, match=r"executor of container 1 has not delivered the topology: .*topology: No"):
        lifecycle.own_component(launch, 1, 2)
    for file, plan in zip((topology_file(str(tmp_path), 1), plan_file(str(tmp_path), 1)), plans(1, 2), strict=True):
        replace_file(file, plan, durable=False)
    assert lifecycle.own_component(launch, 1, 2)[1] == "count"
    assert not Path(launch.state_root).exists(), "a task opens no state manager"
    with pytest.raises(RetryableError, match="task 3 is not in the packing plan of topology words"):
        lifecycle.own_component(launch, 1, 3)


def test_a_replaced_sink_is_fenced_and_no_user_exception() -> None:
    """F10."""
    assert exit_code_of(FencedError("sink task 3 was replaced")) == exit_codes.FENCED
    assert exit_code_of(ValueError("bad tuple")) == exit_codes.USER_EXCEPTION
