"""Computes the number of buckets for each stage of a batch run, and the tasks of the run's plan. Pure.

Each component has one task for each bucket of its stage, so groupings and key groups work as in a stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heronpy.batch.stages import Stage
from heronpy.proto import plan_pb2, topology_pb2

#: Number of input bytes per bucket, and the largest number of buckets.
BUCKET_BYTES, BUCKETS_MAX = 4 << 20, 256
#: Target number of units, which consist of adjacent buckets, and bounds of a unit's weight.
UNITS, UNIT_MIN_BYTES, UNIT_MAX_BYTES = 16, 8 << 20, 64 << 20


def buckets_of(stages: Sequence[Stage], input_bytes: int, key_groups: int) -> dict[int, int]:
    """Return a map from stage number to number of tasks; `key_groups` is 0 without checkpoints."""
    most = min(BUCKETS_MAX, key_groups or BUCKETS_MAX)
    by_data = max(1, min(input_bytes // BUCKET_BYTES, most))
    return {stage.number: stage.tasks or by_data for stage in stages}


def bucket_unit_bytes(size: int) -> int:
    """Return a unit's weight in a stage whose buckets have `size` bytes; the weight depends only on the data."""
    return min(UNIT_MAX_BYTES, max(UNIT_MIN_BYTES, size // UNITS))


def run_plan(
    topology: topology_pb2.Topology, stages: Sequence[Stage], buckets: Mapping[int, int]
) -> plan_pb2.PhysicalPlan:
    """Return the plan of the run: each component has a task for each bucket of its stage, all in one container."""
    plan = plan_pb2.PhysicalPlan(topology=topology, version=1)
    for stage in stages:
        for component in stage.components:
            for index in range(buckets[stage.number]):
                plan.instances.add(
                    task_id=len(plan.instances) + 1, component=component, component_index=index, container=1
                )
    return plan
