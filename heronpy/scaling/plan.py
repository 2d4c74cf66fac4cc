"""Decides after each look what to change for a job, and why. Pure.

Three findings of `heronpy.health` lead to changes: too few tasks, too little memory, and more tasks than needed. A lag
above the promised lag also leads to a change if a component is fully and evenly busy. Other findings open an alert.
Scaling is suspended while an alert that more tasks cannot solve is open. Invariants: There is one plan at a time, and
each plan is judged before the next one begins. No value leaves the limits of `scale`. Without figures, nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.units import MB, format_bytes, format_duration
from heronpy.health.pace import HELD, WAITS
from heronpy.health.sizing import BUSY
from heronpy.health.texts import sentence
from heronpy.plan.component_config import CONCURRENCY_MAX
from heronpy.scaling import estimate, patterns
from heronpy.scaling.decisions import Alert, Changed, Decision, Judged, Refused, memory_text, size_text, watched
from heronpy.scaling.estimate import LAG_S, Known
from heronpy.scaling.figures import Figures, Goal, Observation, Past, Times
from heronpy.scaling.slo import observed
from heronpy.scaling.state import Bar, Plan, Shrunk, State, Trial, by_clock
from heronpy.views.findings import CALM, OF_MACHINES, Finding, Verdict

T = TypeVar("T")

#: Findings that may accompany too few tasks or do not affect the speed of tuples.
_HARMLESS: Final = CALM | {
    Verdict.UNDER_PROVISIONED, Verdict.CHECKPOINTS, Verdict.PROCESSES, Verdict.DESCRIPTORS, Verdict.LOGGING,
    Verdict.DISK,
}  # fmt: skip
#: Causes that the scaler itself finds, which are not checked while a plan is in progress.
_OWN: Final = frozenset({"no maximum", "maximum", "capacity", "no effect", "memory", "lag"})
#: Those of them that another cause explains if scaling cannot solve that cause.
_EXPLAINED: Final = frozenset({"no maximum", "maximum", "capacity", "lag"})
#: Findings that are consequences of other reported causes.
_EFFECTS: Final = frozenset({Verdict.LOSSES})
#: Multiple of its usual time above which a dependency is slow; below it, waiting is normal for the code.
SLOWER: Final = 3.0
#: Maximum share of the tasks that is removed in one step, so a component with two tasks keeps both.
SHRINK_MAX: Final = 0.4
#: Share of the planned effect below which a change counts as having no effect.
EFFECT_MIN: Final = 0.1
#: Share of the effect after which the next step may double the tasks while their usual waiting time is unknown.
HELPED: Final = 0.5
#: Growth factor of a memory limit, its maximum as a share of a slot or host, and the share that may be used.
MEMORY_GROWS, MEMORY_SHARE, MEMORY_FULL = 1.5, 0.2, 0.8
_BARS_MAX: Final = 6
_GAP_LOOKS: Final = 5
_MORE: Final = "the last step helped, so this step at most doubles the number"


class Outcome(Struct, frozen=True):
    state: State
    decisions: tuple[Decision, ...] = ()
    #: Values for layer scaler: `parallelism`, `resources` and `concurrency` by component.
    changes: dict[str, dict[str, Any]] = {}
    #: Map from component to its demand and the keys of all its tasks, for the history.
    rates: dict[str, tuple[float, float | None]] = {}


def decide(state: State, look: Observation, goal: Goal, times: Times) -> Outcome:
    """Decide after this look, considering all earlier looks."""
    return _Round(by_clock(state, look.at, times), look, goal, times).outcome()


class _Round:
    """The evaluation of one look: its findings, and the decisions so far."""

    def __init__(self, state: State, look: Observation, goal: Goal, times: Times) -> None:
        self.was, self.look, self.goal, self.times, self.now = state, look, goal, times, look.at
        self.parts = look.by_name
        self.fresh = 0 < look.at - state.at <= _GAP_LOOKS * times.look_s
        self.said: list[Decision] = []
        self.found: list[Alert] = []
        self.refusals: dict[str, str] = {}
        #: Why a component that needs more tasks does not get them; this alone does not open an alert.
        self.blocked = goal.barred or ("" if goal.mode == "act" else f"scale.mode is {goal.mode}")
        self.since: dict[str, float] = {}
        self.bars, self.shrunk, self.plan = dict(state.bars), dict(state.shrunk), state.plan
        self.trials: dict[str, Trial] = {}
        self.verdicts = {(one.verdict, one.component): one for one in reversed(look.findings)}
        self.changing = any(one.verdict is Verdict.CHANGING for one in look.findings)
        deployed = bool(look.program and state.program) and look.program != state.program
        self.deployed_at = self.now if deployed else state.deployed_at
        self.changed_at = self.now if deployed or (self.changing and self.plan is None) else state.changed_at
        self.helped = set(state.helped) if self.changed_at == state.changed_at else set[str]()
        self.usual_s = {one.name: self._usual_s(one) for one in look.components}
        self.trouble = [one for one in look.findings if self._vetoes(one)]
        self.lag_s = estimate.lag_of(look) if look.components else None
        self.broken = bool(goal.lag_s) and self.lag_s is not None and self.lag_s > goal.lag_s
        self.keeps_up = self.lag_s is not None and self.lag_s <= max(LAG_S, goal.lag_s / 2) and look.held < HELD
        self.explained = set[str]()
        self.alerts = {key: self._kept(one) for key, one in state.alerts.items()}
        # Clearing a backlog whose cause is gone looks like a load that needs more tasks.
        open_still = [one for one in self.alerts.values() if one.vetoes and self.now - one.seen < times.clear_s]
        self.vetoed = bool(self.trouble or open_still)
        self.known = {one.name: self._learned(one) for one in look.components}
        self.asked = estimate.asked_for(look, self.known)
        at_once = self.lag_s is not None and self.lag_s <= LAG_S
        self.kept_up_at = self.now if at_once else state.kept_up_at
        self.slo = observed(state.slo, self.lag_s, goal.lag_s, self.now, _GAP_LOOKS * times.look_s)

    def outcome(self) -> Outcome:
        """Judge the plan in progress, or decide about changes."""
        self._check_figures()
        for one in self.look.components:
            if self._is_slowed(one):
                # The last change may have been judged while the component was already slow.
                self.bars.pop(one.name, None)
        pressed: list[str] = []
        if self.asked is not None:
            self._correct(self.asked)
            pressed = self._lasting("wants", [one.name for one in self.look.components if self._wants_more(one)],
                                    self.times.sure_s)  # fmt: skip
        spare = self._lasting("spare", [one.name for one in self.look.components if self._has_spare(one)],
                              self.times.spare_s)  # fmt: skip
        if self.plan is not None and (plan := self._allotted(self.plan)).trials:
            self.plan = plan
            self._judge(plan)
        elif self.plan is not None:
            self.plan = None
        elif self.goal.mode != "off" and not self.goal.barred and not self.changing and self.look.components:
            self._more_memory()
            low = self._raise_to_minimum() if not self.trials else []
            settled = self.now - self.changed_at >= self.times.window_s
            if self.asked is not None and not self.vetoed and not self.trials and not low and settled:
                self._grow(pressed, self.asked)
                if not self.trials:
                    self._shrink(spare, self.asked)
        self._alert()
        return self._outcome()

    # ---- findings -------------------------------------------------------------------------

    def _kept(self, one: Alert) -> Alert:
        """Return an open alert: marked as seen if its cause cannot be checked now and may still exist, or as gone if
        a later change or another cause makes it obsolete.
        """
        gone = replace(one, seen=self.now - self.times.clear_s)
        if one.cause == Verdict.BAD_UPDATE.value:
            # `heronpy.health` compares with the hour before; the scaler's changes since then do not remove the cause.
            updated = self.plan is None and (self.look.updated_at or 0.0) > one.since
            changed, again = updated or self.deployed_at > one.since, self._of(Verdict.BAD_UPDATE, one.component)
            calm = self.keeps_up and all(other.verdict in CALM for other in self.look.findings)
            if again is None and (changed or calm):
                return gone if changed else one
            return replace(one, since=self.now if changed or self.plan is not None else one.since, seen=self.now)
        if self.trouble and one.cause in _EXPLAINED:
            self.explained.add(f"{one.cause}:{one.component}")
            return gone
        waits = self.plan is not None and one.cause in _OWN and not one.vetoes
        return replace(one, seen=self.now) if waits else one

    def _learned(self, one: Figures) -> Known:
        known = self.was.known.get(one.name, Known())
        if not self.fresh:
            known = replace(known, full_since=None, waiting=())
        if self.changed_at == self.now or self.now - self.was.at > self.times.day_s:
            known = replace(known, looks=0)
        if self.deployed_at == self.now:
            known = replace(known, usual_looks=0)
        return estimate.learned(known, one, self.look, self.vetoed or self.changing)

    def _usual_s(self, one: Figures) -> float | None:
        known = Known() if self.deployed_at == self.now else self.was.known.get(one.name, Known())
        return estimate.usual_s(one, known, self.now, self.times.day_s)

    def _lasting(self, what: str, names: Iterable[str], least_s: float) -> list[str]:
        """Return the names for which a condition has held for at least `least_s` seconds."""
        old = self.was.since if self.fresh else {}
        found = []
        for name in names:
            self.since[f"{what}:{name}"] = began = old.get(f"{what}:{name}", self.now)
            found += [name] if self.now - began >= least_s else []
        return found

    def _of(self, verdict: Verdict, component: str) -> Finding | None:
        return self.verdicts.get((verdict, component))

    def _vetoes(self, one: Finding) -> bool:
        """Whether scaling must be suspended, because no change by the scaler can solve this finding."""
        if one.verdict is Verdict.MEMORY:
            return "times" in one.figures
        if one.verdict is Verdict.LOSSES:
            return "dropped" not in one.figures
        if one.verdict is Verdict.STOPPED:
            return not any(other.verdict is Verdict.UNDER_PROVISIONED for other in self.look.findings)
        return one.verdict not in _HARMLESS and not self._always_waits(one) and not _spares_tasks(one)

    def _is_beside(self, one: Finding) -> bool:
        """Whether a machine is full, but the component that slows the topology down does not wait for a CPU."""
        if not _spares_tasks(one):
            return False
        others = self.look.findings
        wanted = self.plan is not None or any(key.startswith("wants:") for key in self.was.since)
        return wanted or any(
            other.verdict is Verdict.UNDER_PROVISIONED or self._always_waits(other) for other in others
        )

    def _always_waits(self, one: Finding) -> bool:
        """Whether a component waits no longer than usual, so that more tasks would allow more simultaneous calls.

        Until `heronpy.health` has the usual time, the time at earlier looks shows whether a dependency has become slow.
        If neither is known, the effect of the last change shows it.
        """
        part = self.parts.get(one.component)
        if one.verdict is not Verdict.DEPENDENCY or part is None or not part.processed:
            return False
        if part.usual_s is not None:
            return one.figures.get("tuple_s", 0.0) < SLOWER * part.usual_s
        if self._is_slowed(part):
            return False
        usual_s, now_s = self.usual_s[part.name], estimate.busy_s(part)
        if usual_s is not None and now_s is not None:
            return now_s < SLOWER * usual_s
        bar = self.was.bars.get(part.name)
        return part.name in self.goal.max and (bar is None or self.now >= bar.until)

    def _wants_more(self, one: Figures) -> bool:
        """Whether a component slows the topology down and more tasks would help."""
        if self._is_slowed(one):
            return False
        few = self._of(Verdict.UNDER_PROVISIONED, one.name)
        waits = self._of(Verdict.DEPENDENCY, one.name)
        if (few is not None and "known_in_s" not in few.figures) or (waits is not None and self._always_waits(waits)):
            return True
        used = estimate.used(one, self.known[one.name])
        return self.broken and used is not None and used >= BUSY and estimate.is_even(one)

    def _is_slowed(self, one: Figures) -> bool:
        """Whether a tuple takes far longer than usual, mostly without computing, so that more tasks would not help."""
        usual_s, now_s = self._before_s(one), estimate.busy_s(one)
        if usual_s is None or now_s is None or one.cpu is None or one.busy is None:
            return False
        return now_s >= SLOWER * usual_s and one.cpu <= WAITS * one.busy * estimate.threads(one)

    def _before_s(self, one: Figures) -> float | None:
        """Return the usual seconds for a tuple; if a component was full since its start, those of earlier looks."""
        if self.usual_s[one.name] is not None or self.deployed_at == self.now:
            return self.usual_s[one.name]
        return estimate.earlier_s(self.was.known.get(one.name, Known()), self.now, self.times.day_s)

    def _has_spare(self, one: Figures) -> bool:
        return self._of(Verdict.OVER_PROVISIONED, one.name) is not None

    def _past(self, component: str) -> Past:
        return self.look.past.get(component, Past())

    def _ahead(self, component: str) -> float | None:
        past = self._past(component)
        return past.ahead if patterns.is_usual(past) else None

    def _correct(self, asked: dict[str, float]) -> None:
        for name, shrunk in list(self.shrunk.items()):
            one = self.parts.get(name)
            if one is None or self.now - shrunk.at >= self.times.shrink_s:
                continue
            if self.broken and not self.vetoed and (one.saturated or (one.busy or 0.0) >= BUSY) and shrunk.threads:
                self.known[name] = patterns.lowered(self.known[name], asked[name], shrunk.threads)
                self.shrunk[name] = replace(shrunk, threads=0)
        if not self.changing:
            self.known |= {one.name: patterns.raised(self.known[one.name], one) for one in self.look.components}

    # ---- changes --------------------------------------------------------------------------

    def _raise_to_minimum(self) -> list[str]:
        """Add the tasks that components lack of their minimum, whatever the load is; returns the components."""
        low = [one.name for one in self.look.components if one.tasks < self.goal.least(one.name) and not one.kept]
        for name in self._lasting("low", low, self.times.sure_s):
            before, after = self.parts[name].tasks, self.goal.least(name)
            text = f"{name} {before} -> {after} tasks: scale.min.{name} is {self.goal.min[name]}"
            self._change(self.parts[name], "parallelism", before, after, {"before": before, "after": after}, text)
        return low

    def _grow(self, pressed: list[str], asked: dict[str, float]) -> None:
        """Size the whole graph if a component has needed more tasks for long enough and the topology does not catch
        up.
        """
        drain_s = self.times.drain_s(self.goal)
        left_s = estimate.left_s(self.look, self.known)
        catches_up = any("left_s" in one.figures for one in self.look.findings if one.verdict is Verdict.CATCHING_UP)
        if not pressed or catches_up or (left_s is not None and left_s <= drain_s):
            return
        rates = estimate.with_backlog(asked, self.look, self.known, drain_s)
        for one in self.look.components:
            known, ahead = self.known[one.name], self._ahead(one.name)
            if not known.per_thread or not (one.name in pressed or estimate.is_even(one)):
                continue
            waits = self._of(Verdict.DEPENDENCY, one.name)
            to_try = waits is not None and one.usual_s is None
            rate = max(rates[one.name], ahead or 0.0)
            key, before = "parallelism", one.tasks
            if one.asynchronous and one.concurrency < CONCURRENCY_MAX:
                key, before = "concurrency", one.concurrency
            after = self._needed(one, key, rate)
            if to_try:
                after = max(before + 1, min(after, 2 * before)) if one.name in self.helped else before + 1
            if after <= before:
                continue
            figures = {"before": before, "after": after, "asked": asked[one.name], "wanted": rate, "drain_s": drain_s,
                       "each": known.per_thread * (one.concurrency if key == "parallelism" else 1)}  # fmt: skip
            figures |= {"ahead": ahead} if ahead is not None else {}
            steady = max(asked[one.name], ahead or 0.0)
            if self._needed(one, key, steady) < after:  # the backlog, including that of the sources, is a reason
                figures["waits"] = (rates[one.name] - asked[one.name]) * drain_s
            if not self._may_change(one, one.name in pressed, f"needs {after} {_unit(key)}"):
                continue
            why = ""
            if key == "parallelism" and self.goal.clamped(one.name, after) < after:
                after, needed = self.goal.clamped(one.name, after), self._needed(one, key, steady)
                cause, why, fix = "maximum", f"scale.max.{one.name} is {after}", "; raise the limit"
                if self.goal.is_short(one.name):
                    cause, why, fix = "capacity", self.goal.short, ""
                text = f"{one.name} needs {needed} tasks, but {why}{fix}"
                # A backlog needs more tasks for a short time only.
                self.found += [Alert(one.name, cause, text)] if one.name in pressed and needed > after else []
                if after <= before:
                    self.blocked = self.blocked or f"{one.name} gets no more tasks, because {why}"
                    continue
            text = size_text(one.name, key, figures | {"after": after}, self.times)
            if why:
                text += f"; {figures['after']:.0f} would be needed, but {why}"
            if to_try:
                step = _MORE if one.name in self.helped else "one task is added"
                what = "the tasks wait for something other than a CPU, and their usual waiting time is not known yet"
                text = f"{one.name} {before} -> {after} {_unit(key)}: {what}; {step}"
            self._change(one, key, before, after, figures | {"after": after}, text)

    def _needed(self, one: Figures, key: str, rate: float) -> int:
        """Return the number of tasks, or of simultaneous calls, that a component needs for a rate."""
        per_thread = self.known[one.name].per_thread
        if key == "parallelism":
            return estimate.tasks_for(rate, per_thread, one.concurrency)
        return estimate.concurrency_for(rate, per_thread, one.tasks)

    def _shrink(self, spare: list[str], asked: dict[str, float]) -> None:
        """Remove tasks that have not been needed for a long time, unless a problem, a backlog or the load of other days
        needs them.
        """
        calm = all(one.verdict in CALM and one.verdict is not Verdict.CATCHING_UP for one in self.look.findings)
        if not calm or not self.keeps_up:  # a backlog would need more tasks than its rate alone
            return
        for name in spare:
            one, known, finding = self.parts[name], self.known[name], self._of(Verdict.OVER_PROVISIONED, name)
            last = self.shrunk.get(name)
            early = last is not None and self.now - last.at < self.times.shrink_s
            if finding is None or not known.per_thread or early or name not in self.goal.max or one.kept:
                continue
            ahead, past = self._ahead(name), self._past(name)
            rate = max(asked[name], ahead or 0.0)
            needed = max(estimate.tasks_for(rate, known.per_thread, one.concurrency), int(finding.figures["needed"]))
            after = max(needed, ceil((1 - SHRINK_MAX) * one.tasks - 1e-9), self._tasks_by_memory(one, known, past))
            if ahead is None and after < one.tasks:
                after = one.tasks - (one.tasks - after) // 2  # the other days allow no prediction
            after = self.goal.clamped(name, after)
            if after < one.tasks:
                figures = {"before": one.tasks, "after": after, "asked": asked[name],
                           "each": known.per_thread * one.concurrency}  # fmt: skip
                figures |= {"ahead": ahead} if ahead is not None else {}
                self._change(
                    one, "parallelism", one.tasks, after, figures, size_text(name, "parallelism", figures, self.times)
                )

    def _tasks_by_memory(self, one: Figures, known: Known, past: Past) -> int:
        """Return the minimum number of tasks whose memory suffices for the keys of today and of other days."""
        keys = max((one.keys or 0.0) * one.tasks, past.ahead_keys or 0.0)
        if one.memory_limit is None or not keys:
            return 1
        return estimate.tasks_for_memory(one, known, keys, MEMORY_FULL) or one.tasks

    def _more_memory(self) -> None:
        """Raise the memory limit of tasks; if no more memory is available, add tasks that share the keys."""
        for one in self.look.components:
            if self._of(Verdict.MEMORY, one.name) is None:
                continue
            limit, room = one.memory_limit, int(MEMORY_SHARE * (self.look.room_bytes or 0)) // MB * MB
            tasks = estimate.tasks_for_memory(one, self.known[one.name], (one.keys or 0.0) * one.tasks, MEMORY_FULL)
            more = min(room, ceil(limit * MEMORY_GROWS / MB) * MB) if limit is not None else 0
            after = self.goal.clamped(one.name, tasks) if tasks is not None else one.tasks
            if limit is not None and more > limit:
                if self._may_change(one, True, "needs more memory"):
                    used = {"used": one.memory_max} if one.memory_max is not None else {}
                    self._change(one, "ram", limit, more, used, memory_text(one.name, limit, more, one.memory_max))
            elif limit is not None and after > one.tasks:
                if self._may_change(one, True, f"needs {after} tasks"):
                    text = (
                        f"{one.name} {one.tasks} -> {after} tasks: a task may have {format_bytes(limit)} of memory,"
                        f" which is too little for {one.keys or 0.0:,.0f} keys"
                    )
                    figures = {"keys": one.keys or 0.0, "limit": float(limit)}
                    self._change(one, "parallelism", one.tasks, after, figures, text)
            else:
                text = f"{one.name} needs more memory, and neither its limit nor its number of tasks can be raised"
                self.found.append(Alert(one.name, "memory", text))

    def _may_change(self, one: Figures, wanted: bool, needs: str) -> bool:
        """Whether a component may get more tasks; if `wanted`, a refusal is reported."""
        bar = self.bars.get(one.name)
        if one.name not in self.goal.max:
            cause, why = "no maximum", f"scale.max.{one.name} is not set; set this limit"
        elif one.kept:
            cause, why = "fixed", one.kept
        elif bar is not None and self.now < bar.until:
            cause, why = "no effect", "the last change had no effect: something else limits the component"
        else:
            return True
        text = f"not scaled: {one.name} {needs}, but {why}"
        if wanted and cause == "fixed":
            self._refuse(one.name, cause, text)
            self.blocked = self.blocked or f"{one.name} {needs}, but {why}"
        elif wanted:
            self.found.append(Alert(one.name, cause, text))
        return False

    def _refuse(self, component: str, cause: str, text: str) -> None:
        self.refusals[component] = cause
        if self.was.said.get(component) != cause:
            self.said.append(Refused(component, cause, text))

    def _change(self, one: Figures, key: str, before: int, after: int, figures: dict[str, float], text: str) -> None:
        if self.goal.mode == "advise":
            self.refusals[one.name] = cause = f"{key} {after}"
            if self.was.said.get(one.name) != cause:
                self.said.append(Changed(one.name, key, before, after, figures, f"advised: {text}"))
            return
        self.trials[one.name] = Trial(key, before, after, one.processed or 0.0)
        self.said.append(Changed(one.name, key, before, after, figures, text))
        if after < before:
            self.shrunk[one.name] = Shrunk(self.now, estimate.threads(one))

    # ---- effects --------------------------------------------------------------------------

    def _allotted(self, plan: Plan) -> Plan:
        """Return the plan within the allotment of the pool, without changes of which the pool makes no part."""
        trials = {}
        for name, trial in plan.trials.items():
            limit = self.goal.allotted.get(name, trial.after) if trial.key == "parallelism" else trial.after
            trials[name] = replace(trial, after=min(trial.after, limit))
        return replace(plan, trials={name: one for name, one in trials.items() if one.after != one.before})

    def _judge(self, plan: Plan) -> None:
        """Judge a plan: once its changes are visible and settled, compare their effect with the planned effect."""
        if plan.seen_at is None:
            if all(_is_made(trial, self.parts.get(name)) for name, trial in plan.trials.items()):
                self.plan = replace(plan, seen_at=self.now)
            elif self.now - plan.at >= self.times.apply_s or self.now < plan.at:
                self.plan = None
                for name, trial in plan.trials.items():
                    self._bar(name, trial, 0.0, "was not made")
            return
        if self.now - plan.seen_at < self.times.settle_s or self.changing or not self.look.components:
            return
        self.plan = None
        for name, trial in plan.trials.items():
            one = self.parts.get(name)
            if one is None or trial.after < trial.before:
                continue
            if trial.key == "ram" and self._of(Verdict.MEMORY, name) is not None:
                continue  # the effect is not sufficient yet, and the next step follows
            gained = (one.processed or 0.0) / trial.rate - 1 if trial.rate else 1.0
            effect = gained / (trial.after / trial.before - 1)
            what = "had the planned effect"
            if trial.key == "ram":
                effect = 1.0
            elif not self._wants_more(one):
                slower = gained <= -EFFECT_MIN and not self.keeps_up
                effect, what = 0.0 if slower else 1.0, what if gained > 0 else "were enough"
            self.helped.discard(name)
            if effect < EFFECT_MIN and (self.vetoed or self._is_slowed(one)):
                text = f"{name} {trial.before:,} -> {trial.after:,} {_unit(trial.key)} had no effect"
                self.said.append(Judged(name, effect, None, f"{text}: more tasks do not solve the problem"))
                continue
            if effect >= HELPED and gained > 0:
                self.helped.add(name)
            if effect < EFFECT_MIN:
                self._bar(name, trial, effect, f"had {max(0.0, effect) * 100:.0f} % of the planned effect")
            else:
                self.bars.pop(name, None)
                text = f"{name} {trial.before:,} -> {trial.after:,} {_unit(trial.key)} {what}"
                self.said.append(Judged(name, effect, None, text))

    def _bar(self, name: str, trial: Trial, effect: float, what: str) -> None:
        times = min(_BARS_MAX, self.bars[name].times + 1 if name in self.bars else 0)
        bar_s = self.times.bar_s * 2**times
        self.bars[name] = Bar(self.now + bar_s, times)
        text = f"{name} {trial.before:,} -> {trial.after:,} {_unit(trial.key)} {what}"
        self.said.append(
            Judged(name, effect, self.now + bar_s, f"{text}; no further changes for {format_duration(bar_s)}")
        )

    # ---- alerts ---------------------------------------------------------------------------

    def _check_figures(self) -> None:
        """Open an alert if figures have been missing for a long time, because the scaler does not act without them."""
        missing = [one.name for one in self.look.components if one.processed is None or one.busy is None]
        names = ", ".join(missing) if self.look.components else ""
        unknown = (bool(missing) and not self.changing) or not self.look.components
        if self._lasting("figures", [""] if unknown else [], self.times.sure_s):
            text = f"the throughput and the load of {names or 'the topology'} are not known, so no component is scaled"
            self.found.append(Alert(missing[0] if missing else "", "figures", text))

    def _alert(self) -> None:
        """Find the most urgent cause that scaling cannot solve, or else one of the scaler's own causes."""
        others = [one for one in self.look.findings if one.verdict not in CALM and not self._is_acted_on(one)]
        alerts = []
        full = {host for one in self.look.findings if one.verdict is Verdict.MACHINE for host in one.names}
        untriaged = [one.component for one in self.look.findings if one.verdict is Verdict.UNTRIAGED]
        unknown = self._lasting("untriaged", untriaged, self.times.window_s)
        for one in self.trouble + [one for one in others if one not in self.trouble]:
            told = self.was.alerts.keys() - {f"{one.verdict.value}:{one.component}"}
            follows = (one.verdict in _EFFECTS and told) or (one.verdict is Verdict.SLOW_HOST and full & {*one.names})
            if follows or (one.verdict is Verdict.UNTRIAGED and not unknown):
                continue
            vetoes = one in self.trouble
            usual_s = self.usual_s.get(one.component)
            if one.verdict is Verdict.DEPENDENCY and usual_s is not None:
                # The component may have been full for longer than the dependency has been slow.
                figures = {name: value for name, value in one.figures.items() if name != "for_s"}
                one = replace(one, figures={"usual_s": usual_s} | figures)
            text = sentence(one, self.look.topology) + ("; more tasks would not help" if vetoes else "")
            component = "" if one.verdict in OF_MACHINES else one.component
            # At first, only some tasks of a slow host may be slow.
            later = one.verdict is Verdict.SLOW_TASK or (one.verdict is Verdict.MACHINE and not vetoes)
            waits_s = self.times.sure_s if later else 0.0
            alerts.append(Alert(component, one.verdict.value, text, vetoes, waits_s))
        self.found = alerts + self.found
        wanted = any(key.startswith("wants:") for key in self.since)  # a component is full
        explained = bool(self.blocked) if wanted else True
        alone = not self.found and explained and not self.trials and self.plan is None and not self.changing
        lasts = self._lasting("lag", [""] if self.broken else [], self.times.window_s)
        if alone and lasts and self.lag_s is not None and not self.vetoed:
            lag_s, name = estimate.shown_lag(self.look, self.kept_up_at) or 0.0, self.look.topology
            is_lag = (
                f"the lag of {name} is {format_duration(lag_s)}, above the promised {format_duration(self.goal.lag_s)}"
            )
            text = f"{name} makes no progress while tuples wait" if lag_s >= estimate.ENDLESS_S else is_lag
            slowed = next((one for one in self.look.components if self._is_slowed(one)), None)
            if slowed is not None:
                text += f": {_slow_text(slowed, self._before_s(slowed) or 0.0)}"
            else:
                text += f": {self.blocked}" if wanted else ", but no component is full"
            self.found.append(Alert("", "lag", text))

    def _is_acted_on(self, one: Finding) -> bool:
        few = one.verdict in (Verdict.UNDER_PROVISIONED, Verdict.MEMORY)
        return few or self._always_waits(one) or self._is_beside(one)

    def _outcome(self) -> Outcome:
        alerts, said = watched(self.alerts, self.found, self.now, self.times.clear_s, self.explained)
        plan = Plan(self.now, self.trials) if self.trials else self.plan
        changes: dict[str, dict[str, Any]] = {}
        for name, trial in self.trials.items():
            key, value = ("resources", {"ram": trial.after}) if trial.key == "ram" else (trial.key, trial.after)
            changes.setdefault(key, {})[name] = value
        rates = {}
        if self.asked is not None and not self.changing:
            rates = {name: (rate, self._keys(name)) for name, rate in self.asked.items()}
        state = State(
            at=self.now,
            known=self.known or self.was.known,
            since=self.since,
            changed_at=self.changed_at,
            program=self.look.program or self.was.program,
            deployed_at=self.deployed_at,
            plan=plan,
            shrunk=self._of_parts(self.shrunk),
            bars=self._of_parts(self.bars),
            helped=tuple(sorted(self.helped & self.parts.keys())),
            said=self.refusals,
            alerts=alerts,
            slo=self.slo,
            kept_up_at=self.kept_up_at,
        )
        return Outcome(state, (*said, *self.said), changes, rates)

    def _of_parts(self, by_component: dict[str, T]) -> dict[str, T]:
        """Drop entries for components that the topology no longer has."""
        return {name: one for name, one in by_component.items() if not self.parts or name in self.parts}

    def _keys(self, name: str) -> float | None:
        keys = self.parts[name].keys
        return keys * self.parts[name].tasks if keys is not None else None


def _slow_text(one: Figures, usual_s: float) -> str:
    now_s = format_duration(estimate.busy_s(one) or 0.0)
    return f"{one.name} takes {now_s} for a tuple instead of {format_duration(usual_s)}; more tasks would not help"


def _spares_tasks(one: Finding) -> bool:
    """Whether a machine is full, but no busy component computes, so that more tasks may still help."""
    return one.verdict is Verdict.MACHINE and not one.task and "computes" not in one.figures


def _is_made(trial: Trial, one: Figures | None) -> bool:
    if one is None:
        return False
    seen = {"parallelism": one.tasks, "concurrency": one.concurrency, "ram": one.memory_limit}
    return seen[trial.key] == trial.after


def _unit(key: str) -> str:
    return {"parallelism": "tasks", "concurrency": "calls at once", "ram": "bytes of memory"}[key]
