"""Explains why each component of a job has its number of tasks, with the newest figures. Pure."""

from __future__ import annotations

from msgspec import Struct

from heronpy.common.units import format_duration
from heronpy.health.pace import HELD
from heronpy.scaling import estimate, patterns
from heronpy.scaling.decisions import Alert
from heronpy.scaling.estimate import LAG_S
from heronpy.scaling.figures import Figures, Goal, Observation, Past, Times
from heronpy.scaling.state import State
from heronpy.views.findings import CALM, Verdict


class Evidence(Struct, frozen=True):
    """One component at the newest look; None means unknown."""

    component: str
    tasks: int
    low: int
    high: int | None
    """The maximum in `scale`; None if the component is not scaled."""
    arrives_per_s: float | None
    each_per_s: float | None
    """Tuples per second that one task can process."""
    busy: float | None
    waits: float | None
    """Number of tuples that wait for the component."""
    needed: int | None
    """Number of tasks according to the sizing formula."""
    verdict: str
    """The current decision and its reason."""
    since: float | None = None
    until: float | None = None


def explained(state: State, look: Observation, goal: Goal, times: Times) -> list[Evidence]:
    """Return the evidence for each component, in the order of the topology."""
    asked, drain_s = estimate.asked_for(look, _known(state, look)), times.drain_s(goal)
    wanted = estimate.with_backlog(asked, look, _known(state, look), drain_s) if asked is not None else {}
    stopped = _stops_scaling(state, times) is not None  # if so, a backlog is not a reason for more tasks
    found = []
    for one in look.components:
        known, past = state.known.get(one.name, estimate.Known()), look.past.get(one.name, Past())
        ahead = past.ahead if patterns.is_usual(past) else None
        needed = None
        if known.per_thread and one.name in wanted:
            rate = max((asked if stopped and asked is not None else wanted)[one.name], ahead or 0.0)
            needed = estimate.tasks_for(rate, known.per_thread, one.concurrency)
        found.append(
            Evidence(
                one.name, one.tasks, goal.min.get(one.name, 1), goal.max.get(one.name),
                asked.get(one.name) if asked is not None else None, known.per_thread * one.concurrency or None,
                one.busy, one.backlog, needed, *_verdict(state, one, needed, goal, times, look),
            )
        )  # fmt: skip
    return found


def _known(state: State, look: Observation) -> dict[str, estimate.Known]:
    return {one.name: state.known.get(one.name, estimate.Known()) for one in look.components}


def _stops_scaling(state: State, times: Times) -> Alert | None:
    return next((one for one in state.alerts.values() if one.vetoes and state.at - one.seen < times.clear_s), None)


def _verdict(
    state: State, one: Figures, needed: int | None, goal: Goal, times: Times, look: Observation
) -> tuple[str, float | None, float | None]:
    """Return a sentence about the decision, the time since which it holds, and the time until which it holds."""
    name, high = one.name, goal.max.get(one.name)
    trial = state.plan.trials.get(name) if state.plan is not None else None
    if state.plan is not None and trial is not None:
        what = {"ram": "bytes of memory per task", "concurrency": "calls at once"}.get(trial.key, "tasks")
        seen = state.plan.seen_at
        now = "the scaler waits for the effect" if seen else "the manager is making the change"
        text = f"{trial.before:,} -> {trial.after:,} {what}: {now}"
        return text, seen or state.plan.at, seen + times.settle_s if seen else None
    wants, spare, bar = state.since.get(f"wants:{name}"), state.since.get(f"spare:{name}"), state.bars.get(name)
    if goal.barred or goal.mode == "off":
        return f"not scaled: {goal.barred or 'scale.mode is off'}", None, None
    if high is None:
        return f"not scaled: scale.max.{name} is not set", None, None
    if one.kept:
        return f"not scaled: {one.kept}", None, None
    if one.tasks < goal.least(name):
        return f"it gets more tasks, because scale.min.{name} is {goal.min[name]}", state.since.get(f"low:{name}"), None
    if bar is not None and state.at < bar.until:
        return "no further changes: the last change had no effect", None, bar.until
    wrong = _stops_scaling(state, times)
    if wrong is not None:
        return f"not scaled while this alert is open: {wrong.cause}", wrong.since, None
    if needed is None:
        return "not scaled: the throughput of a task is not known yet", None, None
    if wants is not None and one.tasks >= goal.most(name, high):
        why = goal.short if goal.is_short(name) else f"scale.max.{name} is {high}; raise the limit"
        return f"it needs {max(needed, one.tasks + 1)} tasks, but {why}", wants, None
    settled = max(wants + times.sure_s, state.changed_at + times.window_s) if wants is not None else 0.0
    if wants is not None and settled > state.at:
        return f"it gets more tasks once it has needed them for {format_duration(times.sure_s)}", wants, settled
    if wants is not None:
        return (
            "its tasks are busy; it gets more tasks unless the backlog clears soon or the load needs no more tasks",
            wants,
            None,
        )
    if needed > one.tasks:
        return "it may need more tasks; it gets them when it is too busy or slows the topology down", None, None
    if spare is None or needed >= one.tasks:
        return "it has enough tasks", None, None
    last, text = state.shrunk.get(name), "it has more tasks than it needs"
    again = last.at + times.shrink_s if last is not None else 0.0
    if again > max(spare + times.spare_s, state.at):
        return f"{text}; at most one reduction is made every {format_duration(times.shrink_s)}", spare, again
    if spare + times.spare_s > state.at:
        return f"{text}; some are removed after {format_duration(times.spare_s)}", spare, spare + times.spare_s
    return f"{text}; no task is removed {_keeping(look, goal)}", spare, None


def _keeping(look: Observation, goal: Goal) -> str:
    """Return why no task is removed although fewer would suffice, as a clause; see `plan`."""
    found = next((one for one in look.findings if one.verdict not in CALM or one.verdict is Verdict.CATCHING_UP), None)
    if found is not None:
        return f"while the doctor reports: {found.verdict.value}"
    lag_s = estimate.lag_of(look)
    if lag_s is None or lag_s > max(LAG_S, goal.lag_s / 2) or look.held >= HELD:
        return "before the backlog is gone"
    return "because other days, or the memory for its keys, need the tasks"
