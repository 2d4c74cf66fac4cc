"""What the scaler does to a topology whose truth is known: it finds the right number, and leaves what it cannot cure."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from heronpy.health.times import TIMES as HEALTH_TIMES
from heronpy.loadtest.jobs.model import START_S, Fault, Model, Part, run
from heronpy.loadtest.jobs.scenarios import DAY, GOAL, HOUR, TIMES, Scene, daily, noise
from heronpy.scaling import plan
from heronpy.scaling.decisions import Alerted, Changed, Cleared, Judged
from heronpy.scaling.estimate import Known, lag_of
from heronpy.scaling.explaining import explained
from heronpy.scaling.figures import Goal, Observation, Times
from heronpy.scaling.history import History
from heronpy.scaling.state import State
from heronpy.views.findings import Verdict
from tests.scaling.scenes import fault, parts


def test_a_ceiling_is_known_at_a_third_of_it() -> None:
    """5,000/s within 10 % at 30 % load, whatever the noise."""
    for seed in range(20):
        only = [Part(name="read", per_s=1e5), Part(name="work", per_s=5000.0, inputs={"read": 1.0})]
        scene = Scene(Model(only, lambda _: 1500.0, noise=noise(seed, 0.09)), 0.5, Goal(mode="off"))
        assert scene.state.known["work"].per_thread == pytest.approx(5000, rel=0.1), seed


def test_a_lag_is_how_long_a_tuple_that_comes_now_will_wait() -> None:
    scene = Scene(Model(parts(), lambda at: 6000.0 if at < HOUR else 3000.0), 1, Goal(mode="off"))
    told, model = lag_of(scene.looks[-1][0]), scene.model
    ahead, waited_s = model.backlog["read"], 0.0
    while ahead > 0:
        before = model.backlog["read"]
        model.step()
        ahead -= before + 3000.0 * model.step_s - model.backlog["read"]
        waited_s += model.step_s
    assert told is not None and told > 1000 and told == pytest.approx(waited_s, rel=0.05)


@pytest.mark.parametrize("ratio", [0.25, 4.0])
def test_a_wrong_rate_is_right_after_a_few_rounds(ratio: float) -> None:
    """4,000/s by tasks of 1,000/s are six tasks at 70 %."""
    state = State(known={"work": Known(measured=1000.0, ratio=ratio)})
    scene = Scene(
        Model(parts({"tasks": 2}), lambda _: 4000.0, step_s=30.0), 12, replace(GOAL, drain_s=36_000.0), state=state
    )
    ups = scene.changes()
    assert len(ups) <= 6 and scene.model.parts["work"].tasks in (6, 7), scene.told()
    assert scene.state.known["work"].per_thread == pytest.approx(1000, rel=0.1)
    assert all(at < 2 * HOUR for at, _ in ups), scene.told()


def test_busy_time_that_is_four_times_too_high_scales_nothing() -> None:
    scene = Scene(Model(parts({"reports": 4.0}), lambda _: 1500.0), 3)
    assert not scene.changes(up=True), scene.told()


def test_five_minutes_of_backlog_are_drained_as_fast_as_they_can_be() -> None:
    """Within 1.3 times what the tasks that it then has need for it."""

    def offered(at: float) -> float:
        return 0.0 if HOUR <= at < HOUR + 300 else 5600.0 if HOUR + 300 <= at < HOUR + 600 else 2800.0

    scene = Scene(Model(parts(), offered), 4)
    drained = next(at for at, lag in scene.lags if at > HOUR + 660 and lag < 1)
    n = scene.changes(up=True)[0][1].after if scene.changes(up=True) else 4
    ideal_s = 300 * 2800 / (n * 1000.0 - 2800)
    assert drained - (HOUR + 600) <= 1.3 * ideal_s, (drained - HOUR - 600, ideal_s, scene.told())


def changes_by_day(scene: Scene) -> Counter[int]:
    return Counter(int(at // DAY) for at, _ in scene.changes())


def test_a_day_is_judged_by_other_days_and_a_holiday_is_not(tmp_path: Path) -> None:
    """After three days like the first; on the second half as much comes."""

    def offered(at: float) -> float:
        return daily(1000, 4000)(at) * (0.5 if at >= DAY else 1.0)

    with closing(History(tmp_path / "Day.sqlite", TIMES)) as history:
        for minute in range(-3 * 24 * 60, 0):
            rate = daily(1000, 4000)(60.0 * minute)
            history.add(START_S + 60.0 * minute, dict.fromkeys(("read", "work", "store"), (rate, None)))
        scene = Scene(Model(parts({"tasks": 3}), offered, noise=noise(1, 0.02), step_s=60.0), 48, minutes=history)
    usual, holiday = ([one for at, one in scene.changes() if at // DAY == day] for day in (0, 1))
    assert any("ahead" in one.figures and one.after > one.before for one in usual), scene.told()
    assert not any("ahead" in one.figures for one in holiday), scene.told()
    assert max(changes_by_day(scene).values()) <= 2 and scene.changes(up=False), scene.told()
    assert not scene.state.slo.intervals and scene.state.slo.share == 1.0, scene.state.slo.intervals


@pytest.mark.heavy
def test_a_fortnight_of_days_takes_two_changes_a_day(tmp_path: Path) -> None:
    with closing(History(tmp_path / "Day.sqlite", TIMES)) as history:
        model = Model(parts({"tasks": 6}), daily(1000, 4000), noise=noise(1, 0.02), step_s=60.0)
        scene = Scene(model, 14 * 24, minutes=history)
    assert max(changes_by_day(scene).values()) <= 2, scene.told()
    assert scene.changes(up=False), "nothing was saved"
    assert not scene.state.slo.intervals and scene.state.slo.share == 1.0, scene.state.slo.intervals


def test_noise_moves_nothing() -> None:
    for seed in range(10):
        scene = Scene(Model(parts(), lambda _: 2600.0, noise=noise(seed, 0.09)), 100 / 60)
        assert not scene.changes() and not scene.alerts, scene.told()


FAULTS: dict[str, tuple[dict[str, Any], Fault, set[Verdict] | str]] = {
    "a dependency that turns slow": ({"computes": 0.6}, fault("dependency", much=4.0), {Verdict.DEPENDENCY}),
    "a hot key": ({"keyed": True}, fault("hot key", much=0.5), {Verdict.SKEW}),
    "a slow host": ({"keyed": True}, fault("slow host", much=0.3), {Verdict.SLOW_HOST}),
    "a slow task": ({"keyed": True}, fault("slow task", much=0.3), {Verdict.SLOW_TASK}),
    "a full machine": ({"keyed": True}, fault("full machine", much=240.0), {Verdict.MACHINE}),
    "a full machine next to an idle one": ({"keyed": True}, fault("full machine", "a", much=240.0), {Verdict.MACHINE}),
    "a bad update": ({}, fault("bad update", much=0.4), {Verdict.BAD_UPDATE}),
    "a crash loop": ({"keyed": True}, fault("crash loop", much=0.3), {Verdict.CRASHING}),
    "poison": ({}, fault("poison"), {Verdict.LOSSES}),
    "a lost stream manager": ({}, fault("lost stream manager", for_h=0.01), {Verdict.DOWN, Verdict.LOSSES}),
    "missing figures": ({}, fault("missing figures"), "figures"),
    "something that nobody sees": ({}, fault("nothing shows", much=1000.0), {Verdict.UNTRIAGED}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_more_tasks_do_not_cure_is_told_once(name: str) -> None:
    work, wrong, causes = FAULTS[name]
    scene = Scene(Model(parts(work), lambda _: 2600.0, (wrong,)), 4)
    named = {causes} if isinstance(causes, str) else {one.value for one in causes}
    assert not scene.changes(up=True), scene.told()
    assert len(scene.alerts) == 1 and scene.alerts[0].cause in named, scene.told()


@pytest.mark.parametrize("has_baseline", [True, False])
def test_code_that_always_waits_is_scaled(has_baseline: bool) -> None:
    model = Model(parts({"computes": 0.05}), lambda at: 2500.0 if has_baseline and at < HOUR else 5500.0)
    scene = Scene(model, 6)
    assert scene.changes(up=True) and not [one for one in scene.alerts if one.cause != "maximum"], scene.told()
    assert scene.model.parts["work"].tasks >= 6 and scene.lags[-1][1] < 5, scene.told()


@pytest.mark.parametrize("since_h", [0.05, 0.07, 0.3])
def test_a_dependency_that_turns_slow_before_its_usual_time_is_learned_is_not_scaled(
    monkeypatch: pytest.MonkeyPatch, since_h: float
) -> None:
    monkeypatch.setattr(Model, "learn_usual", lambda self: None)
    wrong = fault("dependency", since_h=since_h, much=40.0)
    scene = Scene(Model(parts({"computes": 0.05}), lambda _: 2600.0, (wrong,)), 3)
    assert not scene.changes(up=True), scene.told()
    (alert,) = scene.alerts
    assert alert.cause == "dependency" and "(usually 1ms)" in alert.text, scene.told()


def test_while_the_usual_wait_is_not_known_each_step_that_helps_doubles_the_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Model, "learn_usual", lambda self: None)
    scene = Scene(Model(parts({"computes": 0.05, "tasks": 1}, {"tasks": 6}), lambda _: 9000.0), 2)
    assert [(one.before, one.after) for _, one in scene.changes(up=True)] == [(1, 2), (2, 4), (4, 8), (8, 16)]
    assert "one task is added" in scene.changes()[0][1].text and "at most doubles" in scene.changes()[1][1].text
    assert max(at for at, lag in scene.lags if lag > GOAL.lag_s) < 0.6 * HOUR and not scene.alerts, scene.told()
    # A step that does not help bars the next one.
    monkeypatch.setattr(plan, "EFFECT_MIN", 9.0)
    monkeypatch.setattr(plan, "HELPED", 9.0)
    scene = Scene(Model(parts({"computes": 0.05, "tasks": 1}, {"tasks": 6}), lambda _: 9000.0), 1)
    assert [(one.before, one.after) for _, one in scene.changes(up=True)] == [(1, 2)], scene.told()


@pytest.mark.parametrize(("tasks", "has_baseline"), [(6, True), (6, False), (4, True)])
def test_the_backlog_of_an_outage_is_no_reason_for_more_tasks(
    monkeypatch: pytest.MonkeyPatch, tasks: int, has_baseline: bool
) -> None:
    """A dependency is slow for 84 s of a day of 20 minutes: one page, and no step while its alert is open."""
    if not has_baseline:
        monkeypatch.setattr(Model, "learn_usual", lambda self: None)
    work = {"per_s": 870.0, "computes": 0.05, "tasks": tasks}
    slow = Fault("dependency", "work", 300.0, 384.0, 41.0)
    model = Model(parts(work), lambda _: 2488.0, (slow,), step_s=1.0, times=HEALTH_TIMES.of_day(1200.0))
    said = [
        (model.passed_s, outcome, look)
        for look, outcome in run(model, Goal(lag_s=5.0, max={"work": 8}), Times.of(1200.0), 700.0)
    ]
    decisions = [(at, one) for at, outcome, _ in said for one in outcome.decisions]
    assert [one.cause for _, one in decisions if isinstance(one, Alerted)] == ["dependency"], decisions
    over = next(at for at, one in decisions if isinstance(one, Cleared))
    assert not [one for _, one in decisions if isinstance(one, Changed) and one.after > one.before], decisions
    needed = {
        explained(outcome.state, look, Goal(max={"work": 8}), Times.of(1200.0))[1].needed
        for at, outcome, look in said
        if 330 < at < over
    }
    assert needed == {5}, "2,488/s by tasks of 870/s, however much waits"


def catching_up() -> Scene:
    """The source was away for an hour, and is read slowly: its backlog lasts, while the bolts have little to do."""
    found = parts({"tasks": 8})
    found[0].per_s = 2600.0
    found[0].fixed = "its source has one partition"
    away = (1 * HOUR, 2 * HOUR)

    def offered(at: float) -> float:
        return 0.0 if at < away[0] else 12_000.0 if at < away[1] else 1000.0

    return Scene(Model(found, offered, step_s=60.0), 6, replace(GOAL, lag_s=0.0))


def shrunk_while_behind(scene: Scene) -> bool:
    behind = {look.at for look, _ in scene.looks if (look.components[0].backlog or 0.0) > 10_000}
    return any(outcome.changes and look.at in behind for look, outcome in scene.looks)


def test_nothing_shrinks_while_it_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not shrunk_while_behind(catching_up())
    monkeypatch.setattr("heronpy.scaling.plan.LAG_S", 1e12)
    assert shrunk_while_behind(catching_up()), "the planted bug was not found"


def test_the_same_looks_lead_to_the_same_decisions() -> None:
    scene = Scene(Model(parts(), lambda at: 2500.0 if at < HOUR else 7000.0, noise=noise(3, 0.05)), 5)
    assert scene.changes()
    kept = [msgspec.json.encode(look) for look, _ in scene.looks]
    state = State()
    for one, (_, outcome) in zip(kept, scene.looks, strict=True):
        again = plan.decide(state, msgspec.json.decode(one, type=Observation), GOAL, TIMES)
        assert again == outcome
        state = msgspec.json.decode(msgspec.json.encode(again.state), type=State)
    assert state == scene.state


def test_an_asynchronous_component_makes_more_calls_first() -> None:
    work = {"per_s": 50.0, "asynchronous": True, "concurrency": 16, "computes": 0.02, "tasks": 4}
    scene = Scene(Model(parts(work), lambda at: 2200.0 if at < HOUR else 6000.0), 4)
    keys = [(one.component, one.key) for _, one in scene.changes(up=True)]
    assert keys == [("work", "concurrency"), ("store", "parallelism")], scene.told()
    assert scene.model.parts["work"].tasks == 4 and scene.lags[-1][1] < 5


def test_one_plan_sizes_the_whole_graph() -> None:
    scene = Scene(Model(parts(store={"tasks": 1}), lambda at: 2500.0 if at < HOUR else 9000.0), 4)
    (at, _), *_ = ups = scene.changes(up=True)
    assert {one.component for when, one in ups if when == at} == {"work", "store"}, scene.told()
    assert scene.lags[-1][1] < 1, scene.told()


def test_memory_is_raised_to_a_fifth_of_a_host_and_then_shared_out() -> None:
    work = {"keyed": True, "keys": 3.1e7, "limit_bytes": 800 << 20, "tasks": 4}
    model = Model(parts(work), lambda _: 1500.0)
    scene = Scene(model, 1)
    assert [one.key for _, one in scene.changes(up=True)] == ["ram"], scene.told()
    model.parts["work"].keys = 9e7
    scene = Scene(model, 3, state=scene.state)
    assert [one.key for _, one in scene.changes(up=True)] == ["ram", "parallelism"], scene.told()
    last = scene.looks[-1][0].by_name["work"]
    assert last.memory_limit == (1 << 33) // 5 // (1 << 20) * (1 << 20)
    assert (last.memory_max or 0) < 0.9 * last.memory_limit
    assert not any(isinstance(one, Judged) and one.barred_until for _, one in scene.decisions), scene.told()
