"""The figures of now: by component, by stream and by task. Sums are made by the topology master. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite

from msgspec import Struct

from heronpy.common.states import UP_STATES, culprit_name, holds, process_state_name, task_state_name
from heronpy.metrics.quantiles import IN_CALL_S, Quantile, quantiles_s
from heronpy.proto import control_pb2
from heronpy.views.findings import Finding
from heronpy.views.overview import Totals

#: What `tasks_of` reads, to be asked for with an interval.
TASK_METRICS = (
    "__execute-count", "__emit-count", "__fail-count", "__execute-latency", "__next-tuple-latency", "__busy-time-ns",
    "__blocked-time-ns", "__idle-time-ns", "__py-user-cpu-time-secs", "__py-sys-cpu-time-secs",
    "__gateway-sent-packets-count", "__gateway-sent-tuples-count",
    "__gateway-consumed-packets-count", "__gateway-consumed-tuples-count",
)  # fmt: skip


class ComponentLoad(Struct, kw_only=True):
    """Sums and extremes over the tasks of one component."""

    name: str
    #: `spout` or `bolt`.
    kind: str
    tasks: int
    up: int
    #: Tuples.
    emitted_per_s: float | None
    executed_per_s: float | None
    acked_per_s: float | None
    failed_per_s: float | None
    #: Frames with tuples that a spout sends or a bolt has processed, and how many tuples one carries.
    frames_per_s: float | None
    tuples_per_frame: float | None
    #: Shares of time of the mean task; the three sum to 1. Busy: in user code and the runtime's work for it; blocked:
    #: waiting for room in a full queue behind it; idle: waiting for input.
    busy: float | None
    blocked: float | None
    idle: float | None
    #: Busy share of its busiest task, which colours the node, and the name of that task.
    busy_max: float | None
    busiest: str | None
    blocked_max: float | None
    most_blocked: str | None
    #: Waiting in front of its tasks.
    queue_tuples: int | None
    queue_bytes: int | None
    #: In the task with the longest queue, and which task that is.
    queue_bytes_max: int | None
    fullest: str | None
    #: A queue of a task does not grow beyond this.
    queue_bound_bytes: int | None
    #: Emitted by a spout and neither acked nor failed.
    pending: int | None
    #: What the tasks of a spout have yet to emit, as their `backlog` says; None: unknown.
    backlog_tuples: int | None = None
    backlog_bytes: int | None = None
    #: Why `heron update` refuses another number of tasks; empty: it does not.
    not_scalable: str = ""
    #: Time in user code for one tuple.
    latency_p50_s: float | None
    latency_p99_s: float | None
    #: The mean of it, and its median over the healthy minutes of a day; a component that is full or holds
    #: the spouts back has no healthy minute.
    wall_s: float | None
    usual_s: float | None
    #: How unevenly its tasks work: the standard deviation of their rates, divided by the mean.
    spread: float | None
    #: Keys of keyed state in the mean task; None: it has no such state, or does not tell.
    keys: float | None
    #: Tuples that a task of an asynchronous bolt may have in progress at once.
    concurrency: int | None
    #: For a sink: from emit at the spout to the end of its processing.
    end_to_end_p50_s: float | None
    end_to_end_p99_s: float | None
    #: For a spout with acks: from emit to the full ack.
    complete_p50_s: float | None
    complete_p99_s: float | None
    #: Whether the quantiles above are lower bounds, those of 99 % at least: beyond the last bucket of what is counted,
    #: or of a call that has not ended.
    latency_at_least: bool = False
    end_to_end_at_least: bool = False
    complete_at_least: bool = False
    #: CPU seconds per second, all tasks.
    cpu: float | None
    memory_bytes: int | None
    #: Memory of its largest task, and the name of that task.
    memory_bytes_max: int | None
    largest: str | None
    #: Limit of one task; None: no limit.
    memory_limit_bytes: int | None
    #: Restarts of its processes since `Load.since`.
    restarts: int | None
    #: Tuples given up, and tuples lost, since submit; None: not all that the topology has lost was counted.
    dead_letters: int | None
    lost: int | None


class EdgeLoad(Struct, kw_only=True):
    """One stream between two components; `id` as in the plan."""

    id: str
    #: Emitted by the source; what the target has processed of it is part of its `executed_per_s`.
    tuples_per_s: float | None


class Culprit(Struct, kw_only=True):
    """The task that holds the spouts back now."""

    #: The instance, or the link between two stream managers.
    name: str
    component: str | None
    task_id: int | None
    queued_bytes: int
    #: How long already.
    since_s: float
    #: The stream manager that announces it.
    stmgr: str


class Load(Struct, kw_only=True):
    """`GET /load`"""

    #: Version of the packing plan, as `Plan.version`.
    plan_version: int
    state: str
    cause: str
    #: Wall time at the topology master when it was made.
    at: float
    #: The time that rates and shares are over; None: there is no window yet.
    window_s: float | None
    #: From when on the topology master has reports.
    since: float | None
    components: list[ComponentLoad]
    edges: list[EdgeLoad]
    #: Share of the window in which spouts were held.
    held: float | None
    culprits: list[Culprit]
    #: Full tasks whose share the other tasks of their component take; they hold no spout.
    avoided: list[Culprit] = []
    #: Full tasks of a topology that discards what does not fit; they hold no spout.
    dropping: list[Culprit] = []
    #: Tuples that were discarded so, by the component that they were for.
    dropped: dict[str, int] = {}
    #: From emitting a tuple at its spout to the end of its processing at the slowest sink; if none tells, to the full
    #: ack. The largest of the components' quantiles.
    latency_p50_s: float | None
    latency_p99_s: float | None
    #: Whether the latency is a lower bound.
    latency_at_least: bool = False


class LoadAnswer(Struct, kw_only=True):
    """What a topology master answers to `GetLoad`: its figures, and what is shown together with them."""

    topology_id: str
    #: A `PhysicalPlan`, where it is newer than the one that the asker has.
    plan: bytes | None = None
    #: With the version of the physical plan.
    load: Load
    #: Uptime of the topology.
    uptime_s: float
    totals: Totals
    #: The highest number of an event, see `Event.number`.
    last_event: int
    #: Spout to seconds since one of its tasks has last emitted; spouts that were never seen to emit are missing.
    still_s: dict[str, float]
    #: The most urgent first, at most three.
    findings: list[Finding]
    #: Wall time of the findings, which are renewed less often than the figures.
    found_at: float = 0.0

    def __post_init__(self) -> None:
        # Sentences are made of them.
        for finding in self.findings:
            for name in [name for name, value in finding.figures.items() if not isfinite(value)]:
                del finding.figures[name]


class TaskLoad(Struct, kw_only=True):
    """One task."""

    task_id: int
    instance_id: str
    component: str
    container: int
    host: str | None
    #: STARTING, RUNNING, PAUSED, EXHAUSTED, FINISHED, FAILED, LOST, RESTORED; ENDED of a topology that has ended.
    state: str
    up: bool
    pid: int | None
    #: Why it is not up, or what it waits for; may be empty.
    error: str
    emitted_per_s: float | None
    executed_per_s: float | None
    failed_per_s: float | None
    #: See its component.
    frames_per_s: float | None
    tuples_per_frame: float | None
    busy: float | None
    blocked: float | None
    idle: float | None
    queue_tuples: int | None
    queue_bytes: int | None
    pending: int | None
    latency_p50_s: float | None
    latency_p99_s: float | None
    #: Whether they are lower bounds, as in `ComponentLoad`.
    latency_at_least: bool = False
    #: CPU seconds per second.
    cpu: float | None
    memory_bytes: int | None
    restarts: int | None
    #: Named reason of the last exit; None: it never ended.
    exit_reason: str | None
    #: The first line of what it said last.
    exit_detail: str | None
    #: Since its loop last made a turn.
    silent_s: float | None
    #: Whether it holds the spouts back now.
    culprit: bool


class ProcessRow(Struct, kw_only=True):
    """A process of a container other than a task: executor, stream manager, topology master, Spark gateway."""

    name: str
    container: int
    host: str | None
    #: STARTING, RUNNING, BACKOFF, FAILED, STOPPED; ENDED of a topology that has ended.
    state: str
    pid: int | None
    restarts: int
    exit_reason: str | None
    exit_detail: str | None
    cpu_s: float | None
    memory_bytes: int | None


class Tasks(Struct, kw_only=True):
    """`GET /tasks`: all tasks in the order of the plan, or those of `component`; and the other processes."""

    #: Version of the packing plan, as `Plan.version`.
    plan_version: int
    at: float
    #: None: nothing was reported over a time.
    window_s: float | None
    tasks: list[TaskLoad]
    processes: list[ProcessRow]


def culprit_of(culprit: control_pb2.Culprit) -> Culprit:
    """The task that holds the spouts back."""
    return Culprit(
        name=culprit_name(culprit),
        component=culprit.component or None,
        task_id=culprit.task_id or None,
        queued_bytes=culprit.queued_bytes,
        since_s=culprit.since_s,
        stmgr=culprit.stmgr_id,
    )


# ---- tasks --------------------------------------------------------------------------------


def tasks_of(
    status: control_pb2.StatusReply,
    metrics: control_pb2.MetricsReply,
    plan_version: int,
    at: float,
    component: str | None = None,
) -> Tasks:
    """`GET /tasks`: by component in the order of the topology, then by id. `at` is the wall time of the answers."""
    topology = status.plan.topology
    names = [*(spout.comp.name for spout in topology.spouts), *(bolt.comp.name for bolt in topology.bolts)]
    order = {name: number for number, name in enumerate(names)}
    spouts = {spout.comp.name for spout in topology.spouts}
    reports = {report.process: report for report in metrics.reports}
    processes = {process.name: process for one in status.executors for process in one.processes if process.task_id}
    hosts = {executor.container: executor.host for executor in status.executors}
    containers = {place.instance_id: place.container for place in status.plan.instances}
    guilty = {culprit.instance_id for culprit in status.culprits if holds(culprit)}
    found = []
    for task in sorted(status.tasks, key=lambda task: (order.get(task.component, len(order)), task.task_id)):
        if component in (None, task.component):
            container = containers.get(task.instance_id, 0)
            report, is_spout = reports.get(task.instance_id), task.component in spouts
            row = _task(task, report, processes.get(task.instance_id), metrics.interval_s, is_spout)
            row.container, row.host = container, hosts.get(container)
            row.culprit = task.instance_id in guilty
            row.pending = task.pending if is_spout else None
            found.append(row)
    return Tasks(
        plan_version=plan_version,
        at=at,
        window_s=metrics.interval_s or None,
        tasks=found,
        processes=process_rows(status.executors),
    )


def _task(
    task: control_pb2.TaskStatus,
    report: control_pb2.MetricsReport | None,
    process: control_pb2.ProcessRecord | None,
    over_s: float,
    is_spout: bool,
) -> TaskLoad:
    named: dict[str, list[control_pb2.Sample]] = {}
    for sample in report.samples if report is not None else ():
        named.setdefault(sample.name, []).append(sample)
    sums = {name: sum([sample.value for sample in samples]) for name, samples in named.items()}

    def rate(name: str) -> float | None:
        """Growth per second over all labels; None: not reported."""
        return sums[name] / over_s if name in sums and over_s > 0 else None

    busy, blocked, idle = _shares(sums)
    frames_per_s, tuples_per_frame = _frames(rate, is_spout)
    latencies = named.get("__execute-latency") or named.get("__next-tuple-latency", [])
    p50, p99 = quantiles_s(latencies, (0.5, 0.99))
    if p99 is None and not is_spout and task.state == control_pb2.TASK_RUNNING and task.loop_age_s >= IN_CALL_S:
        # No call has ended in that time; the one that it is in has taken as long.
        p50 = p99 = Quantile(task.loop_age_s, True)
    cpu = [value for value in map(rate, ("__py-user-cpu-time-secs", "__py-sys-cpu-time-secs")) if value is not None]
    ended = process is not None and process.state in (control_pb2.PROC_BACKOFF, control_pb2.PROC_FAILED)
    return TaskLoad(
        task_id=task.task_id,
        instance_id=task.instance_id,
        component=task.component,
        container=0,
        host=None,
        state=task_state_name(task.state),
        up=task.state in UP_STATES and not ended,
        pid=task.pid or None,
        error=task.error or task.waiting_for,
        emitted_per_s=rate("__emit-count"),
        executed_per_s=rate("__execute-count"),
        failed_per_s=rate("__fail-count"),
        frames_per_s=frames_per_s,
        tuples_per_frame=tuples_per_frame,
        busy=busy,
        blocked=blocked,
        idle=idle,
        queue_tuples=task.in_queue_tuples,
        queue_bytes=task.in_queue_bytes,
        pending=None,
        latency_p50_s=p50.value if p50 is not None else None,
        latency_p99_s=p99.value if p99 is not None else None,
        latency_at_least=p99 is not None and p99.at_least,
        cpu=sum(cpu) if cpu else None,
        memory_bytes=(process.rss_bytes or None) if process is not None else None,
        restarts=process.restarts if process is not None else None,
        exit_reason=(process.exit_reason or None) if process is not None else None,
        exit_detail=(process.exit_detail or None) if process is not None else None,
        silent_s=task.loop_age_s,
        culprit=False,
    )


def _frames(rate: Callable[[str], float | None], sent: bool) -> tuple[float | None, float | None]:
    """Frames per second and tuples per frame, of those sent or of those processed."""
    way = "sent" if sent else "consumed"
    frames, tuples = rate(f"__gateway-{way}-packets-count"), rate(f"__gateway-{way}-tuples-count")
    return frames, tuples / frames if frames and tuples is not None else None


def _shares(spent: Mapping[str, float]) -> tuple[float | None, float | None, float | None]:
    """Busy, blocked and idle, which sum to 1."""
    times = [spent.get(f"__{word}-time-ns") for word in ("busy", "blocked", "idle")]
    known = [time for time in times if time is not None]
    total = sum(known)
    if not total:
        return None, None, None
    busy, blocked, idle = ((time or 0.0) / total for time in times)
    return busy, blocked, idle


def process_rows(executors: Iterable[control_pb2.RegisterExecutor]) -> list[ProcessRow]:
    """The processes other than tasks, by container."""
    return [
        ProcessRow(
            name=process.name,
            container=executor.container,
            host=executor.host or None,
            state=process_state_name(process.state),
            pid=process.pid or None,
            restarts=process.restarts,
            exit_reason=process.exit_reason or None,
            exit_detail=process.exit_detail or None,
            cpu_s=process.cpu_s,
            memory_bytes=process.rss_bytes or None,
        )
        for executor in sorted(executors, key=lambda one: one.container)
        for process in executor.processes
        if not process.task_id
    ]
