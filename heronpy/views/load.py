"""The figures of now: by component, by stream and by task. Sums are made by the topology master. Pure."""

from __future__ import annotations

from msgspec import Struct


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
    #: Of its busiest task, which colours the node, and which task that is.
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
    #: Time in user code for one tuple.
    latency_p50_s: float | None
    latency_p99_s: float | None
    #: Of a sink: from emit at the spout to the end of its processing.
    end_to_end_p50_s: float | None
    end_to_end_p99_s: float | None
    #: Of a spout with acks: from emit to the full ack.
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
    #: Of its largest task, and which task that is.
    memory_bytes_max: int | None
    largest: str | None
    #: Of one task; None: no limit.
    memory_limit_bytes: int | None
    #: Of its processes, since `Load.since`.
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
    """Who holds the spouts back now."""

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

    #: Of the packing plan, as `Plan.version`.
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
    #: From emitting a tuple at its spout to the end of its processing at the slowest sink; if none tells, to the full
    #: ack. The largest of the components' quantiles.
    latency_p50_s: float | None
    latency_p99_s: float | None
    #: It takes longer than that, or a part does of which no more is known.
    latency_at_least: bool = False


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
    #: As of its component.
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
    #: It holds the spouts back now.
    culprit: bool


class ProcessRow(Struct, kw_only=True):
    """A process of a container that is no task: executor, stream manager, topology master, Spark gateway."""

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

    #: Of the packing plan, as `Plan.version`.
    plan_version: int
    at: float
    #: None: nothing was reported over a time.
    window_s: float | None
    tasks: list[TaskLoad]
    processes: list[ProcessRow]
