"""Adds zeros for tasks that have counted nothing yet to a metrics reply. Pure.

A process reports a counter only after its first count. Without the zeros of the others there would seem to
be fewer tasks, and a task that gets no tuples could not be found.
"""

from __future__ import annotations

from heronpy.common.ids import instance_id
from heronpy.proto import control_pb2, plan_pb2


def add_zeros(
    reply: control_pb2.MetricsReply, plan: plan_pb2.PackingPlan, component: str, instances: tuple[str, ...]
) -> None:
    """Give each requested task of the plan the counters that another task of its component reports."""
    counters: dict[str, set[tuple[str, str]]] = {}
    reports = {report.process: report for report in reply.reports}
    for report in reply.reports:
        if report.component:
            found = {(s.name, s.label) for s in report.samples if s.type == control_pb2.Sample.COUNTER}
            counters.setdefault(report.component, set()).update(found)
    for container in plan.containers:
        for task in container.instances:
            name = instance_id(container.id, task.component, task.task_id)
            if component not in ("", task.component) or (instances and name not in instances):
                continue
            wanted = counters.get(task.component, set())
            mine = reports.get(name)
            if mine is None:
                if not wanted:
                    continue
                mine = reply.reports.add(
                    process=name, component=task.component, task_id=task.task_id, container=container.id
                )
            told = {(sample.name, sample.label) for sample in mine.samples}
            for metric, label in sorted(wanted - told):
                mine.samples.add(name=metric, label=label, type=control_pb2.Sample.COUNTER)
