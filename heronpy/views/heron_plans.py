"""Plans as JSON in the format of Heron's tracker. Pure."""

from __future__ import annotations

from typing import Any

from heronpy.api.api_constants import TOPOLOGY_COMPONENT_PARALLELISM
from heronpy.common.ids import stmgr_id
from heronpy.proto import components_of, plan_pb2, topology_pb2


def logical_plan(topology: topology_pb2.Topology) -> dict[str, Any]:
    """Return the spouts and bolts by name, with their streams, inputs and configuration."""
    spouts = {spout.comp.name: _component(spout) for spout in topology.spouts}
    bolts = {
        bolt.comp.name: {
            **_component(bolt),
            "inputs": [
                {
                    "stream_name": item.stream.id,
                    "component_name": item.stream.component_name,
                    "grouping": grouping_name(item),
                    "fields": [key.key for key in item.grouping_fields.keys],
                }
                for item in bolt.inputs
            ],
        }
        for bolt in topology.bolts
    }
    return {
        "name": topology.name,
        "id": topology.id,
        "config": config_as_json(topology.topology_config),
        "spouts": spouts,
        "bolts": bolts,
    }


def _component(part: topology_pb2.Spout | topology_pb2.Bolt) -> dict[str, Any]:
    return {
        "class": part.comp.class_name or None,
        "parallelism": parallelism(part.comp),
        "config": config_as_json(part.comp.config),
        "outputs": [
            {"stream_name": output.stream.id, "fields": [key.key for key in output.schema.keys]}
            for output in part.outputs
        ],
    }


def parallelism(component: topology_pb2.Component) -> int:
    """Return the number of tasks; 1 unless the component sets a number."""
    for item in component.config.kvs:
        if item.key == TOPOLOGY_COMPONENT_PARALLELISM and item.value.isdigit():
            return int(item.value)
    return 1


def config_as_json(config: topology_pb2.Config) -> dict[str, str]:
    """Return the configuration with texts unchanged and serialized values replaced by their size."""
    return {
        item.key: f"<serialized, {len(item.serialized_value)} bytes>"
        if item.HasField("serialized_value")
        else item.value
        for item in config.kvs
    }


def grouping_name(item: topology_pb2.InputStream) -> str:
    if item.prefer_local and item.gtype == topology_pb2.SHUFFLE:
        return "LOCAL_OR_SHUFFLE"
    return topology_pb2.Grouping.Name(item.gtype)


def packing_plan(plan: plan_pb2.PackingPlan) -> dict[str, Any]:
    """Return the containers with their instances and resources."""
    return {
        "id": plan.id,
        "version": plan.version,
        "container_plans": [
            {
                "id": container.id,
                "instances": [
                    {
                        "component_name": instance.component,
                        "task_id": instance.task_id,
                        "component_index": instance.component_index,
                        "instance_resources": _resource(instance.resource),
                    }
                    for instance in container.instances
                ],
                "required_resources": _resource(container.required),
            }
            for container in plan.containers
        ],
    }


def _resource(resource: plan_pb2.Resource) -> dict[str, float]:
    return {"cpu": resource.cpu, "ram": resource.ram_bytes, "disk": resource.disk_bytes}


def physical_plan(plan: plan_pb2.PhysicalPlan) -> dict[str, Any]:
    """Return the instances, the stream managers, and the instances of each component."""
    groups: dict[str, list[str]] = {}
    of_component: dict[str, list[str]] = {}
    for instance in plan.instances:
        groups.setdefault(f"container_{instance.container}", []).append(instance.instance_id)
        of_component.setdefault(instance.component, []).append(instance.instance_id)
    topology = plan.topology
    parts = [part.comp for part in components_of(topology).values()]
    return {
        "name": topology.name,
        "version": plan.version,
        "tmaster_epoch": plan.tmaster_epoch,
        "instances": {
            instance.instance_id: {
                "id": instance.instance_id,
                "name": instance.component,
                "task_id": instance.task_id,
                "component_index": instance.component_index,
                "container": instance.container,
                "stmgrId": stmgr_id(instance.container),
            }
            for instance in plan.instances
        },
        "instance_groups": groups,
        "stmgrs": {
            stmgr.id: {
                "id": stmgr.id,
                "host": stmgr.host,
                "pid": stmgr.pid,
                "epoch": stmgr.epoch,
                "endpoint": stmgr.data_endpoint,
                "instance_ids": groups.get(f"container_{stmgr.container}", []),
            }
            for stmgr in plan.stmgrs
        },
        "spouts": {spout.comp.name: of_component.get(spout.comp.name, []) for spout in topology.spouts},
        "bolts": {bolt.comp.name: of_component.get(bolt.comp.name, []) for bolt in topology.bolts},
        "components": {comp.name: {"config": config_as_json(comp.config)} for comp in parts},
        "config": config_as_json(topology.topology_config),
    }
