"""A stream manager's reports: heartbeats to the topology master, metrics under Heron's names to the executor."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

from google.protobuf.message import Message

from heronpy.common.errors import HeronError
from heronpy.proto import control_pb2

from .control import Control
from .sessions import Session, Sessions
from .switch import Switch

_STARTED = time.monotonic()
#: The counters of the switch that are reported.
COUNTED = (
    "__stmgr_garbage",
    "__stmgr_malformed_frames",
    "__stmgr_stale_frames",
    "__stmgr_fenced_links",
    "__stmgr_lost_links",
    "__stmgr_damaged_links",
)
#: Maximum number of links that are counted separately, and the label of all other links.
PEERS_MAX, OTHERS = 50, "others"
COUNTER, GAUGE = control_pb2.Sample.COUNTER, control_pb2.Sample.GAUGE
#: Pause in seconds before a report is sent again.
RETRY_S = 0.2
KEPT_MAX = 10_000

_Key = tuple[str, int]


def heartbeat(machine: Control, switch: Switch, now: float) -> control_pb2.StmgrHeartbeat:
    """Return the state of a container's tasks and queues, and, once, the last statuses of replaced processes."""
    queued_bytes, queued_tuples = switch.queued()
    sessions = machine.sessions
    dropped = Counter[str]()
    for (component, _), tuples in switch.dropped.items():
        dropped[component] += tuples
    return control_pb2.StmgrHeartbeat(
        stmgr_id=machine.name,
        epoch=machine.epoch,
        plan_version=machine.plan.version if machine.plan else 0,
        tasks=[
            *(_ended_status(status, switch) for status in sessions.take_ended()),
            *(_status_of(session, switch) for session in sessions.by_task.values()),
        ],
        queued_bytes=queued_bytes,
        queued_tuples=queued_tuples,
        in_flight_tuples=switch.in_flight(),
        culprits=machine.culprits(now),
        discarded_tuples=switch.discarded.total() - dropped.total(),
        lost_tuples=switch.lost_tuples,
        dropped=dropped,
        clamped=switch.backpressure.holding,
        unacked_roots=sum(acker.live_roots for acker in switch.ackers.values()),
    )


def at_registration(sessions: Sessions, switch: Switch) -> list[control_pb2.TaskStatus]:
    """Return the statuses of all tasks, for a topology master; replaced processes first, so that they count, too."""
    ended = [_ended_status(status, switch) for status in sessions.all_ended]
    return [*ended, *(session.status for session in sessions.by_task.values())]


def _status_of(session: Session, switch: Switch) -> control_pb2.TaskStatus:
    """Return a task's last status; frames that wait here for the task are part of its queue."""
    task = switch.tasks.get(session.status.task_id)
    waiting = task.link.queued_bytes if task is not None else 0
    # A silent task may have been killed before it could report the tuples sent since its last report.
    sent = task.received_tuples() if task is not None and session.lost and task.epoch == session.status.epoch else 0
    if waiting <= session.status.in_queue_bytes and sent <= session.status.emitted:
        return session.status
    status = control_pb2.TaskStatus()
    status.CopyFrom(session.status)
    status.in_queue_bytes = max(waiting, status.in_queue_bytes)
    status.emitted = max(sent, status.emitted)
    return status


def _ended_status(status: control_pb2.TaskStatus, switch: Switch) -> control_pb2.TaskStatus:
    """Return the last status of a replaced process; it emitted at least the tuples that have arrived here."""
    task = switch.tasks.get(status.task_id)
    if task is not None and task.ended[0] == status.epoch:
        status.emitted = max(status.emitted, task.ended[1])
    elif task is not None and task.epoch == status.epoch:  # its successor has no data link yet
        status.emitted = max(status.emitted, task.received_tuples())
    return status


def _by_peer(switch: Switch) -> Iterator[tuple[str, int, int]]:
    """Yield the name, sent frames and sent tuples of each link to a stream manager; links beyond `PEERS_MAX` are
    summed."""
    # Container numbers only grow, so a new container does not push an earlier container beyond the limit.
    peers = sorted(switch.peers.items(), key=lambda item: (len(item[0]), item[0]))
    for name, peer in peers[:PEERS_MAX]:
        yield name, peer.link.total_frames, peer.link.total_tuples
    rest = [peer.link for _, peer in peers[PEERS_MAX:]]
    if rest:
        yield OTHERS, sum(link.total_frames for link in rest), sum(link.total_tuples for link in rest)


def metrics(
    machine: Control, switch: Switch, container: int, refused: dict[str, int], now: float
) -> control_pb2.MetricsReport:
    """Return all samples of one stream manager. `refused` has the counters of its sockets, by name."""
    instances = machine.instances
    message = control_pb2.MetricsReport(process=machine.name, container=container, epoch=machine.epoch, pid=os.getpid())

    def name_of(task: int) -> str:
        return instances[task].instance_id if task in instances else f"task {task}"

    def add(sample: str, value: float, label: str = "", kind: control_pb2.Sample.Type = COUNTER) -> None:
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
    add("__frames_to_workers", counts["frames_to_workers"] + sum(link.total_frames for link in workers))
    add("__frames_to_stmgrs", sum(p.link.total_frames for p in switch.peers.values()))
    for peer, frames, tuples in _by_peer(switch):
        add("__frames_to_stmgrs_by_peer", frames, peer)
        add("__tuples_to_stmgrs_by_peer", tuples, peer)
    add("__ack_tuples_from_workers", counts["ack_tuples"])
    add("__fail_tuples_from_workers", counts["fail_tuples"])
    add("__ack_tuples_to_stmgrs_lost", counts["ack_tuples_lost"])
    for reason, tuples in switch.discarded.items():
        add("__instance_dropped_tuples", tuples, reason)
    for reason, tuples in switch.attempts.rewound.items():
        add("__stmgr_rewound_tuples", tuples, reason)
    for what in COUNTED:
        add(what, counts[what.removeprefix("__stmgr_")])
    add("__stmgr_fenced_tasks", machine.sessions.fenced)
    add("__stmgr_refused_links", switch.pending.refused)
    for what, count in refused.items():
        add(what, count)
    add("__stmgr_link_gaps", counts["link_gaps"] + sum(source.gaps for source in switch.sources.values()))
    add("__stmgr_unacked_roots", sum(a.live_roots for a in switch.ackers.values()), kind=GAUGE)
    add("__time_spent_back_pressure_aggr", switch.backpressure.held_until(now) * 1000)
    for (_, instance), tuples in switch.dropped.items():
        add("__tuples_dropped_by_compid", tuples, instance)
    for culprit, seconds in () if switch.backpressure.drops else switch.backpressure.spent(now).items():
        add("__time_spent_back_pressure_by_compid", seconds * 1000, name_of(culprit))
    for culprit, seconds in switch.backpressure.spent(now, avoided=True).items():
        add("__time_spent_avoiding_by_compid", seconds * 1000, name_of(culprit))
    for task in switch.tasks.values():
        add("__tuples_by_instanceid", task.link.total_came, name_of(task.task))
        add("__connection_buffer_by_instanceid/bytes", task.link.queued_bytes, name_of(task.task), GAUGE)
        add("__connection_buffer_length_by_instanceid/packets", len(task.link.queue), name_of(task.task), GAUGE)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    add("__process/__cpu_user_usec", usage.ru_utime * 1e6)
    add("__process/__cpu_system_usec", usage.ru_stime * 1e6)
    add("__process/__uptime_sec", now - _STARTED)
    # The open fails if the process has no free descriptor at the moment.
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as statm:
        add("__process/__mem_used_bytes", int(statm.read().split()[1]) * resource.getpagesize(), kind=GAUGE)
    return message


class CheckpointReports:
    """Reports of tasks and this stream manager about checkpoints, resent until the topology master confirms them.

    `call` sends a message to the topology master and waits for its answer.

    A new topology master gets the reports that its predecessor did not confirm. Invariants: only the newest report of
    each kind and task is kept, so memory is bounded; dropped reports are counted.
    """

    def __init__(self, name: str, call: Callable[[Message], Awaitable[Any]]) -> None:
        self._name = name
        self._call = call
        self._kept: dict[_Key, Message] = {}
        self._jobs: dict[_Key, asyncio.Task[None]] = {}
        #: Number of reports that were dropped because there were too many.
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._kept)

    def report(self, kind: str, task: int, body: Message) -> None:
        """Pass a report on; an older report of the same kind and task is not sent again."""
        key = (kind, task)
        if key not in self._kept and len(self._kept) >= KEPT_MAX:
            self.dropped += 1
            return
        self._kept[key] = body
        if key not in self._jobs:
            self._jobs[key] = asyncio.get_running_loop().create_task(self._deliver(key))

    def lost(self, attempt: int, task: int, tuples: int, reason: str) -> None:
        """Report that frames of the current attempt were dropped."""
        known = self._kept.get(("lost", task))
        if isinstance(known, control_pb2.DataLost) and known.attempt == attempt:
            known.tuples += tuples
            return
        body = control_pb2.DataLost(stmgr_id=self._name, attempt=attempt, task_id=task, tuples=tuples, reason=reason)
        self.report("lost", task, body)

    def forget(self, checkpoint: int) -> None:
        """Stop waiting for answers about this checkpoint and earlier checkpoints."""
        for key, body in list(self._kept.items()):
            if isinstance(body, control_pb2.TaskCheckpoint) and body.checkpoint <= checkpoint:
                del self._kept[key]

    async def _deliver(self, key: _Key) -> None:
        while (body := self._kept.get(key)) is not None:
            try:
                await self._call(body)
            except HeronError:
                await asyncio.sleep(RETRY_S)
                continue
            if self._kept.get(key) is body:
                del self._kept[key]
        # Deleted here and not in a callback, because a report that arrives before the callback would find a job that no
        # longer sends.
        del self._jobs[key]

    def close(self) -> None:
        self._kept.clear()
        for job in list(self._jobs.values()):
            job.cancel()
