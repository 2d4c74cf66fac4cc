"""Topology messages for tests, written in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heronpy.proto import topology_pb2


def put(config: Any, values: Mapping[str, Any]) -> None:
    """Write settings as the API does: text, or bytes for a serialized value."""
    for key, value in values.items():
        if isinstance(value, bytes):
            config.kvs.add(key=key, serialized_value=value, type=topology_pb2.PYTHON_SERIALIZED_VALUE)
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            config.kvs.add(key=key, value=text, type=topology_pb2.STRING_VALUE)


class TopologyMessage:
    """Builds a Topology message; nothing is checked."""

    def __init__(self, name: str = "topo", **config: Any) -> None:
        self.message = topology_pb2.Topology(id=f"{name}-id", name=name, state=topology_pb2.RUNNING)
        put(self.message.topology_config, {key.replace("__", "."): v for key, v in config.items()})

    def config(self, **values: Any) -> TopologyMessage:
        put(self.message.topology_config, {k.replace("__", "."): v for k, v in values.items()})
        return self

    def spout(
        self,
        name: str,
        par: Any = 1,
        outputs: Mapping[str, list[str]] | None = None,
        direct: tuple[str, ...] = (),
        **config: Any,
    ) -> TopologyMessage:
        self._component(self.message.spouts.add(), name, par, outputs, direct, config)
        return self

    def bolt(
        self,
        name: str,
        inputs: list[Any],
        par: Any = 1,
        outputs: Mapping[str, list[str]] | None = None,
        direct: tuple[str, ...] = (),
        **config: Any,
    ) -> TopologyMessage:
        """`inputs`: component, or (component, stream, grouping, [fields])."""
        part = self.message.bolts.add()
        self._component(part, name, par, outputs, direct, config)
        for item in inputs:
            source, stream, grouping, fields = (
                (item, "default", topology_pb2.SHUFFLE, []) if isinstance(item, str) else item
            )
            added = part.inputs.add(gtype=grouping)
            added.stream.component_name = source
            added.stream.id = stream
            for field in fields:
                added.grouping_fields.keys.add(key=field, type=topology_pb2.OBJECT)
        return self

    def _component(
        self,
        part: Any,
        name: str,
        par: Any,
        outputs: Mapping[str, list[str]] | None,
        direct: tuple[str, ...],
        config: Mapping[str, Any],
    ) -> None:
        part.comp.name = name
        values = {key.replace("__", "."): value for key, value in config.items()}
        if par is not None:
            values["topology.component.parallelism"] = par
        put(part.comp.config, values)
        for stream, fields in ({"default": ["word"]} if outputs is None else outputs).items():
            output = part.outputs.add(direct=stream in direct)
            output.stream.component_name = name
            output.stream.id = stream
            for field in fields:
                output.schema.keys.add(key=field, type=topology_pb2.OBJECT)


def chain(parallelism: Mapping[str, int], **config: Any) -> topology_pb2.Topology:
    """The first component is a spout, every other a bolt after the one before."""
    topology = TopologyMessage(**config)
    previous = None
    for name, par in parallelism.items():
        if previous is None:
            topology.spout(name, par)
        else:
            topology.bolt(name, [previous], par)
        previous = name
    return topology.message
