"""Who may register: tasks that the plan, or the packing plan which comes first, has in this container."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from heronpy.common.errors import RpcError
from heronpy.common.ids import instance_id
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths
from stmgr import admission
from stmgr.admission import Admission
from tests.support.memory_state import MemoryStateManager


def asks(task: int, component: str = "count", container: int = 1) -> control_pb2.RegisterInstance:
    return control_pb2.RegisterInstance(
        task_id=task, component=component, instance_id=instance_id(container, component, task), epoch=1
    )


def shown(*places: tuple[int, int]) -> plan_pb2.PhysicalPlan:
    """(task, container) of each count."""
    return plan_pb2.PhysicalPlan(
        instances=[plan_pb2.InstanceRecord(task_id=t, container=c, component="count") for t, c in places]
    )


def test_a_task_of_the_plan_is_admitted() -> None:
    admitting = Admission("wc", 1)
    assert admitting.by_plan(asks(3), shown((3, 1))) and admitting.refused == 0


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (asks(0), "container_1_count_0 is not a task of container 1"),
        (control_pb2.RegisterInstance(), "task 0 is not a task of container 1"),
        (asks(3, container=2), "container_2_count_3 is not a task of container 1"),
        (asks(3, "word"), "task 3 belongs to count, not to word"),
    ],
)
def test_who_can_be_no_task_of_this_container_is_refused(message: control_pb2.RegisterInstance, why: str) -> None:
    admitting = Admission("wc", 1)
    with pytest.raises(RpcError, match=why):
        admitting.by_plan(message, shown((3, 1)))
    assert admitting.refused == 1


async def answered(packed: Awaitable[bool]) -> bool:
    return await packed


@pytest.mark.parametrize("current", [None, shown(), shown((3, 2))])
def test_the_packing_plan_decides_about_tasks_that_the_plan_has_not_here(
    current: plan_pb2.PhysicalPlan | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first plan, added by an update, moved here."""
    monkeypatch.setattr(admission, "LOOK_AGAIN_S", 0.0)
    admitting, state = Admission("wc", 1), MemoryStateManager()
    assert not admitting.by_plan(asks(3), current)
    asyncio.run(answered(admitting.by_packing(asks(3), state)))
    packing = plan_pb2.PackingPlan()
    packing.containers.add(id=1).instances.add(task_id=3, component="count")
    packing.containers.add(id=2).instances.add(task_id=4, component="count")
    state.create(paths.packing_plan("wc"), packing.SerializeToString())
    asyncio.run(answered(admitting.by_packing(asks(3), state)))
    with pytest.raises(RpcError, match="container_1_count_4 is not in the packing plan of container 1"):
        asyncio.run(answered(admitting.by_packing(asks(4), state)))


@pytest.mark.parametrize("planned", [False, True])
def test_of_a_tasks_registrations_only_the_newest_counts(planned: bool) -> None:
    """A task asks again when nobody answers; the answer to an older question must not end its link."""
    admitting, state = Admission("wc", 1), MemoryStateManager()

    async def ask() -> list[bool]:
        asked = [asyncio.ensure_future(admitting.by_packing(asks(3), state)) for _ in range(3)]
        other = asyncio.ensure_future(admitting.by_packing(asks(4), state))
        await asyncio.sleep(0)
        if planned:
            assert admitting.by_plan(asks(3), shown((3, 1)))
        return [*await asyncio.gather(*asked), await other]

    assert asyncio.run(ask()) == [False, False, not planned, True]


def test_a_registration_that_waits_to_be_served_is_older_than_one_that_the_plan_admits() -> None:
    """The plan may come, and admit the next one, before the event loop has begun to look for the first."""
    admitting, state = Admission("wc", 1), MemoryStateManager()

    async def ask() -> bool:
        assert not admitting.by_plan(asks(3), shown())
        first = admitting.by_packing(asks(3), state)
        assert admitting.by_plan(asks(3), shown((3, 1)))
        return await first

    assert not asyncio.run(ask()), "the link of the newer one would end"
