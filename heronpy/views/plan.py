"""The graph of a topology and where its tasks run. Pure."""

from __future__ import annotations

from msgspec import Struct


class Node(Struct, kw_only=True):
    """A component."""

    name: str
    #: `spout` or `bolt`.
    kind: str
    #: Tasks that it should have.
    parallelism: int
    #: Python class, as `module.Class`; None when it is not known.
    class_name: str | None
    #: Whether it keeps state in checkpoints or in windows; what `heron update` must not cut is a matter of the doctor.
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
    #: Of FIELDS: the fields that decide; else empty.
    fields: list[str]


class TaskPlace(Struct, kw_only=True):
    """A task and its place."""

    task_id: int
    #: `container_<c>_<component>_<task>`
    instance_id: str
    component: str
    #: 0-based, within the component.
    index: int


class ContainerPlace(Struct, kw_only=True):
    """A container with its tasks."""

    container: int
    #: Where it runs; None before it has registered.
    host: str | None
    tasks: list[TaskPlace]
    #: What the packing plan asks for; None: nothing.
    cpu: float | None
    ram_bytes: int | None
    disk_bytes: int | None


class Plan(Struct, kw_only=True):
    """`GET /plan`: nodes in the order of the topology, spouts first."""

    topology: str
    #: Of the packing plan; give it as `If-Match` with an action.
    version: int
    mode: str
    nodes: list[Node]
    edges: list[Edge]
    containers: list[ContainerPlace]
    #: Effectively once: components that are restored together, and the attempt of each.
    regions: list[list[str]]
