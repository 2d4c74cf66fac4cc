"""Checkpoints and restores of an EFFECTIVELY_ONCE topology in `heron status` and `heron top`."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from heronpy.cli.render.checkpoints import master_json, record_json, waiting_names
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.units import counted, format_bytes, format_duration
from heronpy.plan.component_config import reliability_mode
from heronpy.proto import control_pb2

ASK_S = 1.0
#: A checkpoint that takes longer than this is late.
LATE_S = 2.0


def ask(session: Session, status: control_pb2.StatusReply) -> control_pb2.CheckpointsReply | None:
    """Return the topology master's report on checkpoints; None in other modes or without an answer."""
    if reliability_mode(status.plan.topology) != "EFFECTIVELY_ONCE":
        return None
    try:
        return session.ask(status.topology, control_pb2.GetCheckpoints(), ASK_S)
    except HeronError:
        return None  # the status is complete without it


def lines(reply: control_pb2.CheckpointsReply, now: float) -> list[str]:
    """Return sentences about the last checkpoint, the checkpoint in progress, restores, and the last failure."""
    found = [_last(reply, now)]
    if reply.pending:
        found.append(
            f"checkpoint {reply.pending} in progress for {format_duration(reply.pending_s)},"
            f" {counted(reply.pending_tasks, 'task')} outstanding{waiting_names(reply)}"
        )
    restoring = [region for region in reply.regions if not region.started]
    why = f": {reply.last_restore}" if reply.last_restore else ""
    for region in restoring:
        start = f"checkpoint {region.checkpoint}" if region.checkpoint else "empty state"
        if reply.restores:
            found.append(f"restoring {', '.join(region.components)} from {start} (attempt {region.attempt}){why}")
        else:
            found.append(f"starting {', '.join(region.components)} from {start}")
    if reply.restores and not restoring:
        took = f" (took {format_duration(reply.last_restore_s)})" if reply.last_restore_s else ""
        times = "once" if reply.restores == 1 else f"{reply.restores:,} times, last"
        # A restarted topology master has only the number.
        found.append(f"restored {times}{why or '; heron events says why'}{took}")
    if reply.last_failure:
        count = reply.aborted + reply.failed
        last = "" if count == 1 else ", last"
        found.append(f"{counted(count, 'checkpoint')} did not complete{last}: {reply.last_failure}")
    return found


def _last(reply: control_pb2.CheckpointsReply, now: float) -> str:
    if not reply.complete:
        return "no checkpoint yet"
    last = max(reply.complete, key=lambda record: record.checkpoint)
    age = format_duration(max(now - last.taken_at, 0.0))
    return (
        f"last checkpoint {last.checkpoint}, {age} ago: {format_bytes(last.total_bytes)},"
        f" {format_bytes(last.uploaded_bytes)} of it written, in {format_duration(last.duration_s)}"
        + (", DAMAGED" if last.damaged else "")
    )


def current_lines(session: Session, status: control_pb2.StatusReply) -> list[str]:
    """Return the `lines` of the topology master's current report."""
    reply = ask(session, status)
    if reply is None:
        return []
    waits_for = barrier_text(reply, status)
    return lines(reply, time.time()) + ([waits_for] if waits_for else [])


def barrier_text(reply: control_pb2.CheckpointsReply, status: control_pb2.StatusReply) -> str:
    """Return the sentence about the component that delays checkpoints; "" if there is none or all queues are empty."""
    late = reply.pending and reply.pending_s >= LATE_S
    if not late and (reply.complete or not (reply.aborted + reply.failed)):
        return ""
    queued = Counter[str]()
    for task in status.tasks:
        queued[task.component] += task.in_queue_tuples
    component, tuples = max(queued.items(), key=lambda item: item[1], default=("", 0))
    if not tuples:
        return ""
    return f"checkpoints wait until {component} has processed the {counted(tuples, 'tuple')} before their barrier"


def as_json(session: Session, status: control_pb2.StatusReply) -> dict[str, Any]:
    """Return the report on checkpoints for `heron status --json` and `heron top --json`."""
    reply = ask(session, status)
    checkpoints = None
    if reply is not None:
        last = max(reply.complete, key=lambda record: record.checkpoint, default=None)
        checkpoints = {"last": record_json(last) if last is not None else None, **master_json(reply)}
    return {"mode": reliability_mode(status.plan.topology), "checkpoints": checkpoints}
