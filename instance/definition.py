"""What a task reads before it starts: the topology, and its component in the packing plan.

Both come from the state manager. While that is down, the container's copies are used, so a task
that dies during an outage can restart. A copy is written atomically, next to the sockets of the topology.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from heronpy.common.errors import HeronError, RetryableError
from heronpy.common.folders import read_own
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import plan_pb2, topology_pb2
from heronpy.statemgr import open_state_of, paths
from heronpy.statemgr.base import MAX_BYTES

log = logging.getLogger("heron.instance")

_TOPOLOGY_COPY = "instance-topology.copy"
_PACKING_COPY = "instance-packing.copy"


def own_component(launch: LaunchSpec, task_id: int) -> tuple[topology_pb2.Topology, str]:
    """The topology, and the component that the packing plan gives to this task."""
    try:
        definition, packed = _read(launch)
    except RetryableError as error:
        definition, packed = _copies(launch, error)
        log.warning("starting with the last known plans: %s", error)
    topology = topology_pb2.Topology.FromString(definition)
    for container in plan_pb2.PackingPlan.FromString(packed).containers:
        for instance in container.instances:
            if instance.task_id == task_id:
                return topology, instance.component
    # Its executor is behind the plan, or only an old plan could be read: both are temporary.
    raise RetryableError(f"task {task_id} is not in the packing plan of topology {launch.topology}")


def _read(launch: LaunchSpec) -> tuple[bytes, bytes]:
    state = open_state_of(launch)
    try:
        found = state.get(paths.topology(launch.topology))
        packed = state.get(paths.packing_plan(launch.topology))
    finally:
        state.close()
    if found is None or packed is None:
        raise HeronError(f"topology {launch.topology} has no plan in the state manager; it was killed")
    folder = Path(launch.sockets_dir)
    _keep(folder / _TOPOLOGY_COPY, found[0])
    _keep(folder / _PACKING_COPY, packed[0])
    return found[0], packed[0]


def _keep(copy: Path, data: bytes) -> None:
    """Replace a copy that differs; without one the next start just waits for the state manager."""
    with contextlib.suppress(OSError):
        if copy.exists() and copy.read_bytes() == data:
            return
        draft = copy.with_name(f"{copy.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(draft, copy)


def _copies(launch: LaunchSpec, error: RetryableError) -> tuple[bytes, bytes]:
    folder = Path(launch.sockets_dir)
    try:
        return read_own(folder / _TOPOLOGY_COPY, MAX_BYTES), read_own(folder / _PACKING_COPY, MAX_BYTES)
    except OSError:
        raise error from None
