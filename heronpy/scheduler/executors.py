"""Which containers run on this host, from the packing plan. Pure."""

from __future__ import annotations

from heronpy.common.ids import executor_id
from heronpy.procs.supervision import ProcessSpec
from heronpy.proto import plan_pb2

EXECUTOR = "executor"


def desired_containers(plan: plan_pb2.PackingPlan | None, stop_grace_s: float) -> tuple[ProcessSpec, ...]:
    """Container 0 for the topology master, and those of the plan."""
    numbers = {0} | ({c.id for c in plan.containers} if plan is not None else set())
    return tuple(ProcessSpec(executor_id(number), EXECUTOR, stop_grace_s=stop_grace_s) for number in sorted(numbers))
