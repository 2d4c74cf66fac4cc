"""Decides which processes may register as a task of this container.

A process is admitted when its name matches its numbers, and its task is in this container according to the physical
plan or to the packing plan that its executor follows: tasks that an update adds or moves to this container appear first
in the packing plan. Refusals are counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from heronpy.common.errors import InvalidRpcError, RetryableError
from heronpy.common.ids import instance_id
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager

#: Number of reads of the packing plan before a task is refused, and the seconds between them.
LOOKS = 4
LOOK_AGAIN_S = 0.5
log = logging.getLogger("heronpy.statemgr")


async def get_off_loop(state: StateManager, path: str) -> tuple[bytes, int] | None:
    """Return a node's data and version; None if it does not exist or cannot be read now."""
    try:
        return await asyncio.to_thread(state.get, path)
    except RetryableError as error:
        log.warning("%s", error)
        return None


class Admission:
    """Accepts or refuses the registrations of one container's tasks."""

    def __init__(self, topology: str, container: int) -> None:
        self._path = paths.packing_plan(topology)
        self._container = container
        #: For each task that is looked up in the packing plan: its latest registration, and the pending look-up.
        self._newest: dict[int, object] = {}
        self._looks: dict[int, asyncio.Task[None]] = {}
        #: Number of refused registrations.
        self.refused = 0

    def by_plan(self, message: control_pb2.RegisterInstance, plan: plan_pb2.PhysicalPlan | None) -> bool:
        """Return whether the plan assigns this task to this container. Raises InvalidRpcError if the sender cannot be
        this task."""
        task, component = message.task_id, message.component
        if not task or message.instance_id != instance_id(self._container, component, task):
            self._refuse(f"{message.instance_id or f'task {task}'} is not a task of container {self._container}")
        self._newest.pop(task, None)
        shown = next((i for i in plan.instances if i.task_id == task), None) if plan is not None else None
        if shown is not None and shown.component != component:
            self._refuse(f"task {task} belongs to {shown.component}, not to {component}")
        return shown is not None and shown.container == self._container

    def by_packing(self, message: control_pb2.RegisterInstance, state: Any) -> Awaitable[bool]:
        """Return True once the packing plan assigns the task to this container or cannot be read. Raises
        InvalidRpcError otherwise.

        Returns False if the task has registered again in the meantime: only its newest registration counts, regardless
        of the order of the answers. Another registration does not make the task wait longer.
        """
        # Recorded now and not when the answer is first awaited: the next registration may be served before that.
        mine = self._newest[message.task_id] = object()
        return self._by_packing(message, state, mine)

    async def _by_packing(self, message: control_pb2.RegisterInstance, state: Any, mine: object) -> bool:
        task = message.task_id
        look = self._looks.get(task)
        if look is None:
            look = self._looks[task] = asyncio.ensure_future(self._look_for(message, state))
            look.add_done_callback(lambda _: self._looks.pop(task, None))
        try:
            await look
            return self._newest.get(task) is mine
        finally:
            if self._newest.get(task) is mine:
                del self._newest[task]

    async def _look_for(self, message: control_pb2.RegisterInstance, state: Any) -> None:
        """Read the packing plan until it contains the task, because the executor may have read a newer plan."""
        for _ in range(LOOKS):
            found = await get_off_loop(state, self._path)
            if found is None or message.task_id in self._tasks_of(found[0]):
                return
            await asyncio.sleep(LOOK_AGAIN_S)
        self._refuse(f"{message.instance_id} is not in the packing plan of container {self._container}")

    def _tasks_of(self, data: bytes) -> set[int]:
        packing = plan_pb2.PackingPlan.FromString(data)
        return {i.task_id for c in packing.containers if c.id == self._container for i in c.instances}

    def _refuse(self, why: str) -> None:
        self.refused += 1
        raise InvalidRpcError(why)
