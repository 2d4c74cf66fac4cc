"""Derives one task's output streams, choosers and inputs from a physical plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heronpy.common.errors import TopologyError
from heronpy.common.topology_keys import TOPOLOGY_MAX_SPOUT_PENDING
from heronpy.plan.component_config import config_of
from heronpy.plan.grouping import make_chooser
from heronpy.proto import components_of, plan_pb2, topology_pb2

#: Key of a custom grouping object: (consumer component, source component, stream).
GroupingKey = tuple[str, str, str]


def output_streams(topology: topology_pb2.Topology, component: str) -> list[tuple[str, list[str], bool]]:
    """Return (name, fields, direct) of a component's output streams, sorted. The index in the list is Frame.stream."""
    part = components_of(topology).get(component)
    if part is None:
        raise TopologyError(f"component {component} is not in the plan of topology {topology.name}")
    return sorted((o.stream.id, [k.key for k in o.schema.keys], o.direct) for o in part.outputs)


def arrow_schemas(topology: topology_pb2.Topology, component: str) -> list[bytes]:
    """Return the serialised Arrow schemas of a component's output streams, by index; a schema is empty if the stream
    has none.
    """
    part = components_of(topology).get(component)
    return [] if part is None else [o.arrow_schema for o in sorted(part.outputs, key=lambda out: out.stream.id)]


def arrow_inputs(topology: topology_pb2.Topology) -> dict[str, dict[str, bytes]]:
    """Return the serialised Arrow schemas by component and stream."""
    return {
        name: {output.stream.id: output.arrow_schema for output in part.outputs if output.arrow_schema}
        for name, part in components_of(topology).items()
        if any(output.arrow_schema for output in part.outputs)
    }


def component_of(plan: plan_pb2.PhysicalPlan) -> dict[int, str]:
    """Return a map from task id to component."""
    return {instance.task_id: instance.component for instance in plan.instances}


def choosers_for(
    plan: plan_pb2.PhysicalPlan,
    component: str,
    task_id: int,
    container: int,
    custom: Mapping[GroupingKey, Any],
    key_groups: int = 0,
) -> dict[str, list[Any]]:
    """Return one chooser per consumer of each output stream of `component`.

    Shuffles of different senders start at different tasks, so that even a few tuples spread evenly. With `key_groups`
    (EFFECTIVELY_ONCE) fields groupings follow the key groups of keyed state.
    """
    tasks: dict[str, list[int]] = {}
    local: dict[str, list[int]] = {}
    for instance in plan.instances:
        tasks.setdefault(instance.component, []).append(instance.task_id)
        if instance.container == container:
            local.setdefault(instance.component, []).append(instance.task_id)
    schemas = {name: fields for name, fields, _ in output_streams(plan.topology, component)}
    choosers: dict[str, list[Any]] = {}
    for bolt in plan.topology.bolts:
        consumer = bolt.comp.name
        for source in bolt.inputs:
            if source.stream.component_name != component or not tasks.get(consumer):
                continue
            stream = source.stream.id
            chooser = make_chooser(
                source,
                schemas[stream],
                tasks[consumer],
                start=task_id,
                local_tasks=local.get(consumer, []),
                custom=custom.get((consumer, component, stream)),
                key_groups=key_groups,
            )
            choosers.setdefault(stream, []).append(chooser)
    return choosers


def schemas_of(topology: topology_pb2.Topology) -> dict[str, list[tuple[str, list[str]]]]:
    """Return the (name, fields) of every output stream, by component and index."""
    return {
        name: [(stream, fields) for stream, fields, _ in output_streams(topology, name)]
        for name in components_of(topology)
    }


def spout_tasks(plan: plan_pb2.PhysicalPlan) -> int:
    """Return the total number of spout tasks."""
    spouts = {spout.comp.name for spout in plan.topology.spouts}
    return sum(record.component in spouts for record in plan.instances)


def pending_max(topology: topology_pb2.Topology) -> float:
    """Return the smallest limit on pending tuples per task of any spout; infinite if no spout has a limit."""
    shared = config_of(topology)
    limits = ({**shared, **config_of(spout)}.get(TOPOLOGY_MAX_SPOUT_PENDING) for spout in topology.spouts)
    return min((float(limit) for limit in limits if limit), default=float("inf"))


def downstream_tasks(plan: plan_pb2.PhysicalPlan | None, component: str) -> list[int]:
    """Return all tasks of all consumers of a component's streams."""
    assert plan is not None
    consumers = {
        bolt.comp.name
        for bolt in plan.topology.bolts
        if any(source.stream.component_name == component for source in bolt.inputs)
    }
    return sorted(record.task_id for record in plan.instances if record.component in consumers)


def upstream_tasks(plan: plan_pb2.PhysicalPlan, component: str) -> list[int]:
    """Return all tasks that send to a bolt."""
    sources = {
        source.stream.component_name
        for bolt in plan.topology.bolts
        if bolt.comp.name == component
        for source in bolt.inputs
    }
    return sorted(record.task_id for record in plan.instances if record.component in sources)


def input_streams(topology: topology_pb2.Topology, component: str) -> list[str]:
    """Return the streams that a bolt consumes, as "component/stream"."""
    return [
        f"{source.stream.component_name}/{source.stream.id}"
        for bolt in topology.bolts
        if bolt.comp.name == component
        for source in bolt.inputs
    ]
