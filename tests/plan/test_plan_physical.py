"""Packing plans, their difference, and the physical plan."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.common.errors import TopologyError
from heronpy.common.ids import instance_id
from heronpy.plan import packing_plan
from heronpy.plan.physical_plan import build_physical_plan
from heronpy.proto import plan_pb2, topology_pb2
from tests.plan.builders import TopologyMessage


def packing(containers: dict[int, list[tuple[str, int, int]]], next_task_id: int = 0) -> Any:
    """container -> [(component, task id, index)]"""
    plan = plan_pb2.PackingPlan(id="topo-id", version=1, next_task_id=next_task_id)
    for number, instances in containers.items():
        container = plan.containers.add(id=number)
        container.required.ram_bytes = len(instances)
        for component, task, index in instances:
            container.instances.add(component=component, task_id=task, component_index=index)
    return plan


TOPOLOGY = (
    TopologyMessage(a=1)
    .spout("word", 2, {"words": ["word"], "errors": ["text", "code"]})
    .bolt("count", [("word", "words", topology_pb2.FIELDS, ["word"])], 2)
    .bolt("log", [("word", "errors", topology_pb2.ALL, []), ("word", "words", topology_pb2.SHUFFLE, [])], b=2)
    .message
)
PACKING = packing({2: [("log", 5, 0), ("word", 2, 1)], 1: [("word", 1, 0), ("count", 4, 1), ("count", 3, 0)]})
STMGRS = [plan_pb2.StmgrRecord(id=f"stmgr-{c}", container=c, epoch=7) for c in (3, 2, 1)]


def test_packing_plan_lookups() -> None:
    assert packing_plan.container_ids(PACKING) == [1, 2]
    assert packing_plan.tasks_by_component(PACKING) == {"word": [1, 2], "count": [3, 4], "log": [5]}
    assert packing_plan.tasks_by_id(PACKING)[4].container == 1


def test_task_ids_of_removed_tasks_are_remembered() -> None:
    assert packing_plan.next_task_id(PACKING) == 6
    assert packing_plan.next_task_id(packing({1: [("a", 2, 0)]}, next_task_id=9)) == 9


def test_wrong_packing_plans_are_named() -> None:
    assert not packing_plan.problems(PACKING, TOPOLOGY)
    wrong = packing({1: [("word", 1, 0), ("word", 1, 1)], 0: [("x", 2, 0)]})
    text = "\n".join(packing_plan.problems(wrong, TOPOLOGY))
    assert "task id 1" in text
    assert "container id 0" in text
    assert "'count' needs 2 tasks" in text
    assert "tasks of 'x'" in text


def test_difference_and_union() -> None:
    new = packing(
        {
            1: [("word", 1, 0), ("word", 2, 1), ("count", 3, 0)],
            3: [("log", 5, 0), ("count", 6, 2)],
        },
        next_task_id=7,
    )
    found = packing_plan.diff(PACKING, new)
    assert found.added_ids == [6]
    assert found.removed_ids == [4]
    assert found.moved_ids == [2, 5]
    assert (found.moved[0].source, found.moved[0].target) == (2, 1)
    assert found.removed_containers == (2,)
    assert packing_plan.diff(new, new) == packing_plan.PlanDiff((), (), (), ())

    both = packing_plan.union(PACKING, new)
    placed = packing_plan.tasks_by_id(both)
    assert sorted(placed) == [1, 2, 3, 4, 5, 6]
    assert placed[2].container == 2
    assert placed[6].container == 3
    assert packing_plan.next_task_id(both) == 7
    assert both.containers[1].required.ram_bytes == 3


def test_physical_plan() -> None:
    plan = build_physical_plan(TOPOLOGY, PACKING, STMGRS, version=3, epoch=9)
    assert (plan.version, plan.tmaster_epoch) == (3, 9)
    assert [record.container for record in plan.stmgrs] == [1, 2]
    assert [item.task_id for item in plan.instances] == [1, 2, 3, 4, 5]
    assert plan.instances[4].instance_id == instance_id(2, "log", 5) == "container_2_log_5"
    with pytest.raises(TopologyError, match=r"no stream manager yet in container\(s\) 2"):
        build_physical_plan(TOPOLOGY, PACKING, STMGRS[2:], version=1, epoch=1)
