"""The identity of a task. Pure."""

from __future__ import annotations

from msgspec import Struct

from heronpy.common import ids


class TaskName(Struct, frozen=True):
    """One incarnation of a task; `epoch` numbers its processes, from 1."""

    task_id: int
    epoch: int
    component: str
    container: int

    @property
    def instance_id(self) -> str:
        """The name of the task's process, for display and file names."""
        return ids.instance_id(self.container, self.component, self.task_id)
