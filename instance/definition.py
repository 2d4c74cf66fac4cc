"""What a task reads before it starts: the topology, and its component in the packing plan.

Its executor has read both from the state manager and hands them over. The task opens no state manager itself, so
neither the number of tasks nor an outage matters to it.
"""

from __future__ import annotations

from heronpy.common.errors import RetryableError
from heronpy.plan.launch import LaunchSpec
from heronpy.procs.handed_plans import handed, plan_file, topology_file
from heronpy.proto import plan_pb2, topology_pb2


def own_component(launch: LaunchSpec, container: int, task_id: int) -> tuple[topology_pb2.Topology, str]:
    """The topology, and the component that the packing plan gives to this task."""
    try:
        topology = topology_pb2.Topology.FromString(handed(topology_file(launch.sockets_dir, container)))
        packing = plan_pb2.PackingPlan.FromString(handed(plan_file(launch.sockets_dir, container)))
    except OSError as error:
        raise RetryableError(
            f"the executor of container {container} has not handed over the topology:"
            f" {error.filename}: {error.strerror or error}"
        ) from None
    for one in packing.containers:
        for instance in one.instances:
            if instance.task_id == task_id:
                return topology, instance.component
    # Its executor is behind the plan, or only an old plan could be read: both are temporary.
    raise RetryableError(f"task {task_id} is not in the packing plan of topology {launch.topology}")
