"""A status reply condensed by component: pure, shared by `status`, `top` and `submit --wait`.

All numbers of a view are of one reply, whose counters are of one moment. Counters are totals over all processes of a
task, so a rate is never negative: one that a topology master could not take over from its predecessor shows as 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heronpy.proto import control_pb2 as control

if TYPE_CHECKING:
    from collections.abc import Iterable

DOWN_SHOWN = 5
UP = (control.TASK_RUNNING, control.TASK_PAUSED, control.TASK_EXHAUSTED, control.TASK_FINISHED)


def lifecycle_name(status: control.StatusReply) -> str:
    """RUNNING, PAUSED, ..."""
    return control.Lifecycle.Name(status.lifecycle).removeprefix("LIFE_")


def state_text(status: control.StatusReply) -> str:
    """`RUNNING`, `FINISHED WITH LOSSES: 12`, or `DEGRADED: ` and the cause; may hold what users wrote."""
    name = lifecycle_name(status)
    lost = losses_text(status.totals)
    if status.lifecycle == control.LIFE_FINISHED and lost:
        name = f"{name} WITH LOSSES: {lost}"
        return f"{name}; {status.cause}" if status.cause else name
    return f"{name}: {status.cause}" if status.cause else name


def losses_text(totals: control.TupleTotals) -> str:
    """How many tuples are missing from the result: `12`, `at least 12`, `an unknown number`; empty when none are."""
    count = totals.dead_letters + totals.lost
    if not totals.lost_at_least:
        return f"{count:,}" if count else ""
    return f"at least {count:,}" if count else "an unknown number"


def given_up_text(totals: control.TupleTotals) -> str:
    """How the missing tuples were given up: `2 dead letters, at least 3 lost`."""
    from heronpy.cli.output import counted

    lost = f"{'at least ' if totals.lost_at_least else ''}{totals.lost:,} lost"
    return f"{counted(totals.dead_letters, 'dead letter')}, {lost}"


def totals_text(status: control.StatusReply) -> str:
    """What became of all tuples, in one line."""
    from heronpy.plan.component_config import reliability_mode

    totals = status.totals
    replayed = f"replayed {totals.replayed:,}" + (" (may be counted twice)" if totals.replayed else "")
    if reliability_mode(status.plan.topology) == "EFFECTIVELY_ONCE" and totals.restores:
        times = "once" if totals.restores == 1 else f"{totals.restores:,} times"
        replayed = f"restored {times} (what was replayed counts once)"
    return (
        f"acked {totals.acked:,}, failed {totals.failed:,}, {replayed}, dead letters {totals.dead_letters:,},"
        f" lost {'at least ' if totals.lost_at_least else ''}{totals.lost:,}"
    )


def trouble_texts(status: control.StatusReply) -> list[str]:
    """The totals when something of them should worry, for views that are short otherwise."""
    totals = status.totals
    worries = totals.failed or totals.replayed or totals.restores or losses_text(totals)
    return [totals_text(status)] if worries else []


def task_state_name(state: int) -> str:
    return control.TaskState.Name(control.TaskState.ValueType(state)).removeprefix("TASK_")


def process_state_name(state: int) -> str:
    return control.ProcessState.Name(control.ProcessState.ValueType(state)).removeprefix("PROC_")


@dataclass(slots=True)
class ComponentRow:
    """Sums over the tasks of one component."""

    name: str
    is_spout: bool
    tasks: int = 0
    up: int = 0
    emitted: int = 0
    executed: int = 0
    acked: int = 0
    failed: int = 0
    emitted_per_s: float = 0.0
    executed_per_s: float = 0.0
    in_queue_tuples: int = 0
    in_queue_bytes: int = 0
    out_queue_tuples: int = 0
    pending: int = 0
    loop_age_s: float = 0.0
    backpressure: bool = False

    def as_json(self) -> dict[str, Any]:
        return {field: getattr(self, field) for field in self.__slots__}


def components(
    status: control.StatusReply, before: control.StatusReply | None = None, elapsed_s: float = 0.0
) -> list[ComponentRow]:
    """A row per component in the topology's order; rates since the reply `before`."""
    topology = status.plan.topology
    rows = {spout.comp.name: ComponentRow(spout.comp.name, True) for spout in topology.spouts}
    rows.update({bolt.comp.name: ComponentRow(bolt.comp.name, False) for bolt in topology.bolts})
    earlier = {task.task_id: task for task in before.tasks} if before is not None else {}
    down = {task.task_id for task in down_tasks(status)}
    for task in status.tasks:
        row = rows.setdefault(task.component, ComponentRow(task.component, False))
        row.tasks += 1
        row.up += task.task_id not in down
        row.emitted += task.emitted
        row.executed += task.executed
        row.acked += task.acked
        row.failed += task.failed
        row.in_queue_tuples += task.in_queue_tuples
        row.in_queue_bytes += task.in_queue_bytes
        row.out_queue_tuples += task.out_queue_tuples
        row.pending += task.pending
        row.loop_age_s = max(row.loop_age_s, task.loop_age_s)
        old = earlier.get(task.task_id)
        if old is not None and elapsed_s > 0:
            row.emitted_per_s += max(task.emitted - old.emitted, 0) / elapsed_s
            row.executed_per_s += max(task.executed - old.executed, 0) / elapsed_s
    for culprit in status.culprits:
        if culprit.component in rows:
            rows[culprit.component].backpressure = True
    return list(rows.values())


def culprit_text(culprit: control.Culprit) -> str:
    """Who holds the topology back, as one sentence."""
    from heronpy.common.units import format_bytes, format_duration

    if culprit.task_id:
        who = f"{culprit.instance_id or culprit.component} is too slow"
    else:
        who = f"the link from {culprit.stmgr_id} to {culprit.peer or 'a peer'} is too slow"
    return (
        f"backpressure: {who} ({format_bytes(culprit.queued_bytes)} queued for {format_duration(culprit.since_s)},"
        f" announced by {culprit.stmgr_id})"
    )


def down_tasks(status: control.StatusReply) -> list[control.TaskStatus]:
    """Tasks that do not work now; an ended process is known before its silence is noticed."""
    ended = {
        process.name
        for executor in status.executors
        for process in executor.processes
        if process.task_id and process.state in (control.PROC_BACKOFF, control.PROC_FAILED)
    }
    return [task for task in status.tasks if task.state not in UP or task.instance_id in ended]


def down_texts(status: control.StatusReply) -> list[str]:
    """A sentence for each process that ended and waits for its restart, the first few, unless the cause says it."""
    if status.lifecycle == control.LIFE_DEGRADED:
        return []
    found = []
    for executor in status.executors:
        for process in executor.processes:
            if process.state == control.PROC_BACKOFF:
                why = ": ".join(part for part in (process.exit_reason.replace("_", " "), process.exit_detail) if part)
                found.append(f"{process.name} is down, restart {process.restarts}: {why}".rstrip(": "))
    return found[:DOWN_SHOWN]


def troubled_processes(executors: Iterable[control.RegisterExecutor]) -> list[control.ProcessRecord]:
    """Processes that are not running or were restarted."""
    return [
        process
        for executor in executors
        for process in executor.processes
        if process.state != control.PROC_RUNNING or process.restarts
    ]


def as_json(status: control.StatusReply, rows: list[ComponentRow]) -> dict[str, Any]:
    """The documented shape of `heron top --json` and the core of `heron status --json`."""
    return {
        "topology": status.topology,
        "topology_id": status.topology_id,
        "lifecycle": lifecycle_name(status),
        "cause": status.cause,
        "uptime_s": round(status.uptime_s, 3),
        "plan_version": status.plan_version,
        "discarded_tuples": status.discarded_tuples,
        "exceptions": status.exceptions,
        "totals": {
            "acked": status.totals.acked,
            "failed": status.totals.failed,
            "replayed": status.totals.replayed,
            "dead_letters": status.totals.dead_letters,
            "lost": status.totals.lost,
            "lost_at_least": status.totals.lost_at_least,
            "restores": status.totals.restores,
        },
        "components": [row.as_json() for row in rows],
        "backpressure": [
            {
                "instance_id": culprit.instance_id,
                "component": culprit.component,
                "task_id": culprit.task_id,
                "peer": culprit.peer,
                "stmgr_id": culprit.stmgr_id,
                "queued_bytes": culprit.queued_bytes,
                "since_s": culprit.since_s,
            }
            for culprit in status.culprits
        ],
    }
