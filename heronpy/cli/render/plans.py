"""`heron plan`: the logical, packing and physical plan as tables, JSON and text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from google.protobuf.message import Message

from heronpy.cli import exits
from heronpy.cli.output import clean, console, print_json, say, table
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.units import counted, format_bytes
from heronpy.proto import plan_pb2, topology_pb2
from heronpy.views import heron_plans
from heronpy.views.heron_plans import grouping_name, parallelism

P = TypeVar("P", bound=Message)


def show_physical(plan: plan_pb2.PhysicalPlan, coloured: bool = False) -> None:
    """Print the plan: stream managers, then instances."""
    stmgrs = [[stmgr.id, stmgr.host, str(stmgr.pid), str(stmgr.epoch), stmgr.data_endpoint] for stmgr in plan.stmgrs]
    title = f"Physical plan of '{clean(plan.topology.name)}', version {plan.version}"
    screen = console(coloured)
    columns = ("stream manager", "host", "pid", "epoch", "endpoint")
    screen.print(table(columns, stmgrs, title, right=("pid", "epoch")))
    instances = [
        [instance.instance_id, instance.component, instance.task_id, instance.container]
        for instance in sorted(plan.instances, key=lambda instance: (instance.container, instance.task_id))
    ]
    screen.print(table(("instance", "component", "task", "container"), instances, right=("task", "container")))


def _cpu(count: float) -> str | None:
    """Return the requested cores as text; None if no cores are requested."""
    return f"{count:g}" if count else None


def _bytes(count: int) -> str | None:
    return format_bytes(count) if count else None


def show_packing(plan: plan_pb2.PackingPlan, coloured: bool = False) -> None:
    """Print the plan as a table: for each container a row with the sum, then one row per instance."""
    from rich.text import Text

    rows: list[list[object]] = []
    for container in plan.containers:
        total = container.required
        style = "bold yellow" if coloured else ""
        rows.append(
            [
                Text(str(container.id), style=style),
                Text(counted(len(container.instances), "task"), style=style),
                None,
                _cpu(total.cpu),
                _bytes(total.ram_bytes),
                _bytes(total.disk_bytes),
            ]
        )
        for instance in container.instances:
            need = instance.resource
            rows.append(
                [
                    "",
                    Text(f"  {clean(instance.component)}", style="cyan" if coloured else ""),
                    instance.task_id,
                    _cpu(need.cpu),
                    _bytes(need.ram_bytes),
                    _bytes(need.disk_bytes),
                ]
            )
    columns = ("container", "component", "task", "cpu", "ram", "disk")
    tasks = sum(len(container.instances) for container in plan.containers)
    amount = f"{counted(tasks, 'task')} in {counted(len(plan.containers), 'container')}"
    title = f"Packing plan, version {plan.version}: {amount}"
    console(coloured).print(table(columns, rows, title, right=columns[2:]))


def _input_text(item: topology_pb2.InputStream) -> str:
    fields = ", ".join(key.key for key in item.grouping_fields.keys)
    stream = "" if item.stream.id == "default" else f".{item.stream.id}"
    grouping = grouping_name(item).lower() + (f"({fields})" if fields else "")
    return f"{item.stream.component_name}{stream}: {grouping}"


def _output_text(outputs: Iterable[topology_pb2.OutputStream]) -> str:
    return "; ".join(f"{output.stream.id}({', '.join(key.key for key in output.schema.keys)})" for output in outputs)


def show_logical(topology: topology_pb2.Topology, coloured: bool = False) -> None:
    """Print the plan as a table with one row per component."""
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


def show_plan(target: Target, topology: str, which: str, form: str, as_json: bool, common: Common) -> None:
    """Print one of the plans of a topology."""
    session = Session(target, common)
    session.find(topology)
    form = "json" if as_json else form
    if which == "logical":
        _print(session.topology(topology), heron_plans.logical_plan, show_logical, form)
    elif which == "packing":
        _print(session.packing_plan(topology), heron_plans.packing_plan, show_packing, form)
    else:
        physical = session.physical_plan(topology)
        if physical is None:
            raise exits.Failure(
                f"topology '{topology}' has no physical plan yet; see 'heron status {target} {topology}' for the reason"
            )
        _print(physical, heron_plans.physical_plan, show_physical, form)


def _print(plan: P, as_json: Callable[[P], dict[str, Any]], show: Callable[[P, bool], None], form: str) -> None:
    if form == "json":
        print_json(as_json(plan))
    elif form == "raw":
        say(str(plan).rstrip())
    else:
        show(plan, form == "colored_table")
