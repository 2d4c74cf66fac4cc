"""The current figures by component, by stream and by task. The topology master computes the sums. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite

from msgspec import Struct

from heronpy.common.states import UP_STATES, culprit_name, holds, process_state_name, task_state_name
from heronpy.metrics.quantiles import IN_CALL_S, Quantile, quantiles_s
from heronpy.proto import control_pb2
from heronpy.views.findings import Finding
from heronpy.views.overview import Totals

#: Metrics that `tasks_of` needs, to be requested with an interval.
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
    #: Tuples per second.
    emitted_per_s: float | None
    executed_per_s: float | None
    acked_per_s: float | None
    failed_per_s: float | None
    #: Frames with tuples that a spout sends or a bolt processes, and the number of tuples per frame.
    frames_per_s: float | None
    tuples_per_frame: float | None
    #: Shares of time, mean over the tasks; the three sum to 1. Busy: in user code and the runtime's work for it;
    #: blocked: waiting for space in a full queue downstream; idle: waiting for input.
    busy: float | None
    blocked: float | None
    idle: float | None
    #: Busy share of the busiest task, which determines the colour of the node, and the name of that task.
    busy_max: float | None
    busiest: str | None
    blocked_max: float | None
    most_blocked: str | None
    #: Tuples waiting in the queues of the component's tasks.
    queue_tuples: int | None
    queue_bytes: int | None
    #: Bytes in the longest queue of a task, and the name of that task.
    queue_bytes_max: int | None
    fullest: str | None
    #: Upper bound on a task's queue.
    queue_bound_bytes: int | None
    #: Tuples of a spout that are neither acked nor failed.
    pending: int | None
    #: Tuples that the tasks of a spout have yet to emit according to their `backlog`; None if unknown.
    backlog_tuples: int | None = None
    backlog_bytes: int | None = None
    #: Why `heron update` refuses to change the number of tasks; empty if it does not refuse.
    not_scalable: str = ""
    #: Time in user code per tuple.
    latency_p50_s: float | None
    latency_p99_s: float | None
    #: Mean time in user code, and the median over the healthy minutes of a day. A component that is full or holds back
    #: the spouts has no healthy minute.
    wall_s: float | None
    usual_s: float | None
    #: Unevenness of the tasks: the standard deviation of their rates, divided by the mean.
    spread: float | None
    #: Mean number of keys of keyed state per task; None if the component has no keyed state or does not report it.
    keys: float | None
    #: Maximum number of tuples that a task of an asynchronous bolt processes at the same time.
    concurrency: int | None
    #: For a sink: time from the emit at the spout to the end of processing at the sink.
    end_to_end_p50_s: float | None
    end_to_end_p99_s: float | None
    #: For a spout with acks: time from the emit to the full ack.
    complete_p50_s: float | None
    complete_p99_s: float | None
    #: Whether the quantiles above (at least the 99th percentiles) are lower bounds, because they are beyond the last
    #: bucket or come from a call that has not ended.
    latency_at_least: bool = False
    end_to_end_at_least: bool = False
    complete_at_least: bool = False
    #: CPU seconds per second, over all tasks.
    cpu: float | None
    memory_bytes: int | None
    #: Memory of the largest task, and the name of that task.
    memory_bytes_max: int | None
    largest: str | None
    #: Memory limit of each task; None: no limit.
    memory_limit_bytes: int | None
    #: Restarts of the component's processes since `Load.since`.
    restarts: int | None
    #: Dead letters and lost tuples since the topology was submitted; None if some of its losses were not counted.
    dead_letters: int | None
    lost: int | None


class EdgeLoad(Struct, kw_only=True):
    """One stream between two components; its `id` is that of the plan's edge."""

    id: str
    #: Tuples per second emitted by the source. Processed tuples are part of the target's `executed_per_s`.
    tuples_per_s: float | None


class Culprit(Struct, kw_only=True):
    """The task that is currently holding back the spouts."""

    #: The instance, or the link between two stream managers.
    name: str
    component: str | None
    task_id: int | None
    queued_bytes: int
    #: Duration so far.
    since_s: float
    #: The stream manager that announces the backpressure.
    stmgr: str


class Load(Struct, kw_only=True):
    """`GET /load`: the current figures of a topology, by component and stream."""

    #: Version of the packing plan, as `Plan.version`.
    plan_version: int
    state: str
    cause: str
    #: Wall time of the figures at the topology master.
    at: float
    #: Seconds covered by rates and shares; None if there is no window yet.
    window_s: float | None
    #: Time at which the reports to the topology master begin.
    since: float | None
    components: list[ComponentLoad]
    edges: list[EdgeLoad]
    #: Share of the window in which spouts were held back.
    held: float | None
    culprits: list[Culprit]
    #: Full tasks whose tuples go to other tasks of their component; they do not hold back the spouts.
    avoided: list[Culprit] = []
    #: Full tasks of a topology that discards excess tuples; they do not hold back the spouts.
    dropping: list[Culprit] = []
    #: Map from receiving component to the number of discarded excess tuples.
    dropped: dict[str, int] = {}
    #: Time from the emit at the spout to the end of processing at the slowest sink, or to the full ack if no sink
    #: reports: the largest of the components' quantiles.
    latency_p50_s: float | None
    latency_p99_s: float | None
    #: Whether the latency is a lower bound.
    latency_at_least: bool = False


class LoadAnswer(Struct, kw_only=True):
    """The answer of a topology master to `GetLoad`: its figures, and the data shown together with them."""

    topology_id: str
    #: The encoded `PhysicalPlan`, if it is newer than the client's plan.
    plan: bytes | None = None
    #: The figures, with the version of the physical plan.
    load: Load
    #: Uptime of the topology.
    uptime_s: float
    totals: Totals
    #: The highest number of an event; see `Event.number`.
    last_event: int
    #: Map from spout to seconds since the last emit of any of its tasks, if any task was seen to emit.
    still_s: dict[str, float]
    #: At most three findings, most urgent first.
    findings: list[Finding]
    #: Wall time of the findings, which are updated less often than the figures.
    found_at: float = 0.0

    def __post_init__(self) -> None:
        # Their values become part of sentences.
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
    #: STARTING, RUNNING, PAUSED, EXHAUSTED, FINISHED, FAILED, LOST, RESTORED; ENDED for a topology that has ended.
    state: str
    up: bool
    pid: int | None
    #: Why the task is not up, or what it is waiting for; may be empty.
    error: str
    emitted_per_s: float | None
    executed_per_s: float | None
    failed_per_s: float | None
    #: As in `ComponentLoad`.
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
    #: Whether the quantiles are lower bounds, as in `ComponentLoad`.
    latency_at_least: bool = False
    #: CPU seconds per second.
    cpu: float | None
    memory_bytes: int | None
    restarts: int | None
    #: Named reason for the last exit; None if the task has never ended.
    exit_reason: str | None
    #: The first line of the last message before the exit.
    exit_detail: str | None
    #: Seconds since the last turn of the task's loop.
    silent_s: float | None
    #: Whether the task is currently holding back the spouts.
    culprit: bool


class ProcessRow(Struct, kw_only=True):
    """A process of a container that is not a task: executor, stream manager, topology master, Spark gateway."""

    name: str
    container: int
    host: str | None
    #: STARTING, RUNNING, BACKOFF, FAILED, STOPPED; ENDED for a topology that has ended.
    state: str
    pid: int | None
    restarts: int
    exit_reason: str | None
    exit_detail: str | None
    cpu_s: float | None
    memory_bytes: int | None


class Tasks(Struct, kw_only=True):
    """`GET /tasks`: all tasks in the order of the plan, or the tasks of `component`, and the other processes."""

    #: Version of the packing plan, as `Plan.version`.
    plan_version: int
    at: float
    #: Seconds covered by the rates; None if no rate was reported.
    window_s: float | None
    tasks: list[TaskLoad]
    processes: list[ProcessRow]


def culprit_of(culprit: control_pb2.Culprit) -> Culprit:
    """Convert a culprit, the task that is holding back the spouts."""
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
    """Return the answer to `GET /tasks`: tasks by component in the order of the topology, then by id. `at` is
    the wall time of the answers."""
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
        """Return the increase per second, summed over all labels; None if not reported."""
        return sums[name] / over_s if name in sums and over_s > 0 else None

    busy, blocked, idle = _shares(sums)
    frames_per_s, tuples_per_frame = _frames(rate, is_spout)
    latencies = named.get("__execute-latency") or named.get("__next-tuple-latency", [])
    p50, p99 = quantiles_s(latencies, (0.5, 0.99))
    if p99 is None and not is_spout and task.state == control_pb2.TASK_RUNNING and task.loop_age_s >= IN_CALL_S:
        # No call has ended in this interval, so the duration of the current call is the latency.
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
    """Return frames per second and tuples per frame, either sent or processed."""
    way = "sent" if sent else "consumed"
    frames, tuples = rate(f"__gateway-{way}-packets-count"), rate(f"__gateway-{way}-tuples-count")
    return frames, tuples / frames if frames and tuples is not None else None


def _shares(spent: Mapping[str, float]) -> tuple[float | None, float | None, float | None]:
    """Return the shares busy, blocked and idle, which sum to 1."""
    times = [spent.get(f"__{word}-time-ns") for word in ("busy", "blocked", "idle")]
    known = [time for time in times if time is not None]
    total = sum(known)
    if not total:
        return None, None, None
    busy, blocked, idle = ((time or 0.0) / total for time in times)
    return busy, blocked, idle


def process_rows(executors: Iterable[control_pb2.RegisterExecutor]) -> list[ProcessRow]:
    """Return the processes other than tasks, by container."""
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
