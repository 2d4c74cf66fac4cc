"""Converts a job's recorded observations to series for charts, and replays the decisions on them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from heronpy.scaling.decisions import Decision
from heronpy.scaling.estimate import ENDLESS_S, Known, asked_for, shown_lag
from heronpy.scaling.figures import Goal, Observation, Times
from heronpy.scaling.plan import decide
from heronpy.scaling.state import State
from heronpy.views.past import Series, Timeline


class Minute(Struct, frozen=True, omit_defaults=True):
    """A look and the goal at that time. `state` is the state before the look; None if it has not changed."""

    look: Observation
    goal: Goal
    day_s: float
    state: State | None = None


def timeline_of(minutes: Iterable[bytes], promised_s: float | None) -> Timeline:
    """Convert recorded minutes to series: tasks and demand of each component, lag and promised lag."""
    seen = [msgspec.json.decode(one, type=Minute) for one in minutes]
    looks, asked = [one.look for one in seen], [_asked(one) for one in seen]
    lags = [shown_lag(one.look, (one.state or State()).kept_up_at) for one in seen]
    lag = [one if one is not None and one < ENDLESS_S else None for one in lags]
    series = [Series(component="", metric="lag_s", values=lag)]
    if promised_s is not None:
        series.append(Series(component="", metric="slo_lag_s", values=[promised_s] * len(looks)))
    for name in dict.fromkeys(one.name for look in looks for one in look.components):
        mine = [look.by_name.get(name) for look in looks]
        loads = [one.get(name) for one in asked]
        tasks = [None if one is None else float(one.tasks) for one in mine]
        series += [
            Series(component=name, metric="load_per_s", values=loads),
            Series(component=name, metric="tasks", values=tasks),
        ]
    times = [look.at for look in looks]
    return Timeline(times=times, step_s=0.0, series=series, kept_from=times[0] if times else None)


def _asked(minute: Minute) -> dict[str, float]:
    """Return the demand on each component in tuples per second; if it is unknown, the processed rate."""
    known = (minute.state or State()).known
    components = minute.look.components
    found = {one.name: one.processed for one in components if one.processed is not None}
    asked = asked_for(minute.look, {one.name: known.get(one.name, Known()) for one in components}) or {}
    return found | {name: rate for name, rate in asked.items() if rate}


def replayed(minutes: Iterable[Minute]) -> Iterator[tuple[float, Decision]]:
    """Yield the decisions with their times. Only the first minute's state is used; later states are ignored."""
    state = None
    for minute in minutes:
        before = (minute.state or State()) if state is None else state
        outcome = decide(before, minute.look, minute.goal, Times.of(minute.day_s))
        state = outcome.state
        for decision in outcome.decisions:
            yield minute.look.at, decision
