"""Watches a running load topology from outside until it has finished.

There are three intervals, for the CPU of all processes, the status of the topology master (queues, backpressure) and
memory (the most expensive, so measured least often). Each sample is stored with its monotonic time, unprocessed.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from heronpy.common.states import culprit_name
from heronpy.loadtest.cluster import Topology
from heronpy.loadtest.errors import LabError
from heronpy.loadtest.processes import Memory, Tree, machine_busy_s
from heronpy.proto import control_pb2

FRAME_METRICS = (
    "__gateway-sent-packets-count",
    "__gateway-sent-tuples-count",
    "__gateway-sent-messages-count",
    "__gateway-received-messages-count",
)


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of all tasks in a run."""

    sent: int
    """Number of sent frames that contain tuples."""
    sent_tuples: int
    every_kind: int
    """Number of frames, sent and received, with tuples, acks or credit."""

    def tuples_per_frame(self) -> float:
        """Mean number of tuples per frame; 0 if no frame was sent."""
        return self.sent_tuples / self.sent if self.sent else 0.0


def frames_of(reply: control_pb2.MetricsReply) -> Frames:
    """Return the frames that the tasks have reported since their start."""
    sums = dict.fromkeys(FRAME_METRICS, 0.0)
    for report in reply.reports:
        if report.task_id:
            for sample in report.samples:
                if sample.name in sums:
                    sums[sample.name] += sample.value
    sent, tuples, out, back = (round(sums[name]) for name in FRAME_METRICS)
    return Frames(sent, tuples, out + back)


CPU_EVERY_S = 0.25
STATUS_EVERY_S = 0.5
MEMORY_EVERY_S = 1.0
#: Number of processes above which memory and context switches are too expensive to sample repeatedly.
PROCESSES_MANY = 40
CLAMPED = "__time_spent_back_pressure_aggr"


@dataclass(frozen=True, slots=True)
class CpuLook:
    """A sample of the CPU seconds so far."""

    at: float
    by_role: dict[str, float]
    by_process: dict[str, float]
    machine_s: float
    driver_s: float
    switches: int | None = None
    """Voluntary context switches so far; None if there are too many processes."""


@dataclass(frozen=True, slots=True)
class StatusLook:
    """A sample of the topology master's status."""

    at: float
    in_queue: dict[str, int]
    """Queued tuples by component, or by stream manager for tuples queued there."""
    queued_bytes: int
    pending: int
    culprits: tuple[str, ...]
    clamped: bool


@dataclass(slots=True)
class Watch:
    topology: Topology
    tree: Tree
    cpu: list[CpuLook] = field(default_factory=list)
    statuses: list[StatusLook] = field(default_factory=list)
    memory: list[tuple[float, dict[str, Memory]]] = field(default_factory=list)
    last_status: control_pb2.StatusReply | None = None
    clamped_s: float = 0.0
    frames: Frames | None = None

    def look_cpu(self) -> None:
        own = psutil.Process().cpu_times()
        at, by_role = time.monotonic(), self.tree.cpu()
        busy, driver = machine_busy_s(), own.user + own.system
        switches = self.tree.switches() if len(self.tree.seen) <= PROCESSES_MANY else None
        self.cpu.append(CpuLook(at, by_role, self.tree.cpu_by_process(), busy, driver, switches))

    def look_memory(self) -> None:
        full = len(self.tree.seen) <= PROCESSES_MANY
        self.memory.append((time.monotonic(), self.tree.memory(full)))

    def look_status(self) -> control_pb2.StatusReply | None:
        status = self.topology.status()
        if status is None:
            return None
        self.last_status = status
        queues: dict[str, int] = {}
        for task in status.tasks:
            queues[task.component] = queues.get(task.component, 0) + task.in_queue_tuples + task.out_queue_tuples
        queues["stream managers"] = sum(stmgr.queued_tuples + stmgr.in_flight_tuples for stmgr in status.stmgrs)
        self.statuses.append(
            StatusLook(
                time.monotonic(),
                queues,
                sum(stmgr.queued_bytes for stmgr in status.stmgrs),
                sum(task.pending for task in status.tasks),
                tuple(sorted({culprit_name(culprit) for culprit in status.culprits})),
                any(stmgr.clamped for stmgr in status.stmgrs),
            )
        )
        return status

    def restarts(self) -> list[str]:
        """Return the names of restarted processes, with the reason for the last exit."""
        if self.last_status is None:
            return []
        processes = [process for executor in self.last_status.executors for process in executor.processes]
        return [f"{one.name} ({one.exit_reason or 'unknown'})" for one in processes if one.restarts]

    def discarded(self) -> int:
        return self.last_status.discarded_tuples if self.last_status is not None else 0

    def until_finished(self, deadline_s: float) -> None:
        """Watch until the topology has finished. Raises LabError if it fails or does not finish in time."""
        deadline = time.monotonic() + deadline_s
        next_cpu = next_status = next_memory = next_tree = 0.0
        while True:
            now = time.monotonic()
            if now >= next_tree:
                self.tree.refresh()
                next_tree = now + 1.0
            if now >= next_cpu:
                self.look_cpu()
                next_cpu = now + CPU_EVERY_S
            if now >= next_memory:
                self.look_memory()
                next_memory = now + MEMORY_EVERY_S
            if now >= next_status:
                status = self.look_status()
                next_status = now + STATUS_EVERY_S
                if status is not None and self._over(status):
                    break
                if now > deadline:
                    raise LabError(self._late(status, deadline_s))
            time.sleep(max(0.0, min(next_cpu, next_status) - time.monotonic()))
        self.look_cpu()
        self._read_metrics()

    def spent(self) -> dict[str, float]:
        """Return the CPU seconds by role since the first sample."""
        before, after = self.cpu[0].by_role, self.cpu[-1].by_role
        return {role: after[role] - before.get(role, 0.0) for role in after}

    def _over(self, status: control_pb2.StatusReply) -> bool:
        name = self.topology.name
        if status.lifecycle == control_pb2.LIFE_FAILED or status.startup_exceptions:
            raise LabError(f"'{name}' failed: {status.cause}\n{self.topology.exceptions()}".rstrip())
        return status.lifecycle == control_pb2.LIFE_FINISHED

    def _late(self, status: control_pb2.StatusReply | None, deadline_s: float) -> str:
        states = [
            f"{task.instance_id} {control_pb2.TaskState.Name(task.state).removeprefix('TASK_')}"
            f" ({task.in_queue_tuples} waiting, {task.pending} pending)"
            for task in (status.tasks[:8] if status is not None else ())
        ] or ["the topology master does not answer"]
        text = f"'{self.topology.name}' has not finished after {deadline_s:.0f} s: {', '.join(states)}"
        return f"{text}\n{self.topology.exceptions()}".rstrip()

    def _read_metrics(self) -> None:
        """Read how long the stream managers have held back spouts (the maximum), and the frame counts of all tasks."""
        with suppress(LabError):
            reply = self.topology.metrics([CLAMPED, *FRAME_METRICS])
            values = [sample.value for report in reply.reports for sample in report.samples if sample.name == CLAMPED]
            self.clamped_s = max(values, default=0.0) / 1000
            self.frames = frames_of(reply)


def watch(topology: Topology) -> Watch:
    tree = Tree(topology.scheduler())
    tree.refresh()
    return Watch(topology, tree)


def watch_whole(topology: Topology, deadline_s: float) -> Watch:
    """Activate a bounded topology, and watch it until its end. Raises LabError like `until_finished`."""
    seen = watch(topology)
    seen.look_cpu()
    topology.activate()
    seen.until_finished(deadline_s)
    return seen
