"""Where each task is now: building a physical plan, and looking things up in one.

`PlanView` answers every question that the stream manager, the instance and the topology master ask
of a plan, from tables made once. A plan never changes; a new one has a higher version and gets a
new view.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from heronpy.common.errors import TopologyError
from heronpy.common.ids import instance_id
from heronpy.plan import packing_plan
from heronpy.plan.component_config import ConfigMap, component_config
from heronpy.plan.logical import ComponentDef, LogicalPlan
from heronpy.proto import plan_pb2

__all__ = ["PlanView", "build_physical_plan", "instance_id"]


def build_physical_plan(
    topology: Any, packing: Any, stmgr_records: Iterable[Any], version: int, epoch: int
) -> Any:
    """The PhysicalPlan of a packing plan whose stream managers have all registered.

    Raises TopologyError naming the containers without a stream manager. Records of containers that
    the packing plan does not have are left out.
    """
    by_container = {record.container: record for record in stmgr_records}
    containers = packing_plan.container_ids(packing)
    missing = [container for container in containers if container not in by_container]
    if missing:
        raise TopologyError(
            f"Topology '{topology.name}' has no stream manager yet in container(s) "
            f"{', '.join(map(str, missing[:20]))}; wait until all have registered."
        )
    plan = plan_pb2.PhysicalPlan(version=version, tmaster_epoch=epoch)
    plan.topology.CopyFrom(topology)
    plan.stmgrs.extend(by_container[container] for container in containers)
    for task in sorted(packing_plan.tasks(packing), key=lambda task: task.task_id):
        plan.instances.add(
            instance_id=instance_id(task.container, task.component, task.task_id),
            task_id=task.task_id,
            component=task.component,
            component_index=task.component_index,
            container=task.container,
        )
    return plan


class PlanView:
    """Lookups over one physical plan; KeyError for a task that the plan does not have."""

    def __init__(self, plan: Any) -> None:
        #: The PhysicalPlan message; never changed by the view.
        self.plan = plan
        self.version = int(plan.version)
        self.tmaster_epoch = int(plan.tmaster_epoch)
        self.logical = LogicalPlan.from_topology(plan.topology)
        #: InstanceRecord of every task.
        self.instances: dict[int, Any] = {item.task_id: item for item in plan.instances}
        #: StmgrRecord of every container.
        self.stmgrs: dict[int, Any] = {item.container: item for item in plan.stmgrs}
        self._tasks: dict[str, list[int]] = {name: [] for name in self.logical.components}
        self._by_container: dict[int, list[int]] = {container: [] for container in self.stmgrs}
        for task in sorted(self.instances):
            record = self.instances[task]
            self._tasks.setdefault(record.component, []).append(task)
            self._by_container.setdefault(record.container, []).append(task)
        self._streams = {
            name: {stream: i for i, stream in enumerate(self.logical.output_streams(name))}
            for name in self.logical.components
        }

    @property
    def topology(self) -> Any:
        """The Topology message."""
        return self.plan.topology

    # ---- tasks

    def __contains__(self, task: object) -> bool:
        return task in self.instances

    def instance(self, task: int) -> Any:
        """The InstanceRecord of a task."""
        return self.instances[task]

    def component_of(self, task: int) -> str:
        return str(self.instances[task].component)

    def container_of(self, task: int) -> int:
        return int(self.instances[task].container)

    def stmgr_of(self, task: int) -> Any:
        """The StmgrRecord of the container that holds a task."""
        return self.stmgrs[self.instances[task].container]

    def tasks_of(self, component: str) -> list[int]:
        """Sorted tasks of a component; a task's place here is its partition index."""
        return list(self._tasks.get(component, ()))

    def partition_index(self, task: int) -> int:
        """The place of a task among its component's tasks: 0 to their number less one."""
        return self._tasks[self.component_of(task)].index(task)

    def tasks_in(self, container: int) -> list[int]:
        """Sorted tasks of a container."""
        return list(self._by_container.get(container, ()))

    def local_tasks(self, component: str, container: int) -> list[int]:
        """Sorted tasks of a component in one container."""
        return [task for task in self.tasks_in(container) if self.component_of(task) == component]

    @cached_property
    def spout_tasks(self) -> list[int]:
        """Sorted tasks of all spouts."""
        return sorted(task for name in self.logical.spouts() for task in self._tasks[name])

    @cached_property
    def containers(self) -> list[int]:
        """Sorted containers that have a stream manager."""
        return sorted(self.stmgrs)

    # ---- components and streams

    def component(self, name: str) -> ComponentDef:
        return self.logical.component(name)

    def is_spout(self, component: str) -> bool:
        return self.logical.component(component).is_spout

    def config_of(self, component: str, *, load: bool = False) -> ConfigMap:
        """What a component sees as its configuration; `load` runs user code for pickled values."""
        return component_config(self.topology, component, load=load)

    def consumers(self, component: str, stream: str) -> list[tuple[str, Any]]:
        """(consumer component, InputStream message) of a stream, in order of definition."""
        return self.logical.consumers(component, stream)

    def output_streams(self, component: str) -> list[str]:
        """Sorted names of a component's output streams."""
        return list(self._streams[component])

    def stream_index(self, component: str, stream: str) -> int:
        """The number of a stream in frames; TopologyError when the component has no such stream."""
        index = self._streams[component].get(stream)
        if index is None:
            names = ", ".join(f"'{name}'" for name in self._streams[component]) or "none"
            raise TopologyError(
                f"Component '{component}' has no stream '{stream}'; its streams: {names}."
            )
        return index

    def stream_name(self, component: str, index: int) -> str:
        """The stream of a frame's number."""
        return self.output_streams(component)[index]

    def fields_of(self, component: str, stream: str) -> Sequence[str]:
        """The field names of a stream."""
        return self.logical.streams[component, stream].fields
