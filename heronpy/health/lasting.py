"""A cause that was found is said until it has gone. Pure.

While a slow task holds the spouts, its siblings get no tuples, so there is nothing left to compare it with: figures
that cannot tell any more are no sign that a cause has gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from heronpy.health.signals import Signals, TaskSignals
from heronpy.views.findings import Finding, Verdict

#: The causes that are kept.
CAUSES = frozenset({Verdict.DEPENDENCY, Verdict.SKEW, Verdict.SLOW_TASK})
#: What is said of a component instead of its cause, if that is not known any more.
_INSTEAD = CAUSES | {Verdict.SLOW_HOST, Verdict.UNDER_PROVISIONED}
#: A cause has gone when its task is less busy than the first, does this share of what its siblings do per busy second,
#: gets less than this multiple of the mean of the tuples, computes for more than this share of its busy time, or takes
#: less than this multiple of the usual time. The limits for finding a cause are stricter.
BUSY_GONE, SLOW_GONE, SKEWED_GONE, WAITS_GONE, SLOWED_GONE = 0.6, 0.75, 1.2, 0.6, 2.0


def kept(found: Sequence[Finding], before: Sequence[Finding], signals: Signals) -> list[Finding]:
    """The findings, with the causes of `before` that have not gone in place of others of the same component."""
    result = list(found)
    for old in before:
        # All tasks of a host are found to be slow by comparison, so one that was found first is not the cause.
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
