"""The stream manager's metrics, by Heron's names (heronpy-api.md 1.11)."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from typing import Any

from heronpy.proto import control_pb2 as control

from .sessions import Sessions
from .switch import Switch

_STARTED = time.monotonic()
#: What the switch counts under these names.
COUNTED = (
    "__stmgr_garbage",
    "__stmgr_malformed_frames",
    "__stmgr_stale_frames",
    "__stmgr_fenced_links",
    "__stmgr_lost_links",
    "__stmgr_damaged_links",
)
COUNTER, GAUGE = control.Sample.COUNTER, control.Sample.GAUGE


def report(
    switch: Switch, sessions: Sessions, name: str, container: int, epoch: int, instance_ids: dict[int, str]
) -> Any:
    """All samples of one stream manager."""
    message = control.MetricsReport(process=name, container=container, epoch=epoch, pid=os.getpid())

    def add(sample: str, value: float, label: str = "", kind: Any = COUNTER) -> None:
        message.samples.add(name=sample, label=label, type=kind, value=value)

    counts = switch.counts
    add("__tuples_from_workers", counts["tuples_from_workers"])
    add("__tuples_from_stmgrs", counts["tuples_from_stmgrs"])
    workers = [task.link for task in switch.tasks.values()]
    add("__tuples_to_workers", counts["tuples_to_workers"] + sum(link.total_tuples for link in workers))
    add("__tuples_to_stmgrs", sum(p.link.total_tuples for p in switch.peers.values()))
    add("__tuples_consumed_by_workers", counts["tuples_consumed"] + sum(link.total_consumed for link in workers))
    add("__tuples_queued", switch.queued()[1], kind=GAUGE)
    add("__tuples_in_flight", switch.in_flight(), kind=GAUGE)
    add("__bytes_to_workers", counts["bytes_to_workers"] + sum(link.total_bytes for link in workers))
    add("__bytes_to_stmgrs", sum(p.link.total_bytes for p in switch.peers.values()))
    add("__ack_tuples_from_workers", counts["ack_tuples"])
    add("__fail_tuples_from_workers", counts["fail_tuples"])
    add("__ack_tuples_to_stmgrs_lost", counts["ack_tuples_lost"])
    for reason, tuples in switch.discarded.items():
        add("__instance_dropped_tuples", tuples, reason)
    for reason, tuples in switch.attempts.rewound.items():
        add("__stmgr_rewound_tuples", tuples, reason)
    for what in COUNTED:
        add(what, counts[what.removeprefix("__stmgr_")])
    add("__stmgr_fenced_tasks", sessions.fenced)
    add("__stmgr_link_gaps", counts["link_gaps"] + sum(source.gaps for source in switch.sources.values()))
    add("__stmgr_unacked_roots", sum(a.live_roots for a in switch.ackers.values()), kind=GAUGE)
    now = time.monotonic()
    pressure = switch.backpressure
    running = now - pressure._clamped_since if pressure.clamped else 0.0
    add("__time_spent_back_pressure_aggr", (pressure.clamped_s + running) * 1000)
    for culprit, seconds in pressure.spent(now).items():
        add("__time_spent_back_pressure_by_compid", seconds * 1000, instance_ids.get(culprit, f"task {culprit}"))
    for task in switch.tasks.values():
        label = instance_ids.get(task.task, f"task {task.task}")
        add("__connection_buffer_by_instanceid/bytes", task.link.queued_bytes, label, GAUGE)
        add("__connection_buffer_length_by_instanceid/packets", len(task.link.queue), label, GAUGE)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    add("__process/__cpu_user_usec", usage.ru_utime * 1e6)
    add("__process/__cpu_system_usec", usage.ru_stime * 1e6)
    add("__process/__uptime_sec", now - _STARTED)
    # Not when no descriptor is left for a moment.
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as statm:
        add("__process/__mem_used_bytes", int(statm.read().split()[1]) * resource.getpagesize(), kind=GAUGE)
    return message
