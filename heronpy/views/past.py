"""What was: series, events, exceptions of user code. Pure."""

from __future__ import annotations

from msgspec import Struct


class Series(Struct, kw_only=True):
    """One line of a chart."""

    #: A component, or `` for the whole topology.
    component: str
    #: As in `ComponentLoad`: `emitted_per_s`, `executed_per_s`, `acked_per_s`, `failed_per_s`, `busy`, `busy_max`,
    #: `blocked`, `idle`, `queue_bytes`, `queue_bytes_max`, `latency_p50_s`, `latency_p99_s`, `end_to_end_p50_s`,
    #: `end_to_end_p99_s`, `complete_p50_s`, `complete_p99_s`, `cpu`, `memory_bytes`, `memory_bytes_max`, `tasks`, `up`,
    #: `pending`; `restarts`, `dead_letters`, `lost` in the step; of the topology `held`, `plan_version`,
    #: `spark_waiting`, `spark_lag_s`, `spark_done` (batches per second), `spark_batch_s`.
    metric: str
    #: As many as `Timeline.times`; None where nothing was reported.
    values: list[float | None]


class Timeline(Struct, kw_only=True):
    """`GET /timeline?since&until&points&component&metric`"""

    #: Start of each step, seconds since 1970, evenly apart.
    times: list[float]
    step_s: float
    series: list[Series]
    #: Before this nothing is kept.
    kept_from: float | None


class Event(Struct, kw_only=True):
    """Something that happened."""

    #: Grows, over all topology masters.
    number: int
    at: float
    #: Of a repeated event: the first time, and how often.
    first_at: float
    times: int
    #: `life`, `master`, `restart`, `oom`, `silent`, `backpressure`, `checkpoint`, `restore`, `update`.
    kind: str
    #: A process, component or region; empty: the topology.
    subject: str
    #: Of a restart: the named reason of the exit.
    reason: str
    #: One line.
    text: str
    #: Of an episode, checkpoint or restore.
    lasted_s: float | None
    warning: bool
    #: Of a restart: the first line of what the process said last.
    detail: str


class Events(Struct, kw_only=True):
    """`GET /events?after&limit`: the newest, oldest first."""

    events: list[Event]
    #: Give it as `after` to get what comes later.
    last: int
    #: Events dropped because newer ones came.
    forgotten: int


class ExceptionGroup(Struct, kw_only=True):
    """Exceptions of one type raised at one line, over all tasks."""

    type: str
    #: `file:line in function`; empty when no traceback has it.
    where: str
    #: While the task started.
    startup: bool
    count: int
    first_at: float
    last_at: float
    #: Instances or processes.
    tasks: list[str]
    #: The first line of each different message, newest first.
    messages: list[str]
    #: The newest, whole.
    traceback: str


class Exceptions(Struct, kw_only=True):
    """`GET /exceptions?component&task`: the most recent first."""

    groups: list[ExceptionGroup]
    #: Further kinds of exceptions that were not kept.
    discarded: int


class SlowTuple(Struct, kw_only=True):
    """A call of `process` above `heron.instance.slow_ms`."""

    at: float
    instance_id: str
    component: str
    task_id: int
    #: Its stream, `component/stream`, and the task that sent it.
    source: str
    source_task: int
    took_s: float
    #: As text, shortened; null: it is not known which of `tuples` tuples it was.
    value: str | None
    #: Tuples of the call, or among which the slow one is.
    tuples: int


class Slow(Struct, kw_only=True):
    """`GET /slow?component&task`: the slowest first."""

    tuples: list[SlowTuple]
