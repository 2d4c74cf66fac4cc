"""Series, events and exceptions from messages. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from math import isnan

from heronpy.proto import control_pb2
from heronpy.views.exception_groups import groups_of
from heronpy.views.past import Event, Events, ExceptionGroup, Exceptions, Series, Slow, SlowTuple, Timeline

#: Names of series at the topology master that are called otherwise here, as in `Load`.
_METRICS = {
    "emitted": "emitted_per_s", "executed": "executed_per_s", "acked": "acked_per_s", "failed": "failed_per_s",
    "busiest": "busy_max", "fullest_bytes": "queue_bytes_max", "largest_bytes": "memory_bytes_max",
    "execute_p50_s": "latency_p50_s", "execute_p99_s": "latency_p99_s",
}  # fmt: skip
_SERIES = {metric: name for name, metric in _METRICS.items()}


def series_name(metric: str) -> str:
    """What the topology master calls a series."""
    return _SERIES.get(metric, metric)


def metric_name(series: str) -> str:
    """What a series of the topology master is called here."""
    return _METRICS.get(series, series)


def timeline_of(reply: control_pb2.TimelineReply) -> Timeline:
    """`GET /timeline`"""
    return Timeline(
        times=[reply.first + number * reply.step_s for number in range(reply.points)],
        step_s=reply.step_s,
        series=[
            Series(
                component=series.component,
                metric=_METRICS.get(series.name, series.name),
                values=_values(series.values, reply.points),
            )
            for series in reply.series
        ],
        kept_from=reply.known_since or None,
    )


def _values(data: bytes, points: int) -> list[float | None]:
    """float32, little-endian; what is missing at the end is unknown."""
    count = min(points, len(data) // 4)
    known = [None if isnan(value) else value for value in struct.unpack_from(f"<{count}f", data)]
    return [*known, *([None] * (points - count))]


def event_kind(event: control_pb2.TopologyEvent) -> str:
    """`restart`, `update`, ...; of a newer topology master perhaps `kind-12`."""
    if event.kind not in control_pb2.EventKind.values():
        return f"kind-{event.kind}"
    return control_pb2.EventKind.Name(event.kind).removeprefix("EVENT_").lower()


def event_of(event: control_pb2.TopologyEvent) -> Event:
    """One event."""
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


def events_of(reply: control_pb2.EventsReply) -> Events:
    """`GET /events`"""
    return Events(events=[event_of(one) for one in reply.events], last=reply.last, forgotten=reply.forgotten)


def exceptions_of(reply: control_pb2.ExceptionsReply) -> Exceptions:
    """`GET /exceptions`"""
    return Exceptions(groups=exception_groups(reply.exceptions), discarded=reply.discarded)


def exception_groups(reports: Iterable[control_pb2.ExceptionReport]) -> list[ExceptionGroup]:
    """The groups, the most recent first."""
    return [ExceptionGroup(**group.as_json()) for group in groups_of(reports)]


def slow_of(reply: control_pb2.SlowReply) -> Slow:
    """`GET /slow`"""
    return Slow(
        tuples=[
            SlowTuple(
                at=one.at,
                instance_id=one.process,
                component=one.component,
                task_id=one.task_id,
                source=one.source,
                source_task=one.source_task,
                took_s=one.took_s,
                value=one.value or None,
                tuples=one.tuples,
            )
            for one in reply.tuples
        ]
    )
