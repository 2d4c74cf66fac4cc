"""Finds the component that limits the rate of the spouts, and the first fitting cause for each full component. Pure.

Thresholds follow the practice of Turbine (Mei et al., ICDE 2020), whose scaler separates problems that more tasks
solve from problems that more tasks do not solve: skew, a slow task, a dependency.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean, median

from msgspec.structs import replace

from heronpy.health import sizing, trends
from heronpy.health.baseline import SLOWED
from heronpy.health.signals import HostSignals, Signals, TaskSignals
from heronpy.health.stopped import stopped, unacked
from heronpy.views.findings import Finding, Verdict

#: Busy shares: a bolt above the first two limits the rate, and a bolt below the third does not.
SATURATED, BUSY, IDLE = sizing.SATURATED, sizing.BUSY, 0.6
#: Spouts count as held back if they are held back for this share of the window.
HELD = 0.2
SKEWED = 1.5
SLOW = 0.5
#: A task below this share of the others' rate is the cause, even if its component waits for something.
ILL = 0.25
#: A full task has just become slow if it does less than this share of its usual rate in the newest seconds.
LATELY = 0.35
#: A component with less CPU than this per busy second waits for something else. The second limit applies on a machine
#: without free CPU, where the component may wait for a CPU. The third limit applies there if the time spent waiting for
#: a CPU is known.
WAITS, WAITS_STARVED, WAITS_SERVED = 0.3, 0.05, 0.5
#: More tasks help a component on a machine without free CPU if it waits for something else for this share of its time.
OUTSIDE = 0.2
#: If the time at the limit of pending tuples is unknown, spouts wait for acks when this share of the limit is pending.
FULL = 0.9
#: A machine has no free CPU at this share of used cores, and at this share of time in which a thread waits for a core.
CORES_USED, PRESSURE = 0.9, 0.3
#: Minimum samples of a task before its line or key is named, and the minimum share of the samples.
SAMPLES_MIN, KEYED_MIN, SAMPLES_SHARE = 5, 20, 0.3


def _at_line(finding: Finding | None, signals: Signals) -> Finding | None:
    """Return the finding, completed with the line of code that most samples of its task show."""
    hot = signals.hot_spots.get(finding.task) if finding is not None else None
    if finding is None or hot is None or hot.samples < SAMPLES_MIN or hot.at_line < SAMPLES_SHARE:
        return finding
    return replace(finding, figures={**finding.figures, "at_line": hot.at_line}, quote=hot.line)


def _of_key(finding: Finding | None, signals: Signals) -> Finding | None:
    """Return the finding, completed with the most frequent key of its task."""
    hot = signals.hot_spots.get(finding.task) if finding is not None else None
    if finding is None or hot is None or hot.keyed < KEYED_MIN or hot.of_key < SAMPLES_SHARE:
        return finding
    return replace(finding, figures={**finding.figures, "of_key": hot.of_key}, quote=hot.key)


def with_time(finding: Finding, signals: Signals) -> Finding:
    """Return the finding, completed with the time for which its component has been full."""
    lasts_s = trends.lasts_s(signals, finding.component, BUSY, HELD)
    return replace(finding, figures={**finding.figures, "for_s": lasts_s}) if lasts_s else finding


def measured_bolts(signals: Signals) -> list[TaskSignals]:
    """Return the tasks of bolts that report how busy they are; a spout without a limit is always busy."""
    return [task for task in signals.tasks if not task.is_spout and task.busy is not None]


def busy_share(task: TaskSignals) -> float:
    return task.busy or 0.0


def ends_again(signals: Signals, name: str) -> bool:
    return name in signals.out_of_memory or signals.restarted.get(name, (0, ""))[0] > 1


def is_starved(signals: Signals) -> bool:
    """Whether a machine has no free CPU."""
    return any(map(has_no_cpu_left, signals.hosts))


def has_no_cpu_left(host: HostSignals) -> bool:
    return host.used >= CORES_USED * host.cores and host.pressure >= PRESSURE


def waits_for_acks(signals: Signals) -> list[TaskSignals]:
    """Return the spouts at their limit of pending tuples; empty unless they are at least half of the spouts with input.

    Sinks that ack whole batches empty `pending` at each ack, so its momentary value is not enough.
    """
    most = signals.max_pending
    spouts = [task for task in signals.tasks if task.is_spout and task.up and not task.ended]
    if not most or not signals.acking:
        return []
    full = [
        task for task in spouts if (task.pending >= FULL * most if task.at_limit is None else task.at_limit >= HELD)
    ]
    return full if len(full) * 2 >= len(spouts) else []


def _behind(signals: Signals) -> list[TaskSignals]:
    """Return the bolts whose queues take a long time to process, and will not be empty soon."""
    found = [task for task in signals.tasks if not task.is_spout and (task.lag_s or 0.0) >= signals.times.behind_s]
    return [task for task in found if drains_s(signals, task.component) is None]


def drains_s(signals: Signals, component: str) -> float | None:
    left_s = trends.empties_s(signals, component) if signals.held < HELD and not signals.culprits else None
    return left_s if left_s is not None and left_s <= signals.times.drains_s else None


def held_share(signals: Signals) -> float:
    """Return the share of the window in which spouts were held back; 0 if none is now and some input has ended."""
    over = signals.held_now == 0.0 and not signals.culprits and any(task.ended for task in signals.tasks)
    return 0.0 if over else signals.held


def is_slow(signals: Signals) -> bool:
    """Whether something limits the rate of the spouts."""
    full = signals.culprits or signals.avoided or signals.dropped
    return bool(held_share(signals) >= HELD or full or _behind(signals) or waits_for_acks(signals))


def slow_components(signals: Signals) -> Iterator[Finding]:
    """Yield the first fitting cause for each component that limits the rate."""
    if not is_slow(signals):
        return
    culprits = {*signals.culprits, *signals.avoided, *(task.name for task in _behind(signals))}
    if held_share(signals) >= HELD:
        # A task that repeatedly holds back the spouts for a short time may not do so now.
        culprits |= {*signals.held_by}
    unexplained: list[list[TaskSignals]] = []
    for component in signals.components:
        tasks = [task for task in measured_bolts(signals) if task.component == component]
        worst = max(tasks, key=busy_share, default=None)
        if worst is None or (busy_share(worst) < BUSY and not culprits & {task.name for task in tasks}):
            continue
        if any(ends_again(signals, task.name) for task in signals.of(component)):
            continue  # the restarts are the cause, and the shares of the task's time include them
        finding = (
            _at_line(_dependency(tasks, culprits, signals), signals)
            or _of_key(_skew(tasks, signals), signals)
            or _slow_host(tasks)
            or _at_line(_slow_task(tasks, culprits) or _alone_busy(tasks, culprits, signals), signals)
        )
        if finding is not None:
            yield with_time(_with_others(finding, tasks, signals), signals)
        else:
            unexplained.append(tasks)
    # This rule precedes the rule about machines: if no bolt is busy, waiting for a core is not the main limit of the
    # spouts.
    yield from _limit(signals)
    # Tasks that wait for something other than a CPU are too few even if no CPU is left.
    held = [tasks for tasks in unexplained if not all(_waits(task, True) or _is_served(task) for task in tasks)]
    yield from full_machines(signals, [task for tasks in held for task in tasks])
    starved = {host.name for host in signals.hosts if has_no_cpu_left(host)}
    for tasks in unexplained:
        finding = _too_few(tasks, signals)
        # The host of a task may be unknown.
        full = starved and tasks in held and all(task.host in {*starved, ""} for task in tasks)
        if finding is not None and not full:
            yield finding


def full_machines(signals: Signals, full: Sequence[TaskSignals] = ()) -> Iterator[Finding]:
    """Yield a finding for each machine without free CPU, with its busiest task of `full`: more tasks would not help."""
    for host in signals.hosts:
        if has_no_cpu_left(host):
            figures = {"cores": float(host.cores), "others": max(0.0, host.used - host.own), "own": host.own,
                       "pressure": host.pressure, "spark": host.spark}  # fmt: skip
            worst = max((task for task in full if task.host == host.name), key=busy_share, default=None)
            if worst is not None:
                figures["busy"] = busy_share(worst)
            if any(_computes(task) for task in measured_bolts(signals) if task.host in (host.name, "")):
                figures["computes"] = 1
            name = worst.name if worst is not None else ""
            yield Finding(Verdict.MACHINE, task=name, figures=figures, names=(host.name,))


def _slow_host(tasks: list[TaskSignals]) -> Finding | None:
    """Return the finding that all tasks on one machine, at least two, are slower than the tasks on other machines."""
    rates: defaultdict[str, list[float]] = defaultdict(list)
    for task in tasks:
        if task.host and (rate := task.per_busy_s) is not None:
            rates[task.host].append(rate)
    if len(rates) < 2:
        return None
    host = min(rates, key=lambda name: median(rates[name]))
    usual = median(rate for name, found in rates.items() if name != host for rate in found)
    if len(rates[host]) < 2 or max(rates[host]) >= SLOW * usual:
        return None
    return Finding(
        Verdict.SLOW_HOST, tasks[0].component,
        figures={"rate": median(rates[host]), "usual": usual, "tasks": len(rates[host])}, names=(host,),
    )  # fmt: skip


def _waits(task: TaskSignals, starved: bool) -> bool:
    """Whether the task spends most of its busy time neither computing nor waiting for a CPU."""
    if task.cpu is None:
        return False
    if task.cpu_wait is None:
        return task.cpu <= (WAITS_STARVED if starved else WAITS) * busy_share(task)
    return task.cpu + task.cpu_wait <= (WAITS_SERVED if starved else WAITS) * busy_share(task)


def _is_served(task: TaskSignals) -> bool:
    """Whether the task waits for a CPU, but computes little and waits for something else as well."""
    if task.cpu is None or task.cpu_wait is None:
        return False
    waits = busy_share(task) - task.cpu_wait
    return task.cpu <= WAITS * waits and waits - task.cpu >= OUTSIDE * busy_share(task)


def _computes(task: TaskSignals) -> bool:
    """Whether the task is busy, and mostly computes whenever it has a CPU."""
    if busy_share(task) < IDLE or task.cpu is None:
        return False
    if task.cpu_wait is None:
        return task.cpu > WAITS_STARVED * busy_share(task)
    return task.cpu > WAITS * (busy_share(task) - task.cpu_wait)


def _dependency(tasks: list[TaskSignals], culprits: set[str], signals: Signals) -> Finding | None:
    """Return the finding that a bolt's dependency is slower than usual, or does not answer.

    A bolt that always waits has too few tasks instead. Until the usual figures are known, the finding proposes one more
    task, which distinguishes the two cases.
    """
    starved, component = is_starved(signals), tasks[0].component
    saturated = [task for task in tasks if busy_share(task) >= SATURATED and task.cpu is not None]
    waiting = [task for task in saturated if _waits(task, starved)]
    passing = [task for task in waiting if task.executed]
    if not waiting or len(waiting) < len(tasks) / 2:
        return None
    slow = _slow_task(tasks, culprits)
    if slow is not None and slow.figures["rate"] < ILL * slow.figures["usual"]:
        return None
    if not passing:
        # A task that has been in one call for this time counts as hung.
        hangs = any(task.silent_s > signals.times.hung_s for task in waiting)
        figures = {"busy": busy_share(waiting[0]), "window_s": signals.window_s}
        return None if hangs else Finding(Verdict.DEPENDENCY, component, waiting[0].name, figures)
    task, usual_s = max(passing, key=busy_share), signals.usual_s.get(component)
    assert task.cpu is not None
    wall_s = task.wall_s or busy_share(task) / task.executed
    figures = {"busy": busy_share(task), "tuple_s": wall_s, "cpu_s": task.cpu / task.executed}
    if usual_s is None:
        figures["needed"] = len(tasks) + 1.0
    elif wall_s < SLOWED * usual_s:
        return None
    else:
        figures["usual_s"] = usual_s
    return Finding(Verdict.DEPENDENCY, component, task.name, figures)


def _may_be_uneven(component: str, signals: Signals) -> bool:
    return signals.keyed is None or component in signals.keyed


def _skew(tasks: list[TaskSignals], signals: Signals) -> Finding | None:
    """Return the finding that one task gets far more tuples than the others; tuples count when they are sent."""
    if len(tasks) < 2 or not _may_be_uneven(tasks[0].component, signals):
        return None
    gets = signals.gets(tasks[0].component)
    worst = max(tasks, key=busy_share)
    usual = median(busy_share(task) for task in tasks if task is not worst)
    if gets is None or busy_share(worst) < BUSY or usual > IDLE:
        return None
    if gets[worst.name] < SKEWED * fmean(gets.values()):
        return None
    return Finding(
        Verdict.SKEW, worst.component, worst.name,
        {"share": gets[worst.name] / sum(gets.values()), "even": 1 / len(tasks), "tasks": len(tasks),
         "busy": busy_share(worst), "median": usual},
    )  # fmt: skip


def _slow_task(tasks: list[TaskSignals], culprits: set[str]) -> Finding | None:
    """Return the finding that a task does less than half as much per busy second as the others.

    The task must also be busy or delay the others. In the first minute the mean busy share still includes the start,
    although the queue is already full.
    """
    rates = [(rate, task) for task in map(_of_late, tasks) if (rate := task.per_busy_s) is not None]
    if len(rates) < 2:
        return None
    slowest, task = min(rates, key=lambda pair: pair[0])
    usual = median(rate for rate, other in rates if other is not task)
    if slowest >= SLOW * usual or (busy_share(task) < BUSY and task.name not in culprits):
        return None
    served = [one.per_served_s or 0.0 for _, one in rates if one is not task]
    if (task.per_served_s or 0.0) >= SLOW * median(served):
        return None  # it only gets less CPU than the other tasks
    return Finding(Verdict.SLOW_TASK, task.component, task.name, {"rate": slowest, "usual": usual})


def _with_others(finding: Finding, tasks: list[TaskSignals], signals: Signals) -> Finding:
    """Add how many other tasks take over a slow task's tuples, if any do, and whether the spouts still wait."""
    discards = finding.component in signals.dropped or finding.component in signals.dropping
    if finding.verdict is not Verdict.SLOW_TASK or finding.task not in signals.avoided or discards:
        return finding
    figures = {**finding.figures, "take_over": len(tasks) - 1.0}
    if finding.task in signals.culprits:
        figures["all_full"] = 1
    elif held_share(signals) < HELD:
        figures["no_wait"] = 1
    return replace(finding, figures=figures)


def _of_late(task: TaskSignals) -> TaskSignals:
    """Return the task, with its latest figures if it has just become far slower than in the window."""
    working = task.working or task.busy
    if not task.pace or not working or task.pace >= LATELY * task.executed / working:
        return task
    return replace(task, executed=task.pace, busy=1.0, working=1.0, cpu_wait=None)


def _alone_busy(tasks: list[TaskSignals], culprits: set[str], signals: Signals) -> Finding | None:
    """Return the finding that one task is full while its siblings, which get as many tuples, wait for tuples.

    If this task holds back the spouts all the time, its siblings do nothing, and their rate is unknown.
    """
    worst = max(map(_of_late, tasks), key=busy_share)
    others = [busy_share(task) for task in tasks if task.name != worst.name]
    gets = signals.gets(worst.component)
    even = gets is not None and gets[worst.name] < SKEWED * fmean(gets.values())
    if not others or worst.name not in culprits or not (even or not _may_be_uneven(worst.component, signals)):
        return None
    if busy_share(worst) < SATURATED or max(others) >= trends.BUSY_MIN or worst.per_busy_s is None:
        return None
    figures = {"rate": worst.per_busy_s, "busy": busy_share(worst), "others": max(others)}
    return Finding(Verdict.SLOW_TASK, worst.component, worst.name, figures)


def _too_few(tasks: list[TaskSignals], signals: Signals) -> Finding | None:
    figures = sizing.too_few(tasks, signals)
    return Finding(Verdict.UNDER_PROVISIONED, tasks[0].component, figures=figures) if figures is not None else None


def spouts_too_few(signals: Signals) -> Iterator[Finding]:
    if is_slow(signals) or is_starved(signals):
        return  # another component limits the rate of the spouts
    for component in signals.backlogs:
        figures = sizing.spouts_too_few(component, signals)
        if figures is not None:
            yield Finding(Verdict.UNDER_PROVISIONED, component, figures=figures)


def _limit(signals: Signals) -> Iterator[Finding]:
    full = waits_for_acks(signals)
    if not full or signals.max_pending is None or signals.held >= HELD:
        return
    bolts = [task for task in signals.tasks if not task.is_spout]
    if any(not task.up or task.silent_s > signals.times.hung_s or ends_again(signals, task.name) for task in bolts):
        return  # the acks wait for this bolt
    if any(stopped(signals)):
        return  # no tuples are acked, even with a higher limit
    if batches_waiting(signals):
        return  # with a higher limit, the spouts would still wait for Spark
    if names := unacked(signals):
        figures = {"limit": float(signals.max_pending), "window_s": signals.window_s}
        yield Finding(Verdict.LIMIT, names[0], figures=figures, names=names)
        return  # a higher limit would only let more tuples wait
    busiest = max(map(busy_share, measured_bolts(signals)), default=0.0)
    if busiest < BUSY:
        figures = {"limit": float(signals.max_pending), "busy": busiest}
        if waits := [task.at_limit for task in full if task.at_limit is not None]:
            figures["waits"] = fmean(waits)
        yield Finding(Verdict.LIMIT, full[0].component, figures=figures)


def batches_waiting(signals: Signals) -> int:
    """Return the number of waiting Spark batches; if none is waiting, the mean over the last minute."""
    last = next(iter(signals.minutes("", "spark_waiting")[-1:]), None)
    return int(signals.spark_waiting) or round(last or 0.0)
