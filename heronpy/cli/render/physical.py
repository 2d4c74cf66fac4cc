"""The physical plan as a table. Pure."""

from __future__ import annotations

from heronpy.cli.output import clean, console, table
from heronpy.proto import plan_pb2


def show(plan: plan_pb2.PhysicalPlan, coloured: bool = False) -> None:
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
