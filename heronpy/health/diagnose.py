"""What holds a topology back: every diagnosis that fits the figures, the one to act on first comes first. Pure.

The order of the rules is the order of precedence: tasks that are down explain slow ones, and the cause of a wait comes
before the wait. Thresholds follow the practice of Turbine (Mei et al., ICDE 2020), whose scaler distinguishes problems
that more tasks solve from those that they do not: skew, a slow task, a dependency.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median

from msgspec.structs import replace

from heronpy.common.states import lifecycle_name
from heronpy.health import sizing, trends
from heronpy.health.baseline import SLOWED
from heronpy.health.footprint import footprints, full_disks, memory
from heronpy.health.lasting import kept
from heronpy.health.signals import HostSignals, Signals, TaskSignals
from heronpy.health.stopped import STOPPED_BY, stopped, unacked
from heronpy.proto import control_pb2
from heronpy.views.findings import CALM, Finding, Verdict

#: Busy shares: above the first two a bolt sets the pace, below the third it does not.
SATURATED, BUSY, IDLE = sizing.SATURATED, sizing.BUSY, 0.6
#: Spouts that are held for this share of the window count as held back.
HELD = 0.2
SKEWED = 1.5
SLOW = 0.5
#: A task that does less than this share is the cause itself, whatever its component waits for.
ILL = 0.25
#: A full task that does less than this share of its usual pace in the newest seconds has just become slow.
LATELY = 0.35
#: Below this much CPU per busy second, a component is waiting for something else; the second one where the machine has
#: no CPU left, because there it may wait for that; the third one there if it is known how long it waits for a CPU.
WAITS, WAITS_STARVED, WAITS_SERVED = 0.3, 0.05, 0.5
SPARK_WAITING = 3
#: A component that does this share less per busy second than before an update.
WORSE = 0.3
#: Where the time at the limit of pending tuples is not known: spouts that have this share of it now wait for acks.
FULL = 0.9
#: A machine has no CPU left: the share of its cores in use, and of the time in which something waits for one.
CORES_USED, PRESSURE = 0.9, 0.3
#: Fewer tasks than this share of the present ones suffice.
SPARE = 0.9
#: Tuples are late if they take this multiple of their usual time.
LATE = 5.0
#: Looks at a task before its line or key is named, and the least share of them.
LOOKS_MIN, KEYED_MIN, LOOKS_SHARE = 5, 20, 0.3


def diagnose(signals: Signals, before: Sequence[Finding] = ()) -> list[Finding]:
    """All findings, most urgent first; one HEALTHY finding without any other.

    `before` is what was found last: a cause of then is said until it has gone. Until figures have settled after a
    change, rates and shares mix two configurations, so they are not judged.
    """
    found = [finding for rule in _ALWAYS for finding in rule(signals)]
    changing = list(_changing(signals))
    if not changing:
        settled = [finding for rule in _SETTLED for finding in rule(signals)]
        if _is_slow(signals):
            settled = kept(settled, [_since(one, signals) for one in before], signals)
        found += settled
    found += [*footprints(signals), *changing]
    found = [_placed(one, signals) for one in found]
    explained = any(one.verdict not in CALM for one in found)
    if not explained and not changing:
        found = [*_untriaged(signals), *found]
    if not changing and not any(one.verdict not in CALM for one in found):
        # Nothing is wrong yet, and nothing is known to be right.
        found = [*_young(signals)] or found
    return sorted(found, key=_place(found)) or [_healthy(signals)]


def _place(found: Sequence[Finding]) -> Callable[[Finding], int]:
    """The order of findings: causes, their effects, those about the machine, those that need no action."""
    held_up = any(one.verdict in STOPPED_BY for one in found)

    def place(finding: Finding) -> int:
        if finding.verdict in CALM:
            return 3
        if finding.scope == "machine":
            return 2
        return 1 if held_up and finding.verdict is Verdict.STOPPED else 0

    return place


def _young(signals: Signals) -> Iterator[Finding]:
    if signals.age_s is not None and signals.age_s < signals.times.young_s:
        yield Finding(Verdict.CHANGING, figures={"young_s": signals.times.young_s - signals.age_s})


def _untriaged(signals: Signals) -> Iterator[Finding]:
    """The spouts are held, or tuples take far longer than usual, and no cause is known."""
    latency = trends.latency(signals)
    late = latency is not None and latency.now_s >= max(signals.times.late_s, LATE * latency.usual_s)
    if late and (machines := list(_machine(signals))):
        yield from machines  # nothing is held, and everything waits for a core
    elif late or _held(signals) >= HELD:
        figures = {"held": signals.held}
        if latency is not None:
            figures |= {"p99_s": latency.now_s, "usual_s": latency.usual_s}
            if latency.acked:
                figures["acked"] = 1
        component = latency.component if latency is not None and late else ""
        yield Finding(Verdict.UNTRIAGED, component, figures=figures, names=tuple(signals.culprits))


def _placed(finding: Finding, signals: Signals) -> Finding:
    """The finding with the component and the host of its task."""
    task = next((one for one in signals.tasks if one.name == finding.task), None)
    return finding if task is None else replace(finding, component=task.component, host=task.host)


def _at_line(finding: Finding | None, signals: Signals) -> Finding | None:
    """The finding with the line of code that most samples of its task show."""
    looks = signals.looks.get(finding.task) if finding is not None else None
    if finding is None or looks is None or looks.looks < LOOKS_MIN or looks.at_line < LOOKS_SHARE:
        return finding
    return replace(finding, figures={**finding.figures, "at_line": looks.at_line}, quote=looks.line)


def _of_key(finding: Finding | None, signals: Signals) -> Finding | None:
    """The finding with the most frequent key of its task."""
    looks = signals.looks.get(finding.task) if finding is not None else None
    if finding is None or looks is None or looks.keyed < KEYED_MIN or looks.of_key < LOOKS_SHARE:
        return finding
    return replace(finding, figures={**finding.figures, "of_key": looks.of_key}, quote=looks.key)


def _since(finding: Finding, signals: Signals) -> Finding:
    """The finding with the time for which its component has been full."""
    lasts_s = trends.lasts_s(signals, finding.component, BUSY, HELD)
    return replace(finding, figures={**finding.figures, "for_s": lasts_s}) if lasts_s else finding


def _healthy(signals: Signals) -> Finding:
    busiest = max(_bolts(signals), key=_busy, default=None)
    units = {"backlog": signals.units_backlog, "published": signals.units_published}
    return Finding(
        Verdict.HEALTHY,
        component=busiest.component if busiest is not None else "",
        task=busiest.name if busiest is not None else "",
        figures={
            "arrival": signals.arrival,
            "held": signals.held,
            "busy": _busy(busiest) if busiest else 0.0,
            **{name: value for name, value in units.items() if value is not None and signals.units_backlog is not None},
        },
        names=tuple(_ended(signals)),
    )


def _ended(signals: Signals) -> list[str]:
    """The spouts whose input has ended while other spouts still have input."""
    spouts = [name for name in signals.components if all(task.is_spout for task in signals.of(name))]
    return [name for name in spouts if all(task.ended for task in signals.of(name))]


def _bolts(signals: Signals) -> list[TaskSignals]:
    """Bolts that report how busy they are. Spouts are left out: a spout is busy when nothing else sets the pace."""
    return [task for task in signals.tasks if not task.is_spout and task.busy is not None]


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
        # A task that ends again and again is down between its restarts: what it ends of says more.
        down = [task.name for task in tasks if not task.up and not _ends_again(signals, task.name)]
        if down:
            # The cause of the topology's state is one for all components.
            why = next((task.error for task in tasks if task.name in down and task.error), signals.cause)
            ends = [signals.restarted.get(name) or signals.out_of_memory.get(name) for name in down]
            last = next((end for end in ends if end is not None), (0, ""))
            yield Finding(
                Verdict.DOWN, component, down[0] if len(down) == 1 else "",
                {"down": len(down), "tasks": len(tasks), "restarts": last[0]},
                quote=last[1] or why, names=tuple(down),
            )  # fmt: skip


def _waits_outside(signals: Signals) -> Iterator[Finding]:
    if signals.outages:
        yield Finding(Verdict.DOWN, names=(signals.topology, "degraded"), quote="; ".join(signals.outages))


def _ends_again(signals: Signals, name: str) -> bool:
    return name in signals.out_of_memory or signals.restarted.get(name, (0, ""))[0] > 1


def _hung(signals: Signals) -> Iterator[Finding]:
    for task in signals.tasks:
        if task.up and task.silent_s > signals.times.hung_s and not _waits_for_spark(task, signals):
            looks = signals.looks.get(task.name)
            yield Finding(
                Verdict.HUNG, task.component, task.name, {"silent_s": task.silent_s}, quote=looks.line if looks else ""
            )


def _waits_for_spark(task: TaskSignals, signals: Signals) -> bool:
    """Whether the task waits in our own code until Spark has processed a batch."""
    return task.component in signals.spark_sinks and signals.spark_waiting > 0


def _crashing(signals: Signals) -> Iterator[Finding]:
    down = {task.name for task in signals.tasks if not task.up}
    for name, (times, text) in signals.restarted.items():
        if times > 1:
            figures: dict[str, float] = {"times": times}
            if name in down:
                figures["down"] = 1
            looks = signals.looks.get(name)
            names = (looks.raised,) if looks is not None and looks.raised and looks.has_raised(text) else ()
            if looks is not None and (common := looks.in_common(text)):
                text = common
                figures |= {"alike": looks.alike_times, "raised": looks.raised_times}
            yield Finding(Verdict.CRASHING, task=name, figures=figures, quote=text, names=names)


def _bad_update(signals: Signals) -> Iterator[Finding]:
    # On a machine without CPU left, tasks do less per busy second whatever their program is.
    if signals.updated_s is None or _starved(signals):
        return
    for component in signals.components:
        found = trends.shift(signals, component)
        if found is None or found.after > (1 - WORSE) * found.before:
            continue
        figures = {"less": 1 - found.after / found.before, "before": found.before, "after": found.after,
                   "ago_s": signals.updated_s}  # fmt: skip
        had = trends.before_update(signals)
        if had is not None:
            figures |= {"plan": had.plan_now, "plan_before": had.plan}
        # What `heron update` takes to go back.
        names = tuple(f"{name}:{number}" for name, number in had.tasks.items()) if had is not None else ()
        yield Finding(Verdict.BAD_UPDATE, component, figures=figures, quote=signals.update, names=names)


def _starved(signals: Signals) -> bool:
    """Whether a machine has no CPU left."""
    return any(map(_has_no_cpu_left, signals.hosts))


def _has_no_cpu_left(host: HostSignals) -> bool:
    return host.used >= CORES_USED * host.cores and host.pressure >= PRESSURE


def _waits_for_acks(signals: Signals) -> list[TaskSignals]:
    """Spouts at their limit of pending tuples; empty unless they are at least half of the spouts with input.

    Sinks that ack whole batches empty `pending` at each ack, so its value at one moment is not enough.
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
    """The bolts whose queues take long to process, and will not be empty soon."""
    found = [task for task in signals.tasks if not task.is_spout and (task.lag_s or 0.0) >= signals.times.behind_s]
    return [task for task in found if _drains_s(signals, task.component) is None]


def _drains_s(signals: Signals, component: str) -> float | None:
    left_s = trends.empties_s(signals, component) if signals.held < HELD and not signals.culprits else None
    return left_s if left_s is not None and left_s <= signals.times.drains_s else None


def _held(signals: Signals) -> float:
    """The share of the window in which spouts were held; 0 if that ended together with the input of one of them."""
    over = signals.held_now == 0.0 and not signals.culprits and any(task.ended for task in signals.tasks)
    return 0.0 if over else signals.held


def _is_slow(signals: Signals) -> bool:
    """Whether something sets the pace of the spouts."""
    full = signals.culprits or signals.avoided or signals.dropped
    return bool(_held(signals) >= HELD or full or _behind(signals) or _waits_for_acks(signals))


def _slow(signals: Signals) -> Iterator[Finding]:
    """For each component that sets the pace, the first cause that fits."""
    if not _is_slow(signals):
        return
    culprits = {*signals.culprits, *signals.avoided, *(task.name for task in _behind(signals))}
    unexplained: list[list[TaskSignals]] = []
    for component in signals.components:
        tasks = [task for task in _bolts(signals) if task.component == component]
        worst = max(tasks, key=_busy, default=None)
        if worst is None or (_busy(worst) < BUSY and not culprits & {task.name for task in tasks}):
            continue
        if any(_ends_again(signals, task.name) for task in signals.of(component)):
            continue  # that is why, and its shares have the restarts in them
        finding = (
            _at_line(_dependency(tasks, culprits, signals), signals)
            or _of_key(_skew(tasks, signals), signals)
            or _slow_host(tasks)
            or _at_line(_slow_task(tasks, culprits) or _alone_busy(tasks, culprits, signals), signals)
        )
        if finding is not None:
            yield _since(finding, signals)
        else:
            unexplained.append(tasks)
    # Before the machine: where no bolt is busy, waiting for a core is not what holds the spouts back most.
    yield from _limit(signals)
    yield from _machine(signals, [task for tasks in unexplained for task in tasks])
    starved = {host.name for host in signals.hosts if _has_no_cpu_left(host)}
    for tasks in unexplained:
        finding = _too_few(tasks, signals)
        # Where a task runs may not be known.
        if finding is not None and not (starved and all(task.host in {*starved, ""} for task in tasks)):
            yield finding


def _machine(signals: Signals, full: Sequence[TaskSignals] = ()) -> Iterator[Finding]:
    """A finding that replaces "too few tasks", because more tasks do not help without CPU. It names the busiest of
    `full`.
    """
    for host in signals.hosts:
        if _has_no_cpu_left(host):
            figures = {"cores": float(host.cores), "others": max(0.0, host.used - host.own), "own": host.own,
                       "pressure": host.pressure, "spark": host.spark}  # fmt: skip
            worst = max((task for task in full if task.host == host.name), key=_busy, default=None)
            if worst is not None:
                figures["busy"] = _busy(worst)
            if any(_computes(task) for task in signals.tasks if task.host in (host.name, "")):
                figures["computes"] = 1
            name = worst.name if worst is not None else ""
            yield Finding(Verdict.MACHINE, task=name, figures=figures, names=(host.name,))


def _slow_host(tasks: list[TaskSignals]) -> Finding | None:
    """All tasks of one machine, at least two, are slower than those of the other machines."""
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
    """Whether most of the task's busy time is neither computing nor waiting for a CPU."""
    if task.cpu is None:
        return False
    if task.cpu_wait is None:
        return task.cpu <= (WAITS_STARVED if starved else WAITS) * _busy(task)
    return task.cpu + task.cpu_wait <= (WAITS_SERVED if starved else WAITS) * _busy(task)


def _computes(task: TaskSignals) -> bool:
    """Whether the task is busy, and uses all the CPU that it gets."""
    if _busy(task) < IDLE or task.cpu is None:
        return False
    if task.cpu_wait is None:
        return task.cpu > WAITS_STARVED * _busy(task)
    return task.cpu > WAITS * (_busy(task) - task.cpu_wait)


def _dependency(tasks: list[TaskSignals], culprits: set[str], signals: Signals) -> Finding | None:
    """The dependency of a bolt is slower than usual, or does not answer. Code that always waits has too few tasks.

    Until the usual figures are known, the finding proposes one more task, which tells the two apart.
    """
    starved, component = _starved(signals), tasks[0].component
    saturated = [task for task in tasks if _busy(task) >= SATURATED and task.cpu is not None]
    waiting = [task for task in saturated if _waits(task, starved)]
    passing = [task for task in waiting if task.executed]
    if not waiting or len(waiting) < len(tasks) / 2:
        return None
    slow = _slow_task(tasks, culprits)
    if slow is not None and slow.figures["rate"] < ILL * slow.figures["usual"]:
        return None
    if not passing:
        # A task that has been in one call for this time hangs.
        hangs = any(task.silent_s > signals.times.hung_s for task in waiting)
        figures = {"busy": _busy(waiting[0]), "window_s": signals.window_s}
        return None if hangs else Finding(Verdict.DEPENDENCY, component, waiting[0].name, figures)
    task, usual_s = max(passing, key=_busy), signals.usual_s.get(component)
    assert task.cpu is not None
    wall_s = task.wall_s or _busy(task) / task.executed
    figures = {"busy": _busy(task), "tuple_s": wall_s, "cpu_s": task.cpu / task.executed}
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
    """One task gets far more tuples. Shares are of tuples sent, because a slow task makes those executed uneven."""
    if len(tasks) < 2 or not _may_be_uneven(tasks[0].component, signals):
        return None
    gets = signals.gets(tasks[0].component)
    worst = max(tasks, key=_busy)
    usual = median(_busy(task) for task in tasks if task is not worst)
    if gets is None or _busy(worst) < BUSY or usual > IDLE:
        return None
    if gets[worst.name] < SKEWED * fmean(gets.values()):
        return None
    return Finding(
        Verdict.SKEW, worst.component, worst.name,
        {"share": gets[worst.name] / sum(gets.values()), "even": 1 / len(tasks), "tasks": len(tasks),
         "busy": _busy(worst), "median": usual},
    )  # fmt: skip


def _slow_task(tasks: list[TaskSignals], culprits: set[str]) -> Finding | None:
    """A task that does half as much per busy second as the others, and is busy or holds others up.

    In the first minute its mean share of busy time still includes the start, although its queue is full already.
    """
    rates = [(rate, task) for task in map(_of_late, tasks) if (rate := task.per_busy_s) is not None]
    if len(rates) < 2:
        return None
    slowest, task = min(rates, key=lambda pair: pair[0])
    usual = median(rate for rate, other in rates if other is not task)
    if slowest >= SLOW * usual or (_busy(task) < BUSY and task.name not in culprits):
        return None
    served = [one.per_served_s or 0.0 for _, one in rates if one is not task]
    if (task.per_served_s or 0.0) >= SLOW * median(served):
        return None  # it only gets less CPU than the others
    return Finding(Verdict.SLOW_TASK, task.component, task.name, {"rate": slowest, "usual": usual})


def _of_late(task: TaskSignals) -> TaskSignals:
    """The task with its latest figures if they are far below those of the window: it has just become slow."""
    working = task.working or task.busy
    if not task.pace or not working or task.pace >= LATELY * task.executed / working:
        return task
    return replace(task, executed=task.pace, busy=1.0, working=1.0, cpu_wait=None)


def _alone_busy(tasks: list[TaskSignals], culprits: set[str], signals: Signals) -> Finding | None:
    """A task that is full while its siblings, which are sent as many tuples, wait for tuples.

    The rate of siblings that do nothing, because this task holds the spouts all the time, is not known.
    """
    worst = max(map(_of_late, tasks), key=_busy)
    others = [_busy(task) for task in tasks if task.name != worst.name]
    gets = signals.gets(worst.component)
    even = gets is not None and gets[worst.name] < SKEWED * fmean(gets.values())
    if not others or worst.name not in culprits or not (even or not _may_be_uneven(worst.component, signals)):
        return None
    if _busy(worst) < SATURATED or max(others) >= trends.BUSY_MIN or worst.per_busy_s is None:
        return None
    figures = {"rate": worst.per_busy_s, "busy": _busy(worst), "others": max(others)}
    return Finding(Verdict.SLOW_TASK, worst.component, worst.name, figures)


def _too_few(tasks: list[TaskSignals], signals: Signals) -> Finding | None:
    figures = sizing.too_few(tasks, signals)
    return Finding(Verdict.UNDER_PROVISIONED, tasks[0].component, figures=figures) if figures is not None else None


def _spouts_too_few(signals: Signals) -> Iterator[Finding]:
    if _is_slow(signals) or _starved(signals):
        return  # something else sets their pace
    for component in signals.backlogs:
        figures = sizing.spouts_too_few(component, signals)
        if figures is not None:
            yield Finding(Verdict.UNDER_PROVISIONED, component, figures=figures)


def _limit(signals: Signals) -> Iterator[Finding]:
    full = _waits_for_acks(signals)
    if not full or signals.max_pending is None or signals.held >= HELD:
        return
    bolts = [task for task in signals.tasks if not task.is_spout]
    if any(not task.up or task.silent_s > signals.times.hung_s or _ends_again(signals, task.name) for task in bolts):
        return  # the acks wait for it
    if any(stopped(signals)):
        return  # no acks come, and none would with more pending
    if _spark_waiting(signals):
        return  # and for Spark they would wait with more pending, too
    if names := unacked(signals):
        figures = {"limit": float(signals.max_pending), "window_s": signals.window_s}
        yield Finding(Verdict.LIMIT, names[0], figures=figures, names=names)
        return  # with more pending, more would wait
    busiest = max(map(_busy, _bolts(signals)), default=0.0)
    if busiest < BUSY:
        figures = {"limit": float(signals.max_pending), "busy": busiest}
        if waits := [task.at_limit for task in full if task.at_limit is not None]:
            figures["waits"] = fmean(waits)
        yield Finding(Verdict.LIMIT, full[0].component, figures=figures)


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


def _spark_waiting(signals: Signals) -> int:
    """The number of waiting Spark batches: now, or the mean of the last minute if none waits."""
    last = next(iter(signals.minutes("", "spark_waiting")[-1:]), None)
    return int(signals.spark_waiting) or round(last or 0.0)


def _spark(signals: Signals) -> Iterator[Finding]:
    batch_s, lag_s, waiting = signals.spark_batch_s, signals.spark_lag_s, _spark_waiting(signals)
    if signals.spark_failed or signals.spark_raised > signals.spark_committed:
        figures = {"failed": signals.spark_failed, "raised": signals.spark_raised, "window_s": signals.window_s}
        yield Finding(Verdict.SPARK, figures=figures | {"committed": signals.spark_committed})
        return  # batches wait because others fail
    if not waiting:
        return
    comes_s = trends.spark_comes_s(signals) if signals.spark_waiting >= SPARK_WAITING and batch_s is not None else None
    # Two batches of a sink wait at most, and the next one grows: their number alone does not tell.
    late = lag_s > 2 * (batch_s or 0.0) and (
        signals.spark_waiting >= SPARK_WAITING or lag_s >= signals.times.spark_late_s
    )
    # Of batches that take half a second one always waits.
    paces = bool(_waits_for_acks(signals)) and max(lag_s, batch_s or 0.0) >= signals.times.behind_s
    holds = any(task.silent_s > signals.times.hung_s and _waits_for_spark(task, signals) for task in signals.tasks)
    if comes_s is not None or paces or holds or (late and (batch_s is not None or lag_s >= signals.times.spark_late_s)):
        figures = {"waiting": float(waiting), "lag_s": lag_s, "window_s": signals.window_s}
        if batch_s is not None:
            figures["batch_s"] = batch_s
        if comes_s is not None:
            figures["comes_s"] = comes_s
        if any(host.spark and _has_no_cpu_left(host) for host in signals.hosts):
            figures["starved"] = 1
        yield Finding(Verdict.SPARK, figures=figures)


def _losses(signals: Signals) -> Iterator[Finding]:
    for component, count in signals.given_up.items():
        yield Finding(Verdict.LOSSES, component, figures={"dead_letters": count, "window_s": signals.window_s})
    for component, per_s in signals.dropped.items():
        figures = {"dropped": per_s, "tasks": float(len(signals.of(component))), "window_s": signals.window_s}
        if component in signals.dropping:
            figures["now"] = 1
        yield Finding(Verdict.LOSSES, component, figures=figures)
    if signals.lost:
        figures = {"lost": signals.lost, "window_s": signals.window_s, "sent_again": float(signals.sends_again)}
        figures["unknown"] = float(signals.lost_unknown)
        yield Finding(Verdict.LOSSES, figures=figures)


def _changing(signals: Signals) -> Iterator[Finding]:
    # Of a young topology the window still grows, and with it what is left would stay.
    settled_s = min(signals.times.settle_s, signals.asked_s if signals.asked_s is not None else signals.window_s)
    settled = (control_pb2.LIFE_RUNNING, control_pb2.LIFE_DEGRADED, control_pb2.LIFE_FAILED)
    if signals.lifecycle not in settled:
        yield Finding(Verdict.CHANGING, quote=signals.cause, names=(lifecycle_name(signals.lifecycle).lower(),))
    elif signals.changed_s is not None and signals.changed_s < settled_s:
        yield Finding(Verdict.CHANGING, figures={"left_s": settled_s - signals.changed_s}, quote=signals.change)


def _no_input(signals: Signals) -> Iterator[Finding]:
    running = signals.lifecycle == control_pb2.LIFE_RUNNING
    spouts = [task for task in signals.tasks if task.is_spout and task.emits and not task.ended]
    works = signals.arrival or signals.held or signals.units_backlog or any(task.pending for task in spouts)
    if running and spouts and not works and not any(stopped(signals)):
        yield Finding(
            Verdict.NO_INPUT, figures={"window_s": signals.window_s}, names=tuple(t.component for t in spouts)
        )


def _catching_up(signals: Signals) -> Iterator[Finding]:
    for component in signals.components:
        lag_s = max((task.lag_s or 0.0 for task in signals.of(component) if not task.is_spout), default=0.0)
        left_s = _drains_s(signals, component)
        if lag_s >= signals.times.behind_s and left_s is not None:
            yield Finding(Verdict.CATCHING_UP, component, figures={"left_s": left_s, "lag_s": lag_s})
    backlog, rate = signals.units_backlog or 0.0, signals.units_published
    if backlog > signals.times.units_behind_s * rate:
        figures = {"backlog": backlog, "published": rate, "window_s": signals.window_s}
        yield Finding(Verdict.CATCHING_UP, figures=figures)


def _over_provisioned(signals: Signals) -> Iterator[Finding]:
    held = [share for share in signals.minutes("", "held")[-60:] if share is not None]
    if signals.lifecycle != control_pb2.LIFE_RUNNING or _is_slow(signals) or max(held, default=0.0) >= HELD:
        return
    for component in signals.components:
        tasks = signals.of(component)
        figures = sizing.spare(signals, component) if not tasks[0].is_spout else None
        if figures is not None and figures["needed"] < SPARE * len(tasks):
            yield Finding(Verdict.OVER_PROVISIONED, component, figures=figures)


_Rule = Callable[[Signals], Iterator[Finding]]
#: Rules that always apply, and rules that need figures without a change.
_ALWAYS: tuple[_Rule, ...] = (_failed, _down, _waits_outside, full_disks, _hung, memory, _crashing, stopped, _losses)
_SETTLED: tuple[_Rule, ...] = (
    _bad_update, _slow, _spouts_too_few, _checkpoints, _spark, _catching_up, _no_input, _over_provisioned,
)  # fmt: skip
