"""The logical plan as a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from heronpy.cli.output import clean, console, table
from heronpy.proto import topology_pb2
from heronpy.views.heron_plans import grouping_name, parallelism


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
