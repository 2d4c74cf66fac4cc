"""The graph of a topology, and where its tasks run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from heronpy.common.ids import edge_id, instance_id
from heronpy.common.redaction import redacted
from heronpy.plan.component_config import shown_mode
from heronpy.proto import plan_pb2, topology_pb2
from heronpy.views.heron_plans import config_as_json, grouping_name, parallelism


class Node(Struct, kw_only=True):
    """A component."""

    name: str
    #: `spout` or `bolt`.
    kind: str
    #: Intended number of tasks.
    parallelism: int
    #: Python class, as `module.Class`; None if unknown.
    class_name: str | None
    #: Whether no other component receives the component's output.
    sink: bool
    #: Output streams: id to its field names.
    streams: dict[str, list[str]]
    #: `configuration` of the component, redacted.
    config: dict[str, str]


class Edge(Struct, kw_only=True):
    """A stream from one component to another; its id is `source/stream>target`."""

    id: str
    source: str
    target: str
    stream: str
    #: SHUFFLE, LOCAL_OR_SHUFFLE, FIELDS, ALL, LOWEST, NONE, DIRECT or CUSTOM.
    grouping: str
    #: For FIELDS: the fields by which tuples are grouped; otherwise empty.
    fields: list[str]


class TaskPlace(Struct, kw_only=True):
    """A task, with its host and container."""

    task_id: int
    #: `container_<c>_<component>_<task>`
    instance_id: str
    component: str
    #: Index of the task within the component, from 0.
    index: int


class ContainerPlace(Struct, kw_only=True):
    """A container with its tasks."""

    container: int
    #: Host of the container; None before the container has registered.
    host: str | None
    tasks: list[TaskPlace]
    #: Cores requested by the packing plan; None if none are requested.
    cpu: float | None
    ram_bytes: int | None
    disk_bytes: int | None


class Plan(Struct, kw_only=True):
    """`GET /plan`: nodes in the order of the topology, spouts first."""

    topology: str
    #: Version of the packing plan, to be sent as `If-Match` with an action.
    version: int
    mode: str
    nodes: list[Node]
    edges: list[Edge]
    containers: list[ContainerPlace]
    #: Effectively once: components that are restored together, and the attempt of each region.
    regions: list[list[str]]


def plan_of(
    topology: topology_pb2.Topology,
    packing: plan_pb2.PackingPlan,
    physical: plan_pb2.PhysicalPlan | None,
    hosts: Mapping[int, str],
) -> Plan:
    """Return the graph, and where each task runs. The version is that of the packing plan, on which updates are
    based."""
    consumed = {item.stream.component_name for bolt in topology.bolts for item in bolt.inputs}
    nodes = [_node(spout.comp, spout.outputs, "spout", consumed) for spout in topology.spouts]
    nodes += [_node(bolt.comp, bolt.outputs, "bolt", consumed) for bolt in topology.bolts]
    return Plan(
        topology=topology.name,
        version=packing.version,
        mode=shown_mode(topology),
        nodes=nodes,
        edges=[_edge(item, bolt.comp.name) for bolt in topology.bolts for item in bolt.inputs],
        containers=[_container(container, hosts) for container in sorted(packing.containers, key=lambda one: one.id)],
        regions=[list(region.components) for region in physical.regions] if physical is not None else [],
    )


def _node(
    comp: topology_pb2.Component, outputs: Iterable[topology_pb2.OutputStream], kind: str, consumed: set[str]
) -> Node:
    return Node(
        name=comp.name,
        kind=kind,
        parallelism=parallelism(comp),
        class_name=comp.class_name or None,
        sink=comp.name not in consumed,
        streams={output.stream.id: [key.key for key in output.schema.keys] for output in outputs},
        config={key: str(redacted(value, key)) for key, value in config_as_json(comp.config).items()},
    )


def _edge(item: topology_pb2.InputStream, target: str) -> Edge:
    source, stream = item.stream.component_name, item.stream.id
    return Edge(
        id=edge_id(source, stream, target),
        source=source,
        target=target,
        stream=stream,
        grouping=grouping_name(item),
        fields=[key.key for key in item.grouping_fields.keys],
    )


def _container(container: plan_pb2.ContainerPlan, hosts: Mapping[int, str]) -> ContainerPlace:
    need = container.required
    return ContainerPlace(
        container=container.id,
        host=hosts.get(container.id),
        tasks=[
            TaskPlace(
                task_id=task.task_id,
                instance_id=instance_id(container.id, task.component, task.task_id),
                component=task.component,
                index=task.component_index,
            )
            for task in container.instances
        ],
        cpu=need.cpu or None,
        ram_bytes=need.ram_bytes or None,
        disk_bytes=need.disk_bytes or None,
    )
