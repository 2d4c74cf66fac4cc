"""Rules of the scaler, by looks of a test's own: limits, bars, alerts, promises, and what happens without figures."""

from __future__ import annotations

from math import ceil
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from heronpy.scaling.decisions import Alerted, Changed, Cleared, Judged, Refused, lag_text
from heronpy.scaling.estimate import Known, Line, lag_of, learned, shown_lag
from heronpy.scaling.explaining import explained
from heronpy.scaling.figures import Figures, Goal, Observation, Past, Times
from heronpy.scaling.patterns import lowered, raised
from heronpy.scaling.plan import Outcome, decide
from heronpy.scaling.reading import observation_of
from heronpy.scaling.replaying import Minute, timeline_of
from heronpy.scaling.slo import Attainment, observed
from heronpy.scaling.state import State, withdrawn
from heronpy.views.findings import Finding, Verdict
from tests.support.views import component_load, load_answer

TIMES = Times()
GOAL = Goal(lag_s=5.0, max={"work": 8})
NOON = 86_400.0 * 20_000.5
FEW = (Finding(Verdict.UNDER_PROVISIONED, "work"),)
SLOW = (Finding(Verdict.DEPENDENCY, "work", "work-1", {"tuple_s": 0.041, "cpu_s": 0.0004}),)
SPARE = (Finding(Verdict.OVER_PROVISIONED, "work", figures={"needed": 2.0, "tasks": 6.0, "busy": 0.2}),)


class Job:
    """Looks at one spout and one bolt, a minute apart; what is decided is done at once."""

    def __init__(self, goal: Goal = GOAL, **work: Any) -> None:
        self.goal, self.state, self.now = goal, State(), NOON
        self.work: dict[str, Any] = {"tasks": 3, "processed": 2700.0, "busy": 0.95, "spread": 0.05} | work
        self.said: list[Any] = []

    def look(self, findings: tuple[Finding, ...] = (), does: bool = True, **more: Any) -> Outcome:
        self.now += TIMES.look_s
        rate = self.work["processed"] or 0.0
        read = Figures(name="read", is_spout=True, tasks=1, processed=rate, busy=0.1, backlog=more.pop("backlog", 0.0))
        work = Figures(name="work", is_spout=False, inputs={"read": rate}, **self.work)
        self.newest = Observation(topology="Day", at=self.now, components=(read, work), findings=findings, **more)
        outcome = decide(self.state, self.newest, self.goal, TIMES)
        self.state = outcome.state
        self.said += outcome.decisions
        if does:
            self.work["tasks"] = outcome.changes.get("parallelism", {}).get("work", self.work["tasks"])
            self.work["concurrency"] = outcome.changes.get("concurrency", {}).get(
                "work", self.work.get("concurrency", 1)
            )
        return outcome

    def looks(self, number: int, findings: tuple[Finding, ...] = (), **more: Any) -> list[Any]:
        """What was said in this number of looks."""
        before = len(self.said)
        for _ in range(number):
            self.look(findings, **more)
        return self.said[before:]

    def of(self, kind: type) -> list[Any]:
        return [one for one in self.said if isinstance(one, kind)]


def test_more_tasks_are_wanted_for_two_minutes_and_say_why() -> None:
    job = Job()
    assert job.looks(2, FEW) == []
    (changed,) = job.looks(1, FEW)
    assert job.work["tasks"] == 5 == changed.after
    assert changed.text == "work 3 -> 5 tasks: 2,700/s arrive; a task handles 947/s, and should be 70 % busy"


def test_a_reason_has_the_backlog_of_the_sources_and_computes_to_its_target() -> None:
    job = Job()
    job.looks(3, FEW, backlog=2e6)
    (changed,) = job.of(Changed)
    n = changed.figures
    assert changed.after == 6 == ceil((n["asked"] + n["waits"] / n["drain_s"]) / (n["each"] * 0.7))
    assert changed.text == (
        "work 3 -> 6 tasks: 2,700/s arrive, 2,005,400 tuples wait and should be processed within 30m00s;"
        " a task handles 947/s, and should be 70 % busy"
    )
    few = Job(replace(GOAL, max={"work": 5}))
    few.looks(3, FEW, backlog=2e6)
    assert few.of(Changed)[0].text.endswith("; 6 would be needed, but scale.max.work is 5")
    assert not few.of(Alerted), "five tasks are enough for what arrives"


def test_a_full_machine_is_no_reason_against_tasks_that_wait_for_something_else() -> None:
    figures = {"cores": 2.0, "others": 1.9, "own": 0.1, "pressure": 0.9, "spark": 0.0, "busy": 1.0}
    full = Finding(Verdict.MACHINE, figures=figures, names=("h1",))
    job = Job()
    assert [type(one) for one in job.looks(3, (full, *FEW))] == [Changed]
    for held in (replace(full, task="work-1"), replace(full, figures=figures | {"computes": 1.0})):
        job = Job()
        assert [type(one) for one in job.looks(3, (held, *FEW))] == [Alerted]
    job = Job()
    job.look(FEW)
    job.looks(2, (full,))
    assert [type(one) for one in job.looks(3, FEW)] == [Changed], "a look without too few tasks starts no alert"
    idle = Job(busy=0.1)
    assert not idle.looks(2, (full,)), "it is told when it has lasted"
    assert [one.text for one in idle.looks(1, (full,))] == [
        "h1 has no free CPU: Day uses 0.1 of 2 cores, other processes 1.9"
    ]


def test_an_alert_of_a_short_day_does_not_come_and_go() -> None:
    times, state, said = Times.of(1200.0), State(), list[Any]()
    bolt = Figures(name="work", is_spout=False, tasks=1, processed=10.0, busy=0.1)
    read = Figures(name="read", is_spout=True, tasks=1, processed=10.0, busy=0.1)
    for look in range(24):
        found = (Finding(Verdict.HUNG, "work", "work-1", {"silent_s": 30.0}),) if look % 6 == 0 else ()
        seen = Observation(topology="Day", at=NOON + 5 * look, components=(read, bolt), findings=found)
        outcome = decide(state, seen, GOAL, times)
        state, said = outcome.state, [*said, *outcome.decisions]
    assert [type(one) for one in said] == [Alerted]


def test_what_is_explained_does_not_contradict_its_figures() -> None:
    def verdict(job: Job) -> tuple[int | None, str, float | None]:
        one = {one.component: one for one in explained(job.state, job.newest, GOAL, TIMES)}["work"]
        return one.needed, one.verdict, one.until

    job = Job(tasks=1, processed=900.0, busy=0.99)
    job.look()
    assert verdict(job) == (
        2,
        "it may need more tasks; it gets them when it is too busy or slows the topology down",
        None,
    )
    job = Job(tasks=6, processed=3900.0, busy=0.67)
    job.look(SPARE)
    assert verdict(job)[:2] == (6, "it has enough tasks")
    job = Job(tasks=6, processed=1000.0, busy=0.2)
    job.look(SPARE)
    assert verdict(job)[1].endswith("some are removed after 1h00m") and verdict(job)[2] == job.now + TIMES.spare_s
    job.looks(70, SPARE, held=0.5)
    assert verdict(job)[1].endswith("no task is removed before the backlog is gone") and verdict(job)[2] is None
    job.look((*SPARE, Finding(Verdict.CATCHING_UP, figures={"left_s": 9.0, "lag_s": 9.0})))
    assert verdict(job)[1].endswith("no task is removed while the doctor reports: catching up")


def test_other_days_are_part_of_the_size() -> None:
    job = Job()
    job.looks(3, FEW, past={"work": Past(days=3, ahead=3500.0, usual=2600.0, recent=2700.0)})
    assert job.work["tasks"] == 6
    assert "3,500/s arrived within the next 8h00m on other days" in job.said[0].text
    other = Job()
    other.looks(3, FEW, past={"work": Past(days=3, ahead=3500.0, usual=1000.0, recent=2700.0)})
    assert other.work["tasks"] == 5, "this day is unlike the others"


def test_history_never_acts_alone() -> None:
    for busy, rate in ((0.5, 1500.0), (0.85, 2500.0)):
        job = Job(busy=busy, processed=rate)
        job.looks(10, past={"work": Past(days=3, ahead=4000.0, usual=rate, recent=rate)})
        assert not job.said, busy


def test_what_has_no_effect_is_not_tried_for_an_hour_then_for_two() -> None:
    job = Job()
    told = [(look, one) for look in range(1, 501) for one in job.look(FEW).decisions]
    cause = {Changed: lambda one: one.after, Judged: lambda one: (one.barred_until - job.now) / 60 + 500}
    assert [(look, type(one), cause.get(type(one), lambda one: one.cause)(one)) for look, one in told] == [
        (3, Changed, 5),
        (7, Judged, 7 + 60),
        (8, Alerted, "no effect"),
        (67, Changed, 7),
        (71, Judged, 71 + 120),
        (191, Alerted, "maximum"),  # before the change that it allows
        (191, Changed, 8),
        (195, Judged, 195 + 240),
        (200, Cleared, "maximum"),  # more than that would not help now
        (435, Alerted, "maximum"),
        (439, Cleared, "no effect"),
    ]
    texts = [one.text for _, one in told]
    assert texts[1] == "work 3 -> 5 tasks had 0 % of the planned effect; no further changes for 1h00m"


def test_a_step_after_which_less_is_processed_had_no_effect() -> None:
    job = Job()
    job.looks(3, FEW)
    job.work |= {"processed": 200.0}
    job.looks(5, backlog=1e5)
    (judged,) = job.of(Judged)
    assert judged.text.startswith("work 3 -> 5 tasks had 0 % of the planned effect") and judged.barred_until
    calm = Job()
    calm.looks(3, FEW)
    calm.work |= {"busy": 0.5}
    calm.looks(5)
    assert [one.text for one in calm.of(Judged)] == ["work 3 -> 5 tasks were enough"]


def test_a_service_that_becomes_slow_stops_the_scaler_before_health_knows_its_usual_time() -> None:
    job = Job(busy=0.5)
    job.looks(6)
    job.work |= {"processed": 70.0, "busy": 1.0}
    said = job.looks(6, SLOW, backlog=1e4)
    assert [one.cause for one in said] == ["dependency"] and "(usually 556us)" in said[0].text
    unknown = Job(busy=0.5)
    unknown.looks(6)
    unknown.work |= {"busy": 1.0}
    assert isinstance(unknown.looks(6, SLOW, backlog=1e4)[0], Changed), "it takes no longer than before"
    later = Job(busy=0.5)
    later.looks(6)
    later.now += 2 * TIMES.day_s
    later.work |= {"processed": 70.0, "busy": 1.0}
    assert isinstance(later.looks(6, SLOW, backlog=1e4)[0], Changed), "what was two days ago is not usual"


def test_a_slowdown_that_is_over_holds_the_scaler_no_longer() -> None:
    """It begins right after a change, which is therefore not judged by its effect."""
    job = Job(cpu=0.05, busy=0.5, processed=1421.0)
    job.looks(6)
    job.work |= {"busy": 0.95, "processed": 2700.0}
    job.looks(3, FEW)
    assert job.work["tasks"] == 5
    job.looks(2)
    job.work |= {"processed": 100.0, "busy": 1.0}
    job.looks(3, SLOW, backlog=1e4)
    (judged,) = job.of(Judged)
    assert judged.barred_until is None and [one.cause for one in job.of(Alerted)] == ["dependency"]
    job.work |= {"processed": 4500.0}
    usual = (Finding(Verdict.DEPENDENCY, "work", "work-1", {"tuple_s": 0.0011, "cpu_s": 0.0004}),)
    said = job.looks(10, usual, backlog=1e7)
    assert [type(one) for one in said[:2]] == [Cleared, Changed]


def test_a_component_that_was_always_full_and_becomes_slow_needs_no_tasks_and_no_limit() -> None:
    job = Job(replace(GOAL, max={"work": 4}), cpu=0.05, busy=1.0, tasks=4)
    job.looks(6)
    job.work |= {"processed": 100.0}
    said = job.looks(8, SLOW, backlog=1e5)
    assert [(one.cause, one.component) for one in said if isinstance(one, Alerted)] == [("dependency", "work")]
    assert job.of(Changed) == []


def test_a_component_that_waits_as_usual_is_held_only_by_the_effect_of_its_last_change() -> None:
    job = Job(busy=0.5, processed=1421.0)
    job.looks(6)
    job.work |= {"busy": 0.95, "processed": 2700.0}
    job.looks(7, FEW)
    assert job.of(Judged)[0].barred_until
    waits = (Finding(Verdict.DEPENDENCY, "work", "work-1", {"tuple_s": 0.0011, "cpu_s": 0.0004}),)
    said = job.looks(120, waits, backlog=1e6)
    assert [one.cause for one in said if isinstance(one, Alerted)][:1] == ["no effect"]
    assert [type(one) for one in said if isinstance(one, Changed)] == [Changed]


def test_an_open_alert_has_the_figures_of_now() -> None:
    job = Job(busy=0.5)
    job.looks(6)
    job.work |= {"processed": 70.0, "busy": 1.0}
    job.looks(3, SLOW)
    job.looks(1, (replace(SLOW[0], figures={"tuple_s": 0.082, "cpu_s": 0.0004}),))
    (alert,) = job.state.alerts.values()
    assert "82ms per tuple" in alert.text and len(job.of(Alerted)) == 1


def test_a_lag_is_no_longer_than_since_there_was_none() -> None:
    job = Job(busy=0.5)
    job.look()
    job.work |= {"processed": 200.0}
    job.looks(3, backlog=1e6)
    lag_s = shown_lag(job.newest, job.state.kept_up_at)
    assert lag_s == 3 * TIMES.look_s + 5 and lag_text(lag_s) == "lag 3m05s"
    assert shown_lag(job.newest, 0.0) == 5000, "it never kept up, so only the estimate is known"
    job.looks(5, backlog=1e6)
    (alert,) = job.of(Alerted)
    assert alert.text == "the lag of Day is 6m05s, above the promised 5s, but no component is full"
    job.work |= {"processed": 0.0}
    job.look(backlog=1e6)
    assert lag_text(shown_lag(job.newest, job.state.kept_up_at) or 0.0) == "stalled"
    other = Job(busy=0.5, processed=0.0)
    other.looks(8, backlog=1e6)
    assert other.of(Alerted)[0].text == "Day makes no progress while tuples wait, but no component is full"


def test_the_lag_of_a_chart_is_that_of_the_command() -> None:
    job, kept = Job(busy=0.5), list[bytes]()
    for rate, backlog in ((2700.0, 0.0), (20.0, 1e6)):
        before = job.state
        job.work |= {"processed": rate}
        job.look(backlog=backlog)
        kept.append(msgspec.json.encode(Minute(job.newest, GOAL, TIMES.day_s, before)))
    lag = next(one.values for one in timeline_of(kept, 5.0).series if one.metric == "lag_s")
    assert lag == [0.0, TIMES.look_s + 5] and lag[1] == shown_lag(job.newest, job.state.kept_up_at)


def test_a_change_that_nobody_made_is_barred_and_one_that_was_refused_is_forgotten() -> None:
    job = Job()
    job.looks(3, FEW, does=False)
    job.looks(11, FEW, does=False)
    (judged,) = job.of(Judged)
    assert "was not made" in judged.text and job.work["tasks"] == 3
    other = Job()
    other.looks(3, FEW, does=False)
    assert other.state.plan is not None and withdrawn(other.state).plan is None


def test_a_component_that_its_pool_limits_names_the_pool_and_is_not_barred() -> None:
    short = "in pool 'small' work gets 4 of 5 tasks: jobs may have 8 cores"
    job = Job()
    job.looks(3, FEW, does=False)
    job.goal = replace(job.goal, allotted={"work": 4}, short=short)
    job.work |= {"tasks": 4, "processed": 3600.0}
    job.looks(8, FEW, does=False)
    judged, alert = job.said[1:]
    assert (judged.text, judged.barred_until) == ("work 3 -> 4 tasks had the planned effect", None)
    assert (alert.cause, alert.text) == ("capacity", f"work needs 6 tasks, but {short}")
    (work,) = (one for one in explained(job.state, job.newest, job.goal, TIMES) if one.component == "work")
    assert work.verdict.endswith(f" tasks, but {short}") and work.high == 8
    stays = Job()
    stays.looks(3, FEW, does=False)
    stays.goal = replace(stays.goal, allotted={"work": 3}, short=short)
    stays.looks(12, FEW, does=False)
    assert not stays.of(Judged) and [one.cause for one in stays.of(Alerted)] == ["capacity"]
    lower = Job(replace(GOAL, max={"work": 3}, allotted={"work": 4}, short=short))
    lower.looks(3, FEW)
    assert [one.cause for one in lower.of(Alerted)] == ["maximum"], "the pool would give more than the maximum"


def test_a_component_gets_its_minimum_without_any_load_and_during_an_alert() -> None:
    goal = replace(GOAL, min={"work": 3})
    job = Job(goal, tasks=1, processed=10.0, busy=0.01)
    assert job.looks(2, SLOW) == job.said[:1] and job.work["tasks"] == 1, "tasks that start anew come back by then"
    (work,) = (one for one in explained(job.state, job.newest, goal, TIMES) if one.component == "work")
    assert work.verdict == "it gets more tasks, because scale.min.work is 3"
    job.looks(10, SLOW)
    assert job.work["tasks"] == 3 and [one.text for one in job.of(Changed)] == [
        "work 1 -> 3 tasks: scale.min.work is 3"
    ]
    advised = Job(replace(goal, mode="advise"), tasks=1)
    advised.looks(9, FEW)
    assert [one.text for one in advised.said] == ["advised: work 1 -> 3 tasks: scale.min.work is 3"]
    for other in (
        Job(goal, tasks=1, busy=0.1, pinned="layer oncall sets parallelism.work"),
        Job(replace(goal, max={}), tasks=1, busy=0.1),
        Job(replace(goal, allotted={"work": 1}, short="why"), tasks=1, busy=0.1),
    ):
        assert other.looks(9) == []


def test_no_value_leaves_its_limits_and_the_need_is_told() -> None:
    job = Job(replace(GOAL, max={"work": 4}))
    job.looks(3, FEW)
    assert job.work["tasks"] == 4
    assert [one.text for one in job.of(Alerted)] == ["work needs 5 tasks, but scale.max.work is 4; raise the limit"]
    unset = Job(replace(GOAL, max={}))
    unset.looks(5, FEW)
    assert [one.text for one in unset.said] == [
        "not scaled: work needs 5 tasks, but scale.max.work is not set; set this limit"
    ]
    fixed = Job(pinned="layer oncall sets parallelism.work")
    fixed.looks(5, FEW)
    assert [type(one) for one in fixed.said] == [Refused], "said once"


def test_a_broken_promise_is_told_also_while_the_tasks_are_pinned_or_the_scaler_is_off() -> None:
    why = "layer oncall sets parallelism.work"
    for job, reason in (
        (Job(pinned=why), f"work needs 5 tasks, but {why}"),
        (Job(replace(GOAL, mode="off")), "scale.mode is off"),
    ):
        job.looks(2)
        job.looks(9, FEW, backlog=1e6)
        (alert,) = job.of(Alerted)
        assert alert.text.startswith("the lag of Day is ") and alert.text.endswith(f", above the promised 5s: {reason}")


def test_a_lag_is_no_longer_told_once_its_cause_is_known() -> None:
    job = Job(pinned="layer oncall sets parallelism.work", usual_s=0.003)
    job.looks(2)
    job.looks(9, FEW, backlog=1e6)
    job.looks(2, SLOW, backlog=1e6)
    over, cause = job.of(Cleared)[0], job.of(Alerted)[1]
    assert over.text.startswith("another cause was found: the lag of Day is ") and cause.cause == "dependency"


def test_a_component_that_waits_far_longer_than_usual_gets_no_tasks_and_is_named() -> None:
    for cpu, gets in ((0.3, False), (2.9, True), (None, True)):
        job = Job(busy=0.3, cpu=0.6)
        job.looks(4)
        job.work |= {"processed": 270.0, "busy": 0.98, "cpu": cpu}
        job.looks(9, FEW, backlog=1e6)
        assert bool(job.of(Changed)) is gets
        texts = [one.text for one in job.of(Alerted)]
        slow = "work takes 11ms for a tuple instead of 333us; more tasks would not help"
        assert gets or [text.partition(": ")[2] for text in texts] == [slow]


def test_a_scaler_that_may_only_measure_says_why() -> None:
    why = "the last change has failed"
    job = Job(replace(GOAL, barred=why))
    job.looks(2)
    job.looks(9, FEW, backlog=1e6)
    assert not job.of(Changed) and job.of(Alerted)[0].text.endswith(f"above the promised 5s: {why}")
    (work,) = (one for one in explained(job.state, job.newest, job.goal, TIMES) if one.component == "work")
    assert work.verdict == f"not scaled: {why}"


def test_a_burst_raises_the_rate_of_a_task_only_until_later_looks_measure_less() -> None:
    work = Figures(name="work", is_spout=False, tasks=1, processed=2000.0, busy=1.0)
    known = raised(Known(measured=900.0, looks=10), work)
    assert known.per_thread == 2000.0
    for at in range(40):
        calm = replace(work, processed=780.0, busy=0.95)
        known = raised(learned(known, calm, Observation(topology="Day", at=float(at), components=(calm,)), False), calm)
    assert known.per_thread == pytest.approx(780.0 / 0.95, rel=0.05)


def test_while_spouts_are_held_back_the_lag_counts_queues_and_the_rate_of_the_consumers() -> None:
    read = Figures(name="read", is_spout=True, tasks=1, processed=0.0, backlog=20_000.0)
    work = Figures(name="work", is_spout=False, tasks=2, processed=2000.0, inputs={"read": 0.0})
    look = Observation(topology="Day", at=1.0, components=(read, work), held=1.0, end_to_end_s=12.0)
    assert lag_of(look) == 12.0 and lag_of(replace(look, end_to_end_s=None)) == 10.0
    assert lag_of(replace(look, components=(replace(read, backlog=0.0), work))) == 12.0
    calm = replace(look, components=(replace(read, backlog=0.0, processed=9.0), work), held=0.0)
    assert [lag_of(replace(calm, queue_s=queue_s)) for queue_s in (None, 1.0, 30.0)] == [0.0, 0.0, 30.0]


def test_a_clock_that_is_set_back_by_a_day_makes_the_scaler_wait_for_nothing() -> None:
    job = Job()
    job.looks(4, FEW)
    assert isinstance(job.said[-1], Changed) and job.state.plan is not None and job.state.plan.seen_at is not None
    job.now -= 86_400
    (judged,) = [one for one in job.looks(5, FEW) if isinstance(one, Judged)]
    assert judged.barred_until is not None and judged.barred_until > job.now
    job.now -= 86_400
    job.looks(1, FEW)
    assert job.state.bars["work"].until <= job.now + TIMES.bar_s


def test_a_component_that_cannot_be_rescaled_is_refused_with_its_reason() -> None:
    why = "'work' keeps plain State, which cannot be rescaled"
    load = load_answer(component_load("work", not_scalable=why), window_s=300.0).load
    (work,) = observation_of("Day", load, (), (), {}, None, {}, NOON).components
    assert work.fixed == why
    (pinned,) = observation_of("Day", load, (), (), {"work": "layer oncall sets it"}, None, {}, NOON).components
    assert (pinned.fixed, pinned.kept) == (why, f"layer oncall sets it, and {why}")
    job = Job(fixed=work.fixed)
    job.looks(5, FEW)
    assert [one.text for one in job.said] == [f"not scaled: work needs 5 tasks, but {why}"]


def test_a_cause_is_told_once_until_it_has_gone() -> None:
    job = Job()
    job.looks(10, SLOW, past={})
    assert [type(one) for one in job.said] == [Changed, Judged, Alerted], "nothing is known of it: one task more"
    assert job.work["tasks"] == 4 and job.said[1].barred_until and job.said[2].cause == "dependency"
    job = Job(usual_s=0.0011)
    job.looks(10, (*SLOW, *FEW))
    (alert,) = job.said
    slow = "41ms per tuple (usually 1ms), 400us of it CPU"
    assert alert.text == f"work is waiting, not computing: {slow}; more tasks would not help"
    assert job.looks(4, FEW) == [], "it may come back"
    cleared, *_ = job.looks(1, FEW)
    assert cleared.text == f"over: {alert.text}"
    assert isinstance(cleared, Cleared) and job.looks(2, SLOW)[0].cause == "dependency"


def test_a_slow_task_stops_all_at_once_and_is_told_when_it_is_known_that_it_is_not_its_host() -> None:
    slow = Finding(Verdict.SLOW_TASK, "work", "work-1", {"rate": 300.0, "usual": 900.0})
    host = Finding(Verdict.SLOW_HOST, "work", figures={"rate": 300.0, "usual": 900.0, "tasks": 2.0}, names=("a",))
    job = Job()
    assert job.looks(2, (slow, *FEW)) == []
    assert [one.cause for one in job.looks(1, (slow, *FEW))] == ["slow task"]
    job = Job()
    assert [one.cause for one in job.looks(1, (slow, *FEW)) + job.looks(10, (host, *FEW))] == ["slow host"]


def test_advice_changes_nothing_and_off_decides_nothing() -> None:
    job = Job(replace(GOAL, mode="advise"))
    assert not any(job.look(FEW).changes for _ in range(30))
    (advice,) = job.said
    assert isinstance(advice, Changed) and advice.text.startswith("advised: work 3 -> 5")
    off = Job(replace(GOAL, mode="off"))
    off.looks(5, (*FEW, Finding(Verdict.HUNG, "work", "work-1", {"silent_s": 30.0})))
    assert [type(one) for one in off.said] == [Alerted]


def test_after_a_change_by_somebody_else_figures_settle_first() -> None:
    job = Job()
    job.looks(3, (Finding(Verdict.CHANGING, figures={"left_s": 60.0}),))
    assert job.looks(4, FEW) == []
    assert job.looks(1, FEW) and job.work["tasks"] == 5


def test_without_figures_nothing_is_done() -> None:
    job = Job(busy=None)
    job.looks(200, SPARE)
    assert [one.cause for one in job.said] == ["figures"]
    silent, state = list[Any](), State()
    for minute in range(10):
        outcome = decide(state, Observation(topology="Day", at=NOON + 60 * minute), GOAL, TIMES)
        state, silent = outcome.state, [*silent, *outcome.decisions]
    assert [one.cause for one in silent] == ["figures"]


def test_a_shrink_is_small_rare_and_halved_without_other_days() -> None:
    job = Job(tasks=6, processed=1000.0, busy=0.2)
    known = Past(days=5, ahead=1000.0, usual=1000.0, recent=1000.0)
    assert job.looks(60, SPARE, past={"work": known}) == []
    job.looks(3, SPARE, past={"work": known})
    assert job.work["tasks"] == 4, "not below 0.6 of them"
    job.looks(600, SPARE, past={"work": known})
    assert job.work["tasks"] == 4, "once in 12 hours"
    evidence = {one.component: one for one in explained(job.state, job.newest, GOAL, TIMES)}["work"]
    assert evidence.verdict == "it has more tasks than it needs; at most one reduction is made every 12h00m"
    assert evidence.until == job.state.shrunk["work"].at + TIMES.shrink_s > job.now
    other = Job(tasks=6, processed=1000.0, busy=0.2)
    other.looks(63, SPARE)
    assert other.work["tasks"] == 5
    busy_later = Job(tasks=6, processed=1000.0, busy=0.2)
    busy_later.looks(100, SPARE, past={"work": replace(known, ahead=4000.0)})
    assert busy_later.work["tasks"] == 6


def test_a_shrink_that_broke_the_promise_lowers_the_rate() -> None:
    assert lowered(Known(1000.0), 6000.0, 10).per_thread == 800.0


def test_memory_follows_a_line_of_keys() -> None:
    line = Line()
    for keys in (1000.0, 2000.0, 3000.0):
        line = line.with_point(keys, 2e7 + 500 * keys)
    assert line.bytes_at(10_000.0) == pytest.approx(2e7 + 5e6)


def test_one_stall_is_one_interval_with_its_bounds() -> None:
    """A stall of 200 s from second 610 on, of a job that promises 5 s; it catches up at three times its rate."""
    kept = Attainment()
    for at in range(0, 3000, 60):
        stalled = min(max(0.0, at - 610.0), 200.0)
        lag_s = max(0.0, stalled - 2 * max(0.0, at - 810.0))
        kept = observed(kept, lag_s, 5.0, float(at), 300.0)
    ((began, ended),) = kept.intervals
    assert (began // 60, ended // 60) == (615 // 60, 907.5 // 60), "a bound is known to one look"
    assert kept.share == pytest.approx(1 - (ended - began) / 2940)


def test_what_was_not_seen_is_not_measured() -> None:
    kept = observed(Attainment(), 9.0, 5.0, 100.0, 300.0)
    kept = observed(observed(kept, 9.0, 5.0, 160.0, 300.0), 1.0, 5.0, 9000.0, 300.0)
    assert (kept.measured_s, kept.broken_s, kept.intervals) == (60.0, 60.0, ((100.0, 160.0),))


def test_a_short_day_shortens_all_times_to_their_floors() -> None:
    short = Times.of(1440.0)
    assert (short.look_s, short.window_s, short.settle_s, short.shrink_s) == (5.0, 15.0, 10.0, 720.0)
    assert Times.of(86_400.0) == Times()


@pytest.mark.parametrize("by", ["update", "deploy"])
def test_a_bad_update_is_told_until_the_topology_is_changed_again(by: str) -> None:
    figures = {"less": 0.4, "ago_s": 240.0, "before": 1000.0, "after": 600.0}
    job = Job()
    for ago_s in (240, 245):  # it is changed at once, and no better
        as_is = {"updated_at": job.now - ago_s, "program": str(ago_s)}
        job.looks(60, (Finding(Verdict.BAD_UPDATE, "work", figures=figures), *FEW), **as_is)
        job.looks(300, FEW, **as_is)
        assert [one.cause for one in job.said] == ["bad update"], "health compares with the last hour only"
    job.looks(6, FEW, **(as_is | {"updated_at": job.now} if by == "update" else {"program": "b"}))
    assert [type(one) for one in job.said][:3] == [Alerted, Cleared, Changed]


#: By verdict: all figures that its sentence may have; `health` gives no finding without them.
FIGURES = {
    Verdict.CHANGING: ["left_s"],
    Verdict.DOWN: ["down", "tasks", "restarts"],
    Verdict.HUNG: ["silent_s"],
    Verdict.MEMORY: ["used", "limit"],
    Verdict.CRASHING: ["times"],
    Verdict.BAD_UPDATE: ["less", "ago_s", "before", "after"],
    Verdict.DEPENDENCY: ["busy", "tuple_s", "cpu_s"],
    Verdict.SKEW: ["share", "even", "tasks", "busy", "median"],
    Verdict.SLOW_TASK: ["rate", "usual"],
    Verdict.SLOW_HOST: ["rate", "usual", "tasks"],
    Verdict.MACHINE: ["cores", "others", "own", "pressure", "spark", "busy"],
    Verdict.UNDER_PROVISIONED: ["tasks", "arrival", "rate", "busy", "needed"],
    Verdict.LIMIT: ["limit", "busy", "window_s"],
    Verdict.CHECKPOINTS: ["age_s", "every_s"],
    Verdict.SPARK: ["waiting", "lag_s", "window_s"],
    Verdict.LOSSES: ["dead_letters", "window_s"],
    Verdict.CATCHING_UP: ["left_s", "lag_s"],
    Verdict.OVER_PROVISIONED: ["needed", "tasks", "busy"],
    Verdict.UNTRIAGED: ["held"],
    Verdict.STOPPED: ["still_s"],
    Verdict.PROCESSES: ["processes", "bytes"],
    Verdict.DESCRIPTORS: ["descriptors", "limit"],
    Verdict.LOGGING: ["log_per_s"],
    Verdict.DISK: ["free", "size"],
}


def finding(verdict: Verdict) -> Finding:
    figures = dict.fromkeys(FIGURES.get(verdict, []), 1.0)
    return Finding(verdict, "work", "work-1", figures, names=() if verdict is Verdict.CHANGING else ("host-a", "lost"))


@given(st.data())
def test_nothing_that_is_told_leaves_the_limits(data: st.DataObject) -> None:
    """Whatever the figures are, values stay within `scale`, and the state can be stored."""
    rates = st.none() | st.floats(0, 1e6)
    job = Job(replace(GOAL, min={"work": 2}))
    for _ in range(data.draw(st.integers(1, 8))):
        job.work |= {
            "processed": data.draw(rates),
            "busy": data.draw(st.none() | st.floats(0, 1)),
            "spread": data.draw(st.none() | st.floats(0, 2)),
            "saturated": data.draw(st.booleans()),
            "lag_s": data.draw(st.none() | st.floats(0, 1e5)),
        }
        found = tuple(map(finding, data.draw(st.lists(st.sampled_from(Verdict), max_size=2))))
        job.now += data.draw(st.sampled_from([0.0, 240.0, 4000.0, -500.0]))
        outcome = job.look(found, backlog=data.draw(rates))
        for tasks in outcome.changes.get("parallelism", {}).values():
            assert 2 <= tasks <= 8
