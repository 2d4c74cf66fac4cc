"""Past figures: series, events, exceptions of user code. Pure."""

from __future__ import annotations

from msgspec import Struct

from heronpy.common import states
from heronpy.proto import control_pb2
from heronpy.views.exception_groups import ExceptionGroup, groups_of

#: Names of series at the topology master that differ from the names in this module and in `Load`.
_METRICS = {
    "emitted": "emitted_per_s", "executed": "executed_per_s", "acked": "acked_per_s", "failed": "failed_per_s",
    "busiest": "busy_max", "fullest_bytes": "queue_bytes_max", "largest_bytes": "memory_bytes_max",
    "execute_p50_s": "latency_p50_s", "execute_p99_s": "latency_p99_s",
}  # fmt: skip
_SERIES = {metric: name for name, metric in _METRICS.items()}


class Series(Struct, kw_only=True):
    """One line of a chart."""

    #: A component, or `` for the whole topology.
    component: str
    #: As in `ComponentLoad`: `emitted_per_s`, `executed_per_s`, `acked_per_s`, `failed_per_s`, `busy`, `busy_max`,
    #: `blocked`, `idle`, `queue_bytes`, `queue_bytes_max`, `latency_p50_s`, `latency_p99_s`, `end_to_end_p50_s`,
    #: `end_to_end_p99_s`, `complete_p50_s`, `complete_p99_s`, `cpu`, `memory_bytes`, `memory_bytes_max`, `tasks`, `up`,
    #: `pending`, `wall_s`; `restarts`, `dead_letters`, `lost` per step; for the topology `held`, `plan_version`,
    #: `spark_waiting`, `spark_lag_s`, `spark_done` (batches per second), `spark_batch_s`.
    metric: str
    #: One value per entry of `Timeline.times`; None where nothing was reported.
    values: list[float | None]


class Timeline(Struct, kw_only=True):
    """`GET /timeline?since&until&points&component&metric`: past figures, one series per component and metric."""

    #: Start of each step, seconds since 1970, evenly apart.
    times: list[float]
    step_s: float
    series: list[Series]
    #: Time before which no data is available.
    kept_from: float | None


class Event(Struct, kw_only=True):
    """An event of the topology."""

    #: Number of the event, which increases across topology masters.
    number: int
    at: float
    #: For a repeated event: its first time, and the number of repetitions.
    first_at: float
    times: int
    #: `life`, `master`, `restart`, `oom`, `silent`, `backpressure`, `checkpoint`, `restore`, `update`.
    kind: str
    #: A process, component or region; empty for the topology.
    subject: str
    #: For a restart: the named reason for the exit.
    reason: str
    #: One line.
    text: str
    #: Duration of an episode, checkpoint or restore.
    lasted_s: float | None
    warning: bool
    #: For a restart: the first line of the process's last message.
    detail: str


class StartPhase(Struct, kw_only=True):
    """A finished phase of a start."""

    #: `package`, `launch`, `register`, `plan`, `initialise`, in this order.
    name: str
    #: Duration; may be negative if the clocks of two hosts differ.
    took_s: float
    #: The work of the phase.
    what: str


class Start(Struct, kw_only=True):
    """How the topology was started."""

    begun_at: float
    #: The sum of the phases.
    took_s: float
    #: Whether all phases are over.
    running: bool
    phases: list[StartPhase]


class Events(Struct, kw_only=True):
    """`GET /events?after&limit`: the newest events, oldest first."""

    events: list[Event]
    #: Value of `after` for later events.
    last: int
    #: Number of events that were dropped for newer ones.
    forgotten: int
    #: How the topology was started; None if unknown, or if the topology master has ended.
    start: Start | None


class Exceptions(Struct, kw_only=True):
    """`GET /exceptions?component&task`: the most recent first."""

    groups: list[ExceptionGroup]
    #: Number of exceptions that were not kept.
    discarded: int


class SlowTuple(Struct, kw_only=True):
    """A call to `process` that took longer than `heron.instance.slow_ms`."""

    at: float
    instance_id: str
    component: str
    task_id: int
    #: The tuple's stream, `component/stream`, and the task that sent it.
    source: str
    source_task: int
    took_s: float
    #: The value as shortened text; null if it is unknown which of `tuples` tuples was slow.
    value: str | None
    #: Tuples of the call, or candidates for the slow tuple.
    tuples: int


class Slow(Struct, kw_only=True):
    """`GET /slow?component&task`: the slowest first."""

    tuples: list[SlowTuple]


def series_name(metric: str) -> str:
    """Return the topology master's name for a series."""
    return _SERIES.get(metric, metric)


def metric_name(series: str) -> str:
    """Return this module's name for a series of the topology master."""
    return _METRICS.get(series, series)


def event_kind(event: control_pb2.TopologyEvent) -> str:
    """Return the kind of an event, such as `restart`; an unknown kind from a newer topology master is `kind-12`."""
    if event.kind not in control_pb2.EventKind.values():
        return f"kind-{event.kind}"
    return control_pb2.EventKind.Name(event.kind).removeprefix("EVENT_").lower()


def event_of(event: control_pb2.TopologyEvent) -> Event:
    """Convert an event."""
    return Event(
        number=event.number,
        at=event.at,
        first_at=event.first_at,
        times=event.times,
        kind=event_kind(event),
        subject=event.subject,
        reason=event.reason,
        text=event.text,
        lasted_s=event.lasted_s or None,
        warning=event.warning,
        detail=event.detail,
    )


def start_of(times: control_pb2.StartTimes) -> Start | None:
    """Return the durations of the phases of a start; None if no phase is known."""
    took = states.start_phases(times)
    phases = [StartPhase(name=name, took_s=one, what=states.START_PHASES[name][1]) for name, one in took.items()]
    if not phases:
        return None
    running = bool(times.running_at)
    return Start(begun_at=times.begun_at, took_s=sum(took.values()), running=running, phases=phases)


def exceptions_of(reply: control_pb2.ExceptionsReply) -> Exceptions:
    """Return the answer to `GET /exceptions`."""
    return Exceptions(groups=[group for group, _ in groups_of(reply.exceptions)], discarded=reply.discarded)
