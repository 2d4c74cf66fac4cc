"""Repeats a found cause until it is gone. Pure.

While a slow task holds back the spouts, its siblings get no tuples, so it cannot be compared with them. Figures that
are no longer conclusive do not show that a cause is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from heronpy.health.signals import Signals, TaskSignals
from heronpy.views.findings import Finding, Verdict

#: The causes that are repeated.
CAUSES = frozenset({Verdict.DEPENDENCY, Verdict.SKEW, Verdict.SLOW_TASK})
#: Findings that replace a component's cause when the cause is no longer known.
_INSTEAD = CAUSES | {Verdict.SLOW_HOST, Verdict.UNDER_PROVISIONED}
#: Limits at which a cause is gone: the busy share of the task is below the first; its work per busy second is above the
#: second, as a share of its siblings' work; its tuples are below the third, as a multiple of the mean; it computes for
#: more than the fourth, as a share of its busy time; or its time per tuple is below the fifth, as a multiple of the
#: usual time. The limits for finding a cause are stricter.
BUSY_GONE, SLOW_GONE, SKEWED_GONE, WAITS_GONE, SLOWED_GONE = 0.6, 0.75, 1.2, 0.6, 2.0


def kept(found: Sequence[Finding], before: Sequence[Finding], signals: Signals) -> list[Finding]:
    """Return the findings; a cause in `before` that is not gone replaces other findings about the same component."""
    result = list(found)
    for old in before:
        # If all tasks of a host are slow, the single task that was found first is not the cause.
        better = {old.verdict, Verdict.SLOW_HOST} if old.verdict is Verdict.SLOW_TASK else {old.verdict}
        same = any(one.verdict in better and one.component == old.component for one in result)
        if old.verdict not in CAUSES or same or _has_gone(old, signals):
            continue
        result = [one for one in result if one.component != old.component or one.verdict not in _INSTEAD]
        result.insert(sum(one.verdict is Verdict.BAD_UPDATE for one in result), old)
    return result


def _has_gone(old: Finding, signals: Signals) -> bool:
    task = next((one for one in signals.tasks if one.name == old.task), None)
    if task is None or not task.up or task.name in signals.out_of_memory or task.name in signals.restarted:
        return True
    if task.busy is not None and task.busy < BUSY_GONE and task.name not in signals.culprits:
        return True
    return _GONE[old.verdict](task, signals)


def _is_even(task: TaskSignals, signals: Signals) -> bool:
    gets = signals.gets(task.component)
    return gets is not None and gets[task.name] < SKEWED_GONE * fmean(gets.values())


def _keeps_up(task: TaskSignals, signals: Signals) -> bool:
    rates = [rate for one in signals.of(task.component) if one is not task and (rate := one.per_busy_s) is not None]
    return bool(rates) and task.per_busy_s is not None and task.per_busy_s >= SLOW_GONE * median(rates)


def _computes(task: TaskSignals, signals: Signals) -> bool:
    usual_s = signals.usual_s.get(task.component)
    if usual_s is not None and task.wall_s is not None and task.wall_s < SLOWED_GONE * usual_s:
        return True  # it is as fast as usual
    return task.cpu is not None and task.cpu + (task.cpu_wait or 0.0) > WAITS_GONE * (task.busy or 0.0)


_GONE = {Verdict.SKEW: _is_even, Verdict.SLOW_TASK: _keeps_up, Verdict.DEPENDENCY: _computes}
