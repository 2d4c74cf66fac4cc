"""Finds spouts that have stopped emitting, and the reason. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from statistics import median

from heronpy.health.signals import Signals, TaskSignals
from heronpy.proto import control_pb2
from heronpy.views.findings import Finding, Verdict

#: A spout that is held back has stopped if it would have emitted this number of tuples.
MISSED = 30.0
#: A free spout has stopped if it had emitted in each of at least this number of minutes before.
USUAL_MIN = 10
#: Shares of topology.max.spout.pending, and of the last seconds.
FULL, HELD_NOW = 0.9, 0.9
#: Possible causes of a stop. Their findings come before the finding of the stop.
STOPPED_BY = frozenset(
    {Verdict.DEPENDENCY, Verdict.SKEW, Verdict.SLOW_TASK, Verdict.SLOW_HOST, Verdict.UNDER_PROVISIONED,
     Verdict.BAD_UPDATE, Verdict.SPARK, Verdict.CHECKPOINTS}
)  # fmt: skip


def stopped(signals: Signals) -> Iterator[Finding]:
    """Yield a finding for each spout that emits nothing, although its input has not ended and it was not paused."""
    if signals.lifecycle not in (control_pb2.LIFE_RUNNING, control_pb2.LIFE_DEGRADED):
        return
    for component, still_s in signals.still_s.items():
        tasks = [task for task in signals.of(component) if task.up and not task.ended]
        # For a spout that a change has interrupted, the time since the change counts.
        since_s = still_s if signals.changed_s is None else min(still_s, signals.changed_s)
        if not tasks or since_s < signals.times.still_s:
            continue
        before = _before(signals, component, still_s)
        figures = {"still_s": still_s}
        if before is not None:
            figures["before"] = before
        held = _held(signals, tasks)
        if held is not None:
            enough = before is None or before * still_s >= MISSED
        else:
            enough, held = _is_unusual(signals, component, still_s), ({}, ())
        if enough:
            task = tasks[0].name if len(tasks) == 1 else ""
            yield Finding(Verdict.STOPPED, component, task, figures | held[0], names=held[1])


def _held(signals: Signals, tasks: list[TaskSignals]) -> tuple[dict[str, float], tuple[str, ...]] | None:
    """Return figures that identify why a spout does not emit, and names to show; None if the reason is unknown."""
    if all(task.silent_s > signals.times.hung_s for task in tasks):
        return {"hung": 1}, ()
    if signals.culprits or (signals.held_now or 0.0) >= HELD_NOW:
        return {"held": signals.held_now if signals.held_now is not None else 1.0}, tuple(signals.culprits)
    most = signals.max_pending
    if most and signals.acking and all(task.pending >= FULL * most for task in tasks):
        figures = {"pending": float(sum(task.pending for task in tasks)), "limit": float(most)}
        return figures | ({"spark": signals.spark_waiting} if signals.spark_waiting else {}), unacked(signals)
    if signals.checkpoint_waits:
        return {"checkpoint": 1}, tuple(signals.checkpoint_waits)
    return None


def unacked(signals: Signals) -> tuple[str, ...]:
    """Return the bolts that have processed tuples in the window without acking or failing any."""
    names = [name for name in signals.components if name in signals.arrivals and name not in signals.spark_sinks]
    return tuple(
        name
        for name in names
        if all(task.acked == 0 for task in signals.of(name)) and any(task.executed for task in signals.of(name))
    )


def _minutes_before(signals: Signals, component: str, still_s: float) -> list[float]:
    """Return the tuples per second in the known minutes before the component stopped."""
    minutes = signals.minutes(component, "emitted")
    since = max(0, ceil((still_s - signals.history_age_s) / 60))
    return [value for value in minutes[: len(minutes) - since] if value is not None]


def _before(signals: Signals, component: str, still_s: float) -> float | None:
    """Return the tuples per second while the component emitted, in the window or before; None if unknown."""
    flowed_s = signals.window_s - still_s
    emitted = sum(task.emitted for task in signals.of(component)) * signals.window_s
    if flowed_s >= signals.times.still_s and emitted:
        return emitted / flowed_s
    known = [value for value in _minutes_before(signals, component, still_s)[-USUAL_MIN:] if value]
    return median(known) if known else None


def _is_unusual(signals: Signals, component: str, still_s: float) -> bool:
    """Whether the component emitted in every minute until it stopped. A spout that seldom reads is often idle."""
    known = _minutes_before(signals, component, still_s)
    return still_s >= signals.times.quiet_s and len(known) >= USUAL_MIN and all(known)
