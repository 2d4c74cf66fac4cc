"""The logical plan as a table or as JSON (the shape of Heron's tracker)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heronpy.api.api_constants import TOPOLOGY_COMPONENT_PARALLELISM
from heronpy.cli.output import clean, console, table
from heronpy.proto import topology_pb2


def as_json(topology: topology_pb2.Topology) -> dict[str, Any]:
    """spouts and bolts by name, with their streams, inputs and configuration."""
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
    """Number of tasks; 1 unless the component says otherwise."""
    for item in component.config.kvs:
        if item.key == TOPOLOGY_COMPONENT_PARALLELISM and item.value.isdigit():
            return int(item.value)
    return 1


def config_as_json(config: topology_pb2.Config) -> dict[str, str]:
    """Texts as they are; of a serialized value only its size."""
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


def _input_text(item: topology_pb2.InputStream) -> str:
    fields = ", ".join(key.key for key in item.grouping_fields.keys)
    stream = "" if item.stream.id == "default" else f".{item.stream.id}"
    grouping = grouping_name(item).lower() + (f"({fields})" if fields else "")
    return f"{item.stream.component_name}{stream}: {grouping}"


def _output_text(outputs: Iterable[topology_pb2.OutputStream]) -> str:
    return "; ".join(f"{output.stream.id}({', '.join(key.key for key in output.schema.keys)})" for output in outputs)


def show(topology: topology_pb2.Topology, coloured: bool = False) -> None:
    """Print the plan as a table, a component per row."""
    from rich.text import Text

    rows: list[list[object]] = []
    for kind, parts in (("spout", topology.spouts), ("bolt", topology.bolts)):
        for part in parts:
            inputs = "; ".join(_input_text(item) for item in getattr(part, "inputs", ())) or None
            style = ("green" if kind == "spout" else "cyan") if coloured else ""
            rows.append(
                [
                    Text(clean(part.comp.name), style=style),
                    kind,
                    parallelism(part.comp),
                    inputs,
                    _output_text(part.outputs) or None,
                ]
            )
    columns = ("component", "kind", "tasks", "inputs", "outputs")
    title = f"Logical plan of '{clean(topology.name)}'"
    console(coloured).print(table(columns, rows, title, right=("tasks",)))
