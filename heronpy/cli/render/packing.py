"""The packing plan as a table. Pure."""

from __future__ import annotations

from heronpy.cli.output import clean, console, table
from heronpy.common.units import counted, format_bytes
from heronpy.proto import plan_pb2


def _cpu(count: float) -> str | None:
    """None when the topology requests nothing."""
    return f"{count:g}" if count else None


def _bytes(count: int) -> str | None:
    return format_bytes(count) if count else None


def show(plan: plan_pb2.PackingPlan, coloured: bool = False) -> None:
    """Print the plan as a table, an instance per row, the container's sum first."""
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
