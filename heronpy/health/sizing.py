"""How many tasks would do: for the doctor, and for whoever acts on what it says. Pure.

What one task can do is what it does per busy second; of an asynchronous bolt that is at its concurrency, because it is
wholly busy when all of that is in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from statistics import fmean

from heronpy.health import trends
from heronpy.health.signals import Signals, TaskSignals

#: Target utilisation.
AIM = 0.7
#: Tasks that are all busy for this share of the time are too few, and spouts for the second.
BUSY, SATURATED = 0.8, 0.9


def needed(arrival: float, per_task: float, backlog: float = 0.0, drain_s: float = inf, pause_s: float = 0.0) -> int:
    """The tasks that keep up with what arrives per second, and work off a backlog meanwhile.

    `per_task` is what one can do per second, and `pause_s` the time in which nothing is done, because tasks are added.
    """
    return max(1, ceil((arrival + (backlog + arrival * pause_s) / drain_s) / (per_task * AIM)))


def too_few(tasks: Sequence[TaskSignals], signals: Signals) -> dict[str, float] | None:
    """The figures of a bolt whose tasks are all busy: "needed", or "known_in_s" until that is known."""
    rates = [rate for task in tasks if (rate := task.per_busy_s) is not None]
    least = min((task.busy or 0.0 for task in tasks), default=0.0)
    if not rates or least < BUSY:
        return None
    now = sum(task.executed for task in tasks)
    # Extrapolates the rate while the spouts were not held to the whole window. Until they are, more comes than is done.
    arrival = max(now, signals.arrivals.get(tasks[0].component, 0.0)) / max(1 - signals.held, trends.FREE_LEAST)
    figures = {"tasks": float(len(tasks)), "arrival": arrival, "rate": now, "busy": least}
    usual = trends.usual_demand(signals)
    if usual is not None:
        # A burst, as one of what waited for the start, is over when tasks are added for it.
        figures["arrival"] = arrival = max(now, arrival * usual)
    if usual is None and signals.age_s is not None and signals.age_s < signals.times.settle_s:
        figures["known_in_s"] = signals.times.settle_s - signals.age_s
    else:
        figures["needed"] = max(len(tasks) + 1, needed(arrival, fmean(rates)))
    return figures


def spouts_too_few(component: str, signals: Signals) -> dict[str, float] | None:
    """The figures of a spout whose tasks are all busy and do not work off what waits at its source in time."""
    tasks = [task for task in signals.of(component) if task.is_spout and not task.ended]
    least = min((task.busy or 0.0 for task in tasks), default=0.0)
    waiting, rate = signals.backlogs.get(component, (0.0, 0.0))
    if least < SATURATED or not rate:
        return None
    drain_s, tasks_n = signals.times.drain_s, len(tasks)
    # What arrives is not known, so these are the fewest that would do.
    enough = needed(0.0, rate / sum(task.busy or 0.0 for task in tasks), waiting, drain_s)
    if enough <= tasks_n:
        return None
    return {"tasks": float(tasks_n), "behind_s": waiting / rate, "drain_s": drain_s, "busy": least,
            "needed": float(enough)}  # fmt: skip


def spare_minutes(signals: Signals) -> int:
    """For how many minutes fewer tasks have to be enough."""
    return max(1, ceil(signals.times.spare_s / 60))


def spare(signals: Signals, component: str) -> dict[str, float] | None:
    """The figures of a component of which fewer tasks would have sufficed for long, whether that is worth a change."""
    minutes = spare_minutes(signals)
    busy, tasks = (signals.minutes(component, series)[-minutes:] for series in ("busy", "tasks"))
    known = [(share, number) for share, number in zip(busy, tasks, strict=False) if share is not None and number]
    if len(known) < trends.KNOWN * minutes or len({number for _, number in known}) != 1:
        return None
    most, number = max(share for share, _ in known), known[0][1]
    return {"needed": float(needed(most * number, 1.0)), "tasks": number, "busy": most}
