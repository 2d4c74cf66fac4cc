"""A status reply condensed by component, shared by `status`, `top` and `submit --wait`. Pure.

All numbers of a view come from one reply, whose counters were read at one moment. Counters are totals over all
processes of a task, so a rate is never negative. If a new topology master lacks the old count, the rate is shown as 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from heronpy.cli.output import clean, picked
from heronpy.cli.render.exceptions import body_of
from heronpy.common.losses import (
    UNKNOWN,
    about_letters,
    given_up_text,
    letters_estimated,
    losses_text,
    lost_text,
    state_label,
)
from heronpy.common.states import BRIEF_S, UP_STATES, culprit_name, holds, lifecycle_name, task_name
from heronpy.common.units import counted, format_bytes, format_duration, listed
from heronpy.plan.component_config import config_of, drop_policy, reliability_mode
from heronpy.proto import control_pb2

DOWN_SHOWN = 5


def state_text(status: control_pb2.StatusReply) -> str:
    """Return `RUNNING`, `FINISHED WITH LOSSES: 12`, or `DEGRADED: ` and the cause; may contain text from user code."""
    name, label = lifecycle_name(status.lifecycle), label_of(status)
    if label != name:
        label = f"{label}: {losses_text(status.totals)}"
        return f"{label}; {status.cause}" if status.cause else label
    return f"{name}: {status.cause}" if status.cause else name


def label_of(status: control_pb2.StatusReply) -> str:
    """Return the state in words, such as `RUNNING` or `FINISHED WITH LOSSES`."""
    return state_label(lifecycle_name(status.lifecycle), status.totals)


def losses_sentence(target: object, name: str, totals: control_pb2.TupleTotals) -> str:
    """Return the sentence about tuples missing from a result, with the command for dead letters; "" without losses."""
    lost = losses_text(totals)
    if not lost:
        return ""
    where = f"; 'heron dead-letters {target} {name}' shows the dead letters" if totals.dead_letters else ""
    did, lack = ("may have abandoned", "may not be") if lost == UNKNOWN else ("abandoned", "are not")
    return f"topology '{name}' {did} tuples ({given_up_text(totals)}): its results {lack} complete{where}"


def _at_least(status: control_pb2.StatusReply) -> bool:
    """Whether the counts of acked and failed tuples are lower bounds; False if no tuples are tracked."""
    totals = status.totals
    may_track = reliability_mode(status.plan.topology) == "ATLEAST_ONCE" and not totals.untracked
    return bool(totals.at_least and (may_track or totals.acked or totals.failed or totals.replayed))


def totals_text(status: control_pb2.StatusReply) -> str:
    """Return the outcome of all tuples, in one line."""
    totals = status.totals
    least = "at least " if _at_least(status) else ""
    resent = f" ({least}{totals.not_resent:,} not sent again)" if totals.not_resent else ""
    failed = f"failed {least}{totals.failed:,}{resent}"
    # Only the spout's author knows whether fail() emits the tuple again.
    replayed = f"replayed up to {totals.replayed:,} (may be counted twice)" if totals.replayed else "replayed 0"
    unknown = begun_again_text(status)
    if unknown:
        number = "0, but" if reliability_mode(status.plan.topology) == "ATMOST_ONCE" else "an unknown number:"
        replayed = f"replayed {number} {unknown} (may be counted twice)"
    if _effectively_once(status) and totals.restores:
        times = "once" if totals.restores == 1 else f"{totals.restores:,} times"
        replayed = f"restored {times}, {replayed}" if unknown else f"restored {times} (replayed tuples count once)"
    letters = f"dead letters {about_letters(totals)}{totals.dead_letters:,}"
    discarded = f", discarded {count:,}" if (count := sum(status.dropped.values())) else ""
    return f"acked {least}{totals.acked:,}, {failed}, {replayed}, {letters}, lost {lost_text(totals)}{discarded}"


def begun_again_text(status: control_pb2.StatusReply) -> str:
    """Return the spouts that may have emitted everything again, such as `task 1 of src began again`; "" if none did.

    Under EFFECTIVELY_ONCE, where spouts have to be rewound, the text is like `task 1 of src cannot be rewound`.
    """
    totals = status.totals
    if not totals.spouts_begun_again:
        return ""
    more = totals.spouts_begun_again - len(totals.begun_again)
    names = clean(", ".join(totals.begun_again)) + (f" and {more:,} more" if more else "")
    return f"{names} cannot be rewound" if _effectively_once(status) else f"{names} began again"


def counted_twice_text(status: control_pb2.StatusReply) -> str:
    """Return the warning that tuples may be counted twice, with a fix; "" if no spout began again."""
    unknown = begun_again_text(status)
    if not unknown:
        return ""
    if _effectively_once(status):
        help_text = "; a spout is rewound only if it is a StatefulComponent and keeps its position in its state"
    else:
        help_text = (
            ", unless its new process resumed; with topology.reliability.mode EFFECTIVELY_ONCE and a spout that keeps"
            " its position in a state, each tuple counts once"
        )
    return f"{unknown}, so an unknown number of tuples may be counted twice{help_text}"


def _effectively_once(status: control_pb2.StatusReply) -> bool:
    return reliability_mode(status.plan.topology) == "EFFECTIVELY_ONCE"


def memory_text(processes: Iterable[control_pb2.ProcessRecord]) -> str | None:
    """Return the memory of all processes as text, with shared pages counted once; None if unknown.

    The text begins with `up to` while a process's share has not been measured, because shared pages then count twice.
    """
    known = [one for one in processes if one.rss_bytes]
    total = format_bytes(sum(one.pss_bytes or one.rss_bytes for one in known))
    return None if not known else total if all(one.pss_bytes for one in known) else f"up to {total}"


def trouble_texts(status: control_pb2.StatusReply) -> list[str]:
    """Return the totals if they show a problem, for views that are otherwise short."""
    totals = status.totals
    worries = totals.failed or totals.replayed or totals.restores or totals.spouts_begun_again or _at_least(status)
    return [totals_text(status)] if worries or losses_text(totals) else []


class ComponentRow(Struct):
    """Sums over the tasks of one component; counts include tasks that updates have removed."""

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
    #: Frames with tuples that a spout sends or a bolt receives, and the tuples in them.
    frames_per_s: float = 0.0
    frame_tuples_per_s: float = 0.0
    #: Whether a process ended without a last report, so that its latest counts are missing.
    at_least: bool = False

    @property
    def tuples_per_frame(self) -> float:
        """Tuples per frame; 0 while no frames pass."""
        return self.frame_tuples_per_s / self.frames_per_s if self.frames_per_s else 0.0

    def as_json(self, rates: bool = True) -> dict[str, Any]:
        """Return the fields of the row; `rates` is False if there was only one reply, from which no rates are known."""
        found = {
            field: getattr(self, field) for field in self.__struct_fields__ if rates or not field.endswith("_per_s")
        }
        if rates:
            del found["frame_tuples_per_s"]
            found["tuples_per_frame"] = self.tuples_per_frame
        return found


def components(
    status: control_pb2.StatusReply, before: control_pb2.StatusReply | None = None, elapsed_s: float = 0.0
) -> list[ComponentRow]:
    """Return one row per component, in the topology's order; rates are measured since the reply `before`."""
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
        row.at_least = row.at_least or task.at_least
        row.in_queue_tuples += task.in_queue_tuples
        row.in_queue_bytes += task.in_queue_bytes
        row.out_queue_tuples += task.out_queue_tuples
        row.pending += task.pending
        row.loop_age_s = max(row.loop_age_s, task.loop_age_s)
        old = earlier.get(task.task_id)
        # Counts are from reports, so the time between two reports counts, not the time between two replies.
        over_s = task.counted_at - old.counted_at if old is not None and old.counted_at else elapsed_s
        if old is not None and over_s > 0:
            row.emitted_per_s += max(task.emitted - old.emitted, 0) / over_s
            row.executed_per_s += max(task.executed - old.executed, 0) / over_s
            _add_frames(row, task, old)
    for gone in status.retired:
        if gone.component in rows:  # rates cover the present tasks only
            row = rows[gone.component]
            row.emitted += gone.emitted
            row.executed += gone.executed
            row.acked += gone.acked
            row.failed += gone.failed
            row.at_least = row.at_least or gone.at_least
    for culprit in status.culprits:
        if culprit.component in rows and holds(culprit):
            rows[culprit.component].backpressure = True
    return list(rows.values())


def _add_frames(row: ComponentRow, task: control_pb2.TaskStatus, old: control_pb2.TaskStatus) -> None:
    """Add a task's frames per second between two reports, each of which contains the time of its counts.

    Each process counts its frames from 0, so no rate is known across a restart.
    """
    seconds = task.counted_at - old.counted_at
    if seconds <= 0 or task.epoch != old.epoch:
        return
    if row.is_spout:
        frames, tuples = task.sent_frames - old.sent_frames, task.sent_tuples - old.sent_tuples
    else:
        frames, tuples = task.consumed_frames - old.consumed_frames, task.consumed_tuples - old.consumed_tuples
    row.frames_per_s += max(frames, 0) / seconds
    row.frame_tuples_per_s += max(tuples, 0) / seconds


def culprit_text(culprit: control_pb2.Culprit) -> str:
    """Return the sentence that names a full task, whether or not the task holds back the topology."""
    if not holds(culprit):
        what = f"its tuples go to the other tasks of {culprit.component}"
        return (
            f"full: {culprit_name(culprit)}; {'tuples that do not fit are discarded' if culprit.drops else what}"
            f" (for {format_duration(culprit.since_s)}, {format_bytes(culprit.queued_bytes)} queued)"
        )
    return (
        f"backpressure: {culprit_name(culprit)} is {'full' if culprit.since_s < BRIEF_S else 'too slow'}"
        f" (full for {format_duration(culprit.since_s)}, {format_bytes(culprit.queued_bytes)} queued in"
        f" {culprit.stmgr_id})"
    )


def dropped_texts(status: control_pb2.StatusReply) -> list[str]:
    """Return the counts of tuples discarded on purpose, by component, with the policy."""
    why = f"which was full ({drop_policy(config_of(status.plan.topology))})"
    return [f"{counted(tuples, 'tuple')} for {name}, {why}" for name, tuples in sorted(status.dropped.items())]


def not_limited_text(executors: Iterable[control_pb2.RegisterExecutor]) -> str:
    """Return the sentence about containers without resource limits, with reason and fix; "" if all are limited."""
    found = sorted((one for one in executors if one.not_limited), key=lambda one: one.container)
    if not found:
        return ""
    who = f"Container {found[0].container} is" if len(found) == 1 else f"{len(found)} containers are"
    return (
        f"{who} not limited to the requested CPU and memory, because no control group can be created"
        f" ({clean(found[0].not_limited)}); allow the scheduler's user to create control groups, or set"
        " heron.executor.control_groups to false if no limits are wanted"
    )


def down_tasks(status: control_pb2.StatusReply) -> list[control_pb2.TaskStatus]:
    """Return the tasks that are down, including tasks whose process has ended but whose state does not show it yet."""
    ended = {
        process.name
        for executor in status.executors
        for process in executor.processes
        if process.task_id and process.state in (control_pb2.PROC_BACKOFF, control_pb2.PROC_FAILED)
    }
    return [task for task in status.tasks if task.state not in UP_STATES or task.instance_id in ended]


def down_texts(status: control_pb2.StatusReply) -> list[str]:
    """Return a sentence for each of the first processes that wait for a restart; [] if the topology is DEGRADED."""
    if status.lifecycle == control_pb2.LIFE_DEGRADED:
        return []
    found = []
    for executor in status.executors:
        for process in executor.processes:
            if process.state == control_pb2.PROC_BACKOFF:
                why = ": ".join(part for part in (process.exit_reason.replace("_", " "), process.exit_detail) if part)
                found.append(f"{process.name} is down, restart {process.restarts}: {why}".rstrip(": "))
    return found[:DOWN_SHOWN]


def troubled_processes(executors: Iterable[control_pb2.RegisterExecutor]) -> list[control_pb2.ProcessRecord]:
    """Return the processes that are not running or have been restarted."""
    return [
        process
        for executor in executors
        for process in executor.processes
        if process.state != control_pb2.PROC_RUNNING or process.restarts
    ]


def as_json(status: control_pb2.StatusReply, rows: list[ComponentRow], rates: bool = True) -> dict[str, Any]:
    """Return the documented content of `heron top --json`, or without `rates` the core of `heron status --json`."""
    return {
        **picked(status, "topology", "topology_id", "cause", "plan_version", "discarded_tuples", "exceptions"),
        "lifecycle": lifecycle_name(status.lifecycle),
        "state": label_of(status),
        "uptime_s": round(status.uptime_s, 3),
        "totals": {
            **picked(
                status.totals,
                *("acked", "failed", "not_resent", "replayed", "dead_letters", "lost", "lost_estimated", "restores"),
                *("lost_unknown", "letters_at_least"),
            ),
            "at_least": status.totals.at_least,
            "dead_letters_estimated": letters_estimated(status.totals),
            "replayed_unknown": bool(status.totals.spouts_begun_again),
            **picked(status.totals, "spouts_begun_again"),
            "begun_again": list(status.totals.begun_again),
        },
        "losses": losses_text(status.totals) or None,
        "dropped": {"policy": drop_policy(config_of(status.plan.topology)) or None, "tuples": dict(status.dropped)},
        "components": [row.as_json(rates) for row in rows],
        "backpressure": [
            picked(
                culprit,
                *("instance_id", "component", "task_id", "peer", "stmgr_id", "queued_bytes", "since_s"),
                *("avoided", "drops"),
            )
            for culprit in status.culprits
        ],
    }


def ready(status: control_pb2.StatusReply) -> bool:
    """Whether every task has initialised; a bounded topology may already be past RUNNING."""
    return status.lifecycle in (
        control_pb2.LIFE_RUNNING,
        control_pb2.LIFE_DEGRADED,
        control_pb2.LIFE_PAUSED,
        control_pb2.LIFE_FINISHING,
        control_pb2.LIFE_FINISHED,
    )


def missing(status: control_pb2.StatusReply | None, tasks: int) -> str:
    """Return why the topology is not ready yet, as part of a sentence."""
    if status is None:
        return "the topology master has not answered yet"
    waiting = [task_name(task) for task in status.tasks if task.state not in UP_STATES]
    unknown = tasks - len(status.tasks)
    parts = []
    if waiting:
        parts.append(f"{len(waiting)} of {tasks} tasks not ready: {listed(waiting)}")
    if unknown > 0:
        parts.append(f"{unknown} of {tasks} tasks have not reported yet")
    if status.cause:
        parts.append(status.cause)
    return clean("; ".join(parts) or "the topology master has not declared it running")


def failure_report(status: control_pb2.StatusReply) -> str:
    """Return the full tracebacks of the failed tasks; tasks with the same failure share one traceback."""
    alike: dict[str, list[str]] = {}
    for report in status.startup_exceptions:
        text = body_of(report.traceback or report.message)
        alike.setdefault(text, []).append(clean(report.instance_id or report.process))
    blocks = [f"{listed(names)} failed to start:\n{text}" for text, names in alike.items()]
    if not blocks:
        for task in status.tasks:
            if task.state == control_pb2.TASK_FAILED:
                blocks.append(f"{clean(task_name(task))}:\n{body_of(task.error)}")
    return "\n\n".join(blocks)
