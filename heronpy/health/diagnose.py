"""What holds a topology back: every diagnosis that fits the figures, the one to act on first comes first. Pure.

The order of the rules is the order of precedence: tasks that are down explain slow ones, and the cause of a wait comes
before the wait. Thresholds follow the practice of Turbine (Mei et al., ICDE 2020), whose scaler distinguishes problems
that more tasks solve from those that they do not: skew, a slow task, a dependency.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from statistics import fmean, median

from heronpy.common.states import lifecycle_name
from heronpy.health.signals import Signals, TaskSignals
from heronpy.proto import control_pb2

#: Busy shares: above the first two a bolt sets the pace, below the third it does not.
SATURATED, BUSY, IDLE = 0.9, 0.8, 0.6
#: Spouts that are held for this share of the window count as held back.
HELD = 0.2
#: A queue that takes this long to process is a backlog.
BEHIND_S = 2.0
SKEWED = 1.5
SLOW = 0.5
#: Below this much CPU per busy second, a component is waiting for something else.
WAITS = 0.3
HUNG_S = 10.0
#: Target utilisation.
AIM = 0.7
SPARK_WAITING = 3


class Verdict(Enum):
    """The kinds of diagnosis."""

    HEALTHY = "healthy"
    FAILED = "failed"
    CHANGING = "changing"
    DOWN = "down"
    HUNG = "hung"
    MEMORY = "memory"
    CRASHING = "crashing"
    DEPENDENCY = "dependency"
    SKEW = "skew"
    SLOW_TASK = "slow task"
    UNDER_PROVISIONED = "under-provisioned"
    LIMIT = "limit"
    CHECKPOINTS = "checkpoints"
    SPARK = "spark"
    LOSSES = "losses"
    NO_INPUT = "no input"
    UNTRIAGED = "untriaged"


#: Verdicts that need no action.
CALM = frozenset({Verdict.HEALTHY, Verdict.CHANGING, Verdict.NO_INPUT})


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnosis: the component or task concerned, and the evidence."""

    verdict: Verdict
    component: str = ""
    task: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    #: Quoted text: a cause, or the last line of a process's exit.
    quote: str = ""
    names: tuple[str, ...] = ()


def diagnose(signals: Signals) -> list[Finding]:
    """All findings, most urgent first; one HEALTHY finding if there are none.

    Until a full window has passed since a change, rates and shares mix two configurations, so they are not judged.
    """
    found = [finding for rule in _ALWAYS for finding in rule(signals)]
    changing = list(_changing(signals))
    found += changing or [finding for rule in _SETTLED for finding in rule(signals)]
    explained = any(one.verdict not in CALM for one in found)
    if not explained and not changing and signals.held >= HELD:
        found.append(Finding(Verdict.UNTRIAGED, figures={"held": signals.held}, names=tuple(signals.culprits)))
    return found or [_healthy(signals)]


def _healthy(signals: Signals) -> Finding:
    busiest = max((task for task in signals.tasks if task.busy is not None), key=_busy, default=None)
    return Finding(
        Verdict.HEALTHY,
        component=busiest.component if busiest is not None else "",
        task=busiest.name if busiest is not None else "",
        figures={"arrival": signals.arrival, "held": signals.held, "busy": _busy(busiest) if busiest else 0.0},
    )


def _busy(task: TaskSignals) -> float:
    return task.busy or 0.0


def _failed(signals: Signals) -> Iterator[Finding]:
    if signals.lifecycle == control_pb2.LIFE_FAILED:
        yield Finding(Verdict.FAILED, quote=signals.cause)


def _down(signals: Signals) -> Iterator[Finding]:
    if signals.lifecycle in (control_pb2.LIFE_STARTING, control_pb2.LIFE_UPDATING, control_pb2.LIFE_FAILED):
        return
    for component in signals.components:
        tasks = signals.of(component)
        down = [task.name for task in tasks if not task.up]
        if down:
            ends = [signals.restarted.get(name) or signals.out_of_memory.get(name) for name in down]
            last = next((end for end in ends if end is not None), (0, ""))
            yield Finding(
                Verdict.DOWN, component, figures={"down": len(down), "tasks": len(tasks), "restarts": last[0]},
                quote=last[1] or signals.cause, names=tuple(down),
            )  # fmt: skip


def _hung(signals: Signals) -> Iterator[Finding]:
    for task in signals.tasks:
        if task.up and task.silent_s > HUNG_S:
            yield Finding(Verdict.HUNG, task.component, task.name, {"silent_s": task.silent_s})


def _memory(signals: Signals) -> Iterator[Finding]:
    for name, (times, text) in signals.out_of_memory.items():
        yield Finding(Verdict.MEMORY, task=name, figures={"times": times}, quote=text)


def _crashing(signals: Signals) -> Iterator[Finding]:
    for name, (times, text) in signals.restarted.items():
        if times > 1:
            yield Finding(Verdict.CRASHING, task=name, figures={"times": times}, quote=text)


def _slow(signals: Signals) -> Iterator[Finding]:
    """For each component that sets the pace, the first cause that fits."""
    behind = [task for task in signals.tasks if not task.is_spout and (task.lag_s or 0.0) >= BEHIND_S]
    if signals.held < HELD and not signals.culprits and not behind:
        return
    culprits = {*signals.culprits, *(task.name for task in behind)}
    for component in signals.components:
        tasks = [task for task in signals.of(component) if task.busy is not None]
        worst = max(tasks, key=_busy, default=None)
        if worst is None or (_busy(worst) < BUSY and not culprits & {task.name for task in tasks}):
            continue
        finding = _dependency(tasks) or _skew(tasks) or _slow_task(tasks) or _too_few(tasks, signals)
        if finding is not None:
            yield finding


def _dependency(tasks: list[TaskSignals]) -> Finding | None:
    saturated = [task for task in tasks if _busy(task) >= SATURATED and task.cpu is not None and task.executed]
    waiting = [task for task in saturated if task.cpu is not None and task.cpu <= WAITS * _busy(task)]
    if not waiting or len(waiting) < len(tasks) / 2:
        return None
    task = max(waiting, key=_busy)
    assert task.cpu is not None
    return Finding(
        Verdict.DEPENDENCY, task.component, task.name,
        {"busy": _busy(task), "tuple_s": _busy(task) / task.executed, "cpu_s": task.cpu / task.executed},
    )  # fmt: skip


def _skew(tasks: list[TaskSignals]) -> Finding | None:
    if len(tasks) < 2:
        return None
    total = sum(task.executed for task in tasks)
    worst = max(tasks, key=_busy)
    usual = median(_busy(task) for task in tasks if task is not worst)
    if not total or _busy(worst) < BUSY or usual > IDLE:
        return None
    if worst.executed < SKEWED * fmean(task.executed for task in tasks):
        return None
    return Finding(
        Verdict.SKEW, worst.component, worst.name,
        {"share": worst.executed / total, "even": 1 / len(tasks), "tasks": len(tasks), "busy": _busy(worst),
         "median": usual},
    )  # fmt: skip


def _slow_task(tasks: list[TaskSignals]) -> Finding | None:
    rates = [(rate, task) for task in tasks if (rate := task.per_busy_s) is not None]
    if len(rates) < 2:
        return None
    slowest, task = min(rates, key=lambda pair: pair[0])
    usual = median(rate for rate, other in rates if other is not task)
    if slowest >= SLOW * usual or _busy(task) < BUSY:
        return None
    return Finding(Verdict.SLOW_TASK, task.component, task.name, {"rate": slowest, "usual": usual})


def _too_few(tasks: list[TaskSignals], signals: Signals) -> Finding | None:
    rates = [rate for task in tasks if (rate := task.per_busy_s) is not None]
    if not rates or min(map(_busy, tasks)) < BUSY:
        return None
    now = sum(task.executed for task in tasks)
    # Extrapolates the rate while the spouts were not held to the whole window.
    arrival = now / max(1 - signals.held, 0.1)
    needed = max(len(tasks) + 1, ceil(arrival / (fmean(rates) * AIM)))
    return Finding(
        Verdict.UNDER_PROVISIONED, tasks[0].component,
        figures={"tasks": len(tasks), "needed": needed, "arrival": arrival, "rate": now,
                 "busy": min(map(_busy, tasks))},
    )  # fmt: skip


def _limit(signals: Signals) -> Iterator[Finding]:
    most = signals.max_pending
    spouts = [task for task in signals.tasks if task.is_spout and task.up]
    if not most or not signals.acking or not spouts or signals.held >= HELD:
        return
    full = [task for task in spouts if task.pending >= SATURATED * most]
    busiest = max((_busy(task) for task in signals.tasks), default=0.0)
    if len(full) * 2 >= len(spouts) and busiest < BUSY:
        yield Finding(Verdict.LIMIT, full[0].component, figures={"limit": most, "busy": busiest})


def _checkpoints(signals: Signals) -> Iterator[Finding]:
    every, age = signals.checkpoint_every_s, signals.checkpoint_age_s
    if every is None or signals.lifecycle != control_pb2.LIFE_RUNNING:
        return
    late = age is not None and age > 3 * every + 10
    if late or (age is None and signals.checkpoint_failure):
        yield Finding(
            Verdict.CHECKPOINTS, figures={"age_s": age if age is not None else -1.0, "every_s": every},
            quote=signals.checkpoint_failure, names=tuple(signals.checkpoint_waits),
        )  # fmt: skip


def _spark(signals: Signals) -> Iterator[Finding]:
    if signals.spark_waiting >= SPARK_WAITING and signals.spark_batch_s is not None:
        if signals.spark_lag_s > 2 * signals.spark_batch_s:
            yield Finding(
                Verdict.SPARK,
                figures={"waiting": signals.spark_waiting, "batch_s": signals.spark_batch_s,
                         "lag_s": signals.spark_lag_s},
            )  # fmt: skip


def _losses(signals: Signals) -> Iterator[Finding]:
    for component, count in signals.given_up.items():
        yield Finding(Verdict.LOSSES, component, figures={"dead_letters": count, "window_s": signals.window_s})
    if signals.lost:
        yield Finding(Verdict.LOSSES, figures={"lost": signals.lost, "window_s": signals.window_s})


def _changing(signals: Signals) -> Iterator[Finding]:
    settled = (control_pb2.LIFE_RUNNING, control_pb2.LIFE_DEGRADED, control_pb2.LIFE_FAILED)
    if signals.lifecycle not in settled:
        yield Finding(Verdict.CHANGING, quote=signals.cause, names=(lifecycle_name(signals.lifecycle).lower(),))
    elif signals.changed_s is not None and signals.changed_s < signals.window_s:
        yield Finding(Verdict.CHANGING, figures={"left_s": signals.window_s - signals.changed_s}, quote=signals.change)


def _no_input(signals: Signals) -> Iterator[Finding]:
    running = signals.lifecycle == control_pb2.LIFE_RUNNING
    spouts = [task for task in signals.tasks if task.is_spout]
    if running and spouts and not signals.arrival and not signals.held and not any(task.pending for task in spouts):
        yield Finding(
            Verdict.NO_INPUT, figures={"window_s": signals.window_s}, names=tuple(t.component for t in spouts)
        )


_Rule = Callable[[Signals], Iterator[Finding]]
#: Rules that always apply, and rules that need a full window without a change.
_ALWAYS: tuple[_Rule, ...] = (_failed, _down, _hung, _memory, _crashing, _losses)
_SETTLED: tuple[_Rule, ...] = (_slow, _limit, _checkpoints, _spark, _no_input)
