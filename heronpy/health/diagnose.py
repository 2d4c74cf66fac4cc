"""Diagnoses: all findings that fit the figures, in the order in which users should act on them. Pure.

The order of the rules is the order of precedence: tasks that are down explain slow tasks, and the cause of a wait comes
before the wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from heronpy.common.states import lifecycle_name
from heronpy.health import pace, sizing, trends
from heronpy.health.footprint import footprints, full_disks, memory
from heronpy.health.lasting import kept
from heronpy.health.signals import Signals, TaskSignals
from heronpy.health.stopped import STOPPED_BY, stopped
from heronpy.proto import control_pb2
from heronpy.views.findings import CALM, Finding, Verdict

#: Minimum number of waiting Spark batches that shows by itself that batches are late.
SPARK_WAITING = 3
#: A component has become worse if its work per busy second is lower by this share than before an update.
WORSE = 0.3
#: Tasks are spare if fewer than this share of the current tasks suffice.
SPARE = 0.9
#: Tuples are late if they take this multiple of their usual time.
LATE = 5.0


def diagnose(signals: Signals, before: Sequence[Finding] = ()) -> list[Finding]:
    """Return all findings, most urgent first, or a single HEALTHY finding if there is no other finding.

    `before` contains the previous findings; a cause among them is reported until it no longer applies. Until figures
    have settled after a change, rates and shares mix two configurations, so they are not judged.
    """
    found = [finding for rule in _ALWAYS for finding in rule(signals)]
    changing = list(_changing(signals))
    if not changing:
        settled = [finding for rule in _SETTLED for finding in rule(signals)]
        if pace.is_slow(signals):
            settled = kept(settled, [pace.with_time(one, signals) for one in before], signals)
        found += settled
    found += [*footprints(signals), *changing]
    found = [_placed(one, signals) for one in found]
    explained = any(one.verdict not in CALM for one in found)
    if not explained and not changing:
        found = [*_untriaged(signals), *found]
    if not changing and not any(one.verdict not in CALM for one in found):
        # No problem is known yet, but the figures are too few to call the topology healthy.
        found = [*_young(signals)] or found
    return sorted(found, key=_place(found)) or [_healthy(signals)]


def _place(found: Sequence[Finding]) -> Callable[[Finding], int]:
    """Return a sort key: causes, then effects, then findings about the machine, then findings that need no action."""
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
    """Yield a finding if spouts are held back or tuples take far longer than usual, and no cause is known."""
    latency = trends.latency(signals)
    late = latency is not None and latency.now_s >= max(signals.times.late_s, LATE * latency.usual_s)
    if late and (machines := list(pace.full_machines(signals))):
        yield from machines  # no spout is held back, and everything waits for a CPU
    elif late or pace.held_share(signals) >= pace.HELD:
        figures = {"held": signals.held}
        if latency is not None:
            figures |= {"p99_s": latency.now_s, "usual_s": latency.usual_s}
            if latency.acked:
                figures["acked"] = 1
        component = latency.component if latency is not None and late else ""
        yield Finding(Verdict.UNTRIAGED, component, figures=figures, names=tuple(signals.culprits))


def _placed(finding: Finding, signals: Signals) -> Finding:
    """Return the finding with the component and host of its task."""
    task = next((one for one in signals.tasks if one.name == finding.task), None)
    return finding if task is None else replace(finding, component=task.component, host=task.host)


def _healthy(signals: Signals) -> Finding:
    busiest = max(pace.measured_bolts(signals), key=pace.busy_share, default=None)
    units = {"backlog": signals.units_backlog, "published": signals.units_published}
    return Finding(
        Verdict.HEALTHY,
        component=busiest.component if busiest is not None else "",
        task=busiest.name if busiest is not None else "",
        figures={
            "arrival": signals.arrival,
            "held": signals.held,
            "busy": pace.busy_share(busiest) if busiest else 0.0,
            **{name: value for name, value in units.items() if value is not None and signals.units_backlog is not None},
        },
        names=tuple(_ended(signals)),
    )


def _ended(signals: Signals) -> list[str]:
    """Return the spouts whose input has ended while other spouts still have input."""
    spouts = [name for name in signals.components if all(task.is_spout for task in signals.of(name))]
    return [name for name in spouts if all(task.ended for task in signals.of(name))]


def _failed(signals: Signals) -> Iterator[Finding]:
    if signals.lifecycle == control_pb2.LIFE_FAILED:
        yield Finding(Verdict.FAILED, quote=signals.cause)


def _down(signals: Signals) -> Iterator[Finding]:
    if signals.lifecycle in (control_pb2.LIFE_STARTING, control_pb2.LIFE_UPDATING, control_pb2.LIFE_FAILED):
        return
    for component in signals.components:
        tasks = signals.of(component)
        # A task that ends repeatedly is down between its restarts; the reason why it ends is more useful.
        down = [task.name for task in tasks if not task.up and not pace.ends_again(signals, task.name)]
        if down:
            # The cause of the topology's state is the same for all components.
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


def _hung(signals: Signals) -> Iterator[Finding]:
    for task in signals.tasks:
        if task.up and task.silent_s > signals.times.hung_s and not _waits_for_spark(task, signals):
            hot = signals.hot_spots.get(task.name)
            yield Finding(
                Verdict.HUNG, task.component, task.name, {"silent_s": task.silent_s}, quote=hot.line if hot else ""
            )


def _waits_for_spark(task: TaskSignals, signals: Signals) -> bool:
    """Whether the task waits in heronpy's own code until Spark has processed a batch."""
    return task.component in signals.spark_sinks and signals.spark_waiting > 0


def _crashing(signals: Signals) -> Iterator[Finding]:
    down = {task.name for task in signals.tasks if not task.up}
    for name, (times, text) in signals.restarted.items():
        if times > 1:
            figures: dict[str, float] = {"times": times}
            if name in down:
                figures["down"] = 1
            hot = signals.hot_spots.get(name)
            names = (hot.raised,) if hot is not None and hot.raised and hot.has_raised(text) else ()
            if hot is not None and (common := hot.in_common(text)):
                text = common
                figures |= {"alike": hot.alike_times, "raised": hot.raised_times}
            yield Finding(Verdict.CRASHING, task=name, figures=figures, quote=text, names=names)


def _bad_update(signals: Signals) -> Iterator[Finding]:
    # On a machine without free CPU, tasks do less per busy second with any program.
    if signals.updated_s is None or pace.is_starved(signals):
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
        # The arguments of `heron update` that undo the update.
        names = tuple(f"{name}:{number}" for name, number in had.tasks.items()) if had is not None else ()
        yield Finding(Verdict.BAD_UPDATE, component, figures=figures, quote=signals.update, names=names)


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
    batch_s, lag_s, waiting = signals.spark_batch_s, signals.spark_lag_s, pace.batches_waiting(signals)
    if signals.spark_failed or signals.spark_raised > signals.spark_committed:
        figures = {"failed": signals.spark_failed, "raised": signals.spark_raised, "window_s": signals.window_s}
        yield Finding(Verdict.SPARK, figures=figures | {"committed": signals.spark_committed})
        return  # batches wait because other batches fail
    if not waiting:
        return
    comes_s = trends.spark_comes_s(signals) if signals.spark_waiting >= SPARK_WAITING and batch_s is not None else None
    # At most two batches of a sink wait while the next one grows, so their number alone does not show lateness.
    late = lag_s > 2 * (batch_s or 0.0) and (
        signals.spark_waiting >= SPARK_WAITING or lag_s >= signals.times.spark_late_s
    )
    # With batches that take half a second, one batch always waits.
    paces = bool(pace.waits_for_acks(signals)) and max(lag_s, batch_s or 0.0) >= signals.times.behind_s
    holds = any(task.silent_s > signals.times.hung_s and _waits_for_spark(task, signals) for task in signals.tasks)
    if comes_s is not None or paces or holds or (late and (batch_s is not None or lag_s >= signals.times.spark_late_s)):
        figures = {"waiting": float(waiting), "lag_s": lag_s, "window_s": signals.window_s}
        if batch_s is not None:
            figures["batch_s"] = batch_s
        if comes_s is not None:
            figures["comes_s"] = comes_s
        if any(host.spark and pace.has_no_cpu_left(host) for host in signals.hosts):
            figures["starved"] = 1
        yield Finding(Verdict.SPARK, figures=figures)


def _losses(signals: Signals) -> Iterator[Finding]:
    for component, count in signals.given_up.items():
        yield Finding(Verdict.LOSSES, component, figures={"dead_letters": count, "window_s": signals.window_s})
    for component, per_s in signals.dropped.items():
        figures = {"dropped": per_s, "tasks": float(len(signals.of(component))), "window_s": signals.window_s}
        if component in signals.dropping:
            figures["now"] = 1
            if done := sum(task.executed for task in signals.of(component)):
                tasks = len(signals.of(component))
                figures["needed"] = max(tasks + 1, sizing.needed(done + per_s, done / tasks))
        yield Finding(Verdict.LOSSES, component, figures=figures)
    if signals.lost:
        figures = {"lost": signals.lost, "window_s": signals.window_s, "sent_again": float(signals.sends_again)}
        figures["unknown"] = float(signals.lost_unknown)
        yield Finding(Verdict.LOSSES, figures=figures)


def _changing(signals: Signals) -> Iterator[Finding]:
    settle_s = signals.times.restored_s if signals.restored else signals.times.settle_s
    # The window of a young topology still grows, so a change would stay in the window.
    settled_s = min(settle_s, signals.asked_s if signals.asked_s is not None else signals.window_s)
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
        left_s = pace.drains_s(signals, component)
        if lag_s >= signals.times.behind_s and left_s is not None:
            yield Finding(Verdict.CATCHING_UP, component, figures={"left_s": left_s, "lag_s": lag_s})
    backlog, rate = signals.units_backlog or 0.0, signals.units_published
    if backlog > signals.times.units_behind_s * rate:
        figures = {"backlog": backlog, "published": rate, "window_s": signals.window_s}
        yield Finding(Verdict.CATCHING_UP, figures=figures)


def _over_provisioned(signals: Signals) -> Iterator[Finding]:
    held = [share for share in signals.minutes("", "held")[-sizing.spare_minutes(signals) :] if share is not None]
    if signals.lifecycle != control_pb2.LIFE_RUNNING or pace.is_slow(signals) or max(held, default=0.0) >= pace.HELD:
        return
    for component in signals.components:
        tasks = signals.of(component)
        figures = sizing.spare(signals, component) if not tasks[0].is_spout else None
        if figures is not None and figures["needed"] < SPARE * len(tasks):
            yield Finding(Verdict.OVER_PROVISIONED, component, figures=figures)


_Rule = Callable[[Signals], Iterator[Finding]]
#: Rules that always apply, and rules that need figures without a recent change.
_ALWAYS: tuple[_Rule, ...] = (_failed, _down, _waits_outside, full_disks, _hung, memory, _crashing, stopped, _losses)
_SETTLED: tuple[_Rule, ...] = (
    _bad_update, pace.slow_components, pace.spouts_too_few, _checkpoints, _spark, _catching_up, _no_input,
    _over_provisioned,
)  # fmt: skip
