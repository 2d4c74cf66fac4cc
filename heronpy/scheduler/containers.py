"""Which containers should run, from the packing plan (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from heronpy.common.ids import executor_id
from heronpy.packing.requests import ResourceRequest
from heronpy.procs.supervision import ProcessSpec
from heronpy.proto import plan_pb2
from heronpy.scheduler.placement_events import ContainerSpec

EXECUTOR = "executor"


def desired_containers(plan: plan_pb2.PackingPlan | None, stop_grace_s: float) -> tuple[ProcessSpec, ...]:
    """Container 0 for the topology master, and those of the plan."""
    numbers = {0} | ({c.id for c in plan.containers} if plan is not None else set())
    return tuple(ProcessSpec(executor_id(number), EXECUTOR, stop_grace_s=stop_grace_s) for number in sorted(numbers))


def container_specs(requests: Mapping[int, ResourceRequest], standbys: int) -> tuple[ContainerSpec, ...]:
    """What to ask an engine for; containers with a standby topology master and container 0 avoid each other's hosts."""
    numbers = sorted(requests)
    apart = tuple(numbers[1 : 1 + standbys])
    return tuple(
        ContainerSpec(
            number,
            requests[number].cpu,
            requests[number].ram_bytes,
            requests[number].disk_bytes,
            apart_from=apart if number == 0 else (0,) if number in apart else (),
        )
        for number in numbers
    )
