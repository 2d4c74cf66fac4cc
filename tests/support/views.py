"""Makes answers of a topology master in which all fields are unknown, except those that a test sets."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from heronpy.proto import control_pb2
from heronpy.views.load import ComponentLoad, Load, LoadAnswer
from heronpy.views.overview import totals_of
from heronpy.views.past import Event, Events, Series, Timeline
from heronpy.views.traces import Traces


def component_load(name: str, **fields: Any) -> ComponentLoad:
    """Return a row with these fields; all other fields are unknown."""
    empty: dict[str, Any] = {one.name: None for one in structs.fields(ComponentLoad) if one.required}
    return ComponentLoad(**(empty | {"name": name, "kind": "bolt", "tasks": 1, "up": 1} | fields))


def load_answer(*components: ComponentLoad, **fields: Any) -> LoadAnswer:
    """Return an answer without figures, except these fields of the answer or of its `Load`."""
    load: dict[str, Any] = {one.name: None for one in structs.fields(Load) if one.required}
    load |= {"plan_version": 0, "state": "STARTING", "cause": "", "at": 0.0, "edges": [], "culprits": []}
    load |= {one.name: fields.pop(one.name) for one in structs.fields(Load) if one.name in fields}
    whole = {"topology_id": "", "uptime_s": 0.0, "totals": totals_of(control_pb2.TupleTotals(), {}), "last_event": 0}
    figures = Load(**(load | {"components": list(components)}))
    return LoadAnswer(**(whole | {"still_s": {}, "findings": [], "load": figures} | fields))


def event(number: int = 1, **fields: Any) -> Event:
    """Return an event with these fields; all other fields are unknown."""
    empty = {"at": 0.0, "first_at": 0.0, "times": 1, "kind": "life", "lasted_s": None, "warning": False}
    texts = dict.fromkeys(("subject", "reason", "text", "detail"), "")
    return Event(number=number, **(empty | texts | fields))


def events(*known: Event, last: int = 0, forgotten: int = 0) -> Events:
    """Return an answer with these events."""
    return Events(events=list(known), last=last, forgotten=forgotten, start=None)


def timeline(first: float = 0.0, points: int = 0, **series: list[float | None]) -> Timeline:
    """Return minutes with these series, named `component__metric`; names of the topology's series begin with `__`."""
    return Timeline(
        times=[first + 60.0 * point for point in range(points)],
        step_s=60.0,
        series=[
            Series(component=name.partition("__")[0], metric=name.partition("__")[2], values=values)
            for name, values in series.items()
        ],
        kept_from=first or None,
    )


def traces(**fields: Any) -> Traces:
    """Return an answer with these fields and no traces."""
    empty = dict.fromkeys(("at", "matching", "kept", "discarded", "under_way"), 0)
    return Traces(**(empty | {"hops": [], "traces": [], "p50_s": None, "p99_s": None} | fields))
