"""The number of tasks that would suffice, for the doctor and the scaler. Pure.

The capacity of one task is its rate per busy second. For an asynchronous bolt it is the rate at its full concurrency,
because a bolt at full concurrency counts as fully busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from statistics import fmean

from heronpy.health import trends
from heronpy.health.signals import Signals, TaskSignals

#: Target utilisation.
AIM = 0.7
#: Tasks are too few if all of them are busy for this share of the time; the second limit is for spouts.
BUSY, SATURATED = 0.8, 0.9


def needed(arrival: float, per_task: float, backlog: float = 0.0, drain_s: float = inf, pause_s: float = 0.0) -> int:
    """Return the number of tasks that keep up with the arrivals per second while they process a backlog.

    `per_task` is the rate of one task. Adding tasks causes a pause of `pause_s`, in which nothing is processed.
    """
    return max(1, ceil((arrival + (backlog + arrival * pause_s) / drain_s) / (per_task * AIM)))


def too_few(tasks: Sequence[TaskSignals], signals: Signals) -> dict[str, float] | None:
    """Return the figures of a bolt whose tasks are all busy, with "needed" or, if not known yet, "known_in_s"."""
    rates = [rate for task in tasks if (rate := task.per_busy_s) is not None]
    least = min((task.busy or 0.0 for task in tasks), default=0.0)
    if not rates or least < BUSY:
        return None
    now = sum(task.executed for task in tasks)
    # Extrapolate the rate from the time in which the spouts were not held back to the whole window. Before the spouts
    # are held back, more tuples arrive than are processed.
    arrival = max(now, signals.arrivals.get(tasks[0].component, 0.0)) / max(1 - signals.held, trends.FREE_LEAST)
    figures = {"tasks": float(len(tasks)), "arrival": arrival, "rate": now, "busy": least}
    usual = trends.usual_demand(signals)
    if usual is not None:
        # A burst, such as the tuples that waited for the start, is over when tasks have been added for it.
        figures["arrival"] = arrival = max(now, arrival * usual)
    if usual is None and signals.age_s is not None and signals.age_s < signals.times.settle_s:
        figures["known_in_s"] = signals.times.settle_s - signals.age_s
    else:
        figures["needed"] = max(len(tasks) + 1, needed(arrival, fmean(rates)))
    return figures


def spouts_too_few(component: str, signals: Signals) -> dict[str, float] | None:
    """Return the figures of a spout whose tasks are all busy and do not process its source's backlog in time."""
    tasks = [task for task in signals.of(component) if task.is_spout and not task.ended]
    least = min((task.busy or 0.0 for task in tasks), default=0.0)
    waiting, rate = signals.backlogs.get(component, (0.0, 0.0))
    if least < SATURATED or not rate:
        return None
    drain_s, tasks_n = signals.times.drain_s, len(tasks)
    # The arrivals are unknown, so this is the minimum number of tasks.
    enough = needed(0.0, rate / sum(task.busy or 0.0 for task in tasks), waiting, drain_s)
    if enough <= tasks_n:
        return None
    return {"tasks": float(tasks_n), "behind_s": waiting / rate, "drain_s": drain_s, "busy": least,
            "needed": float(enough)}  # fmt: skip


def spare_minutes(signals: Signals) -> int:
    """Return the number of minutes for which fewer tasks must have sufficed before the component is scaled down."""
    return max(1, ceil(signals.times.spare_s / 60))


def spare(signals: Signals, component: str) -> dict[str, float] | None:
    """Return the figures of a component that has long needed fewer tasks, if the difference is worth a change."""
    minutes = spare_minutes(signals)
    busy, tasks = (signals.minutes(component, series)[-minutes:] for series in ("busy", "tasks"))
    known = [(share, number) for share, number in zip(busy, tasks, strict=False) if share is not None and number]
    if len(known) < trends.KNOWN * minutes or len({number for _, number in known}) != 1:
        return None
    most, number = max(share for share, _ in known), known[0][1]
    return {"needed": float(needed(most * number, 1.0)), "tasks": number, "busy": most}
