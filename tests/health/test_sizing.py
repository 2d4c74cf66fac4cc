"""How many tasks would do, what usually takes how long, and what more tasks would not help."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.health.baseline import HOURS, MINUTES_MIN, Baseline
from heronpy.health.diagnose import diagnose
from heronpy.health.signals import Signals, TaskSignals
from heronpy.health.sizing import AIM, needed
from heronpy.health.texts import advice, sentence
from heronpy.health.times import DAY_S, TIMES
from heronpy.views.findings import Finding, Verdict
from tests.health.diagnose_cases import HELD, bolt, history, signals

FIRST = 29_000_000 // 60 * 60


def waits(wall_s: float = 0.05, **more: Any) -> TaskSignals:
    """A task that waits for something all the time."""
    return bolt(2, 0.97, 0.97 / wall_s, cpu=0.01, wall_s=wall_s, **more)


def found(world: Signals, before: tuple[Finding, ...] = ()) -> Finding:
    return diagnose(world, before)[0]


@given(st.floats(0, 1e6), st.floats(0.1, 1e4), st.floats(0, 1e9), st.floats(1, 1e5), st.floats(0, 10))
def test_so_many_tasks_keep_up_and_fewer_do_not(
    arrival: float, per_task: float, backlog: float, drain_s: float, pause_s: float
) -> None:
    count = needed(arrival, per_task, backlog, drain_s, pause_s)
    work = arrival + (backlog + arrival * pause_s) / drain_s
    assert count >= 1 and count * per_task * AIM >= work * (1 - 1e-9)
    assert count == 1 or (count - 1) * per_task * AIM <= work * (1 + 1e-9)


def test_code_that_always_waits_needs_tasks_and_a_slow_dependency_does_not() -> None:
    usual = found(signals(waits(), **HELD, usual_s={"count": 0.045}))
    assert (usual.verdict, usual.figures["needed"]) == (Verdict.UNDER_PROVISIONED, 9)
    slower = found(signals(waits(), **HELD, usual_s={"count": 0.001}))
    assert slower.verdict is Verdict.DEPENDENCY and "needed" not in slower.figures
    assert sentence(slower, "wc").startswith("count is waiting, not computing: 50ms per tuple (usually 1ms), 515us")
    # Until a day's figures say what is usual, one task more tells which it is.
    unknown = found(signals(waits(), **HELD))
    assert (unknown.verdict, unknown.figures["needed"]) == (Verdict.DEPENDENCY, 2)
    assert advice(unknown, "local", "wc").endswith(
        "heron update local wc --component-parallelism count:2 shows whether more tasks help"
    )


def test_a_dependency_that_does_not_answer_is_one_whatever_is_usual() -> None:
    """As of an asynchronous bolt, whose loop turns while all of its calls wait; a call that lasts for long hangs."""
    silent = signals(bolt(2, 1.0, 0.0, cpu=0.001), **HELD, usual_s={"count": 0.05})
    assert found(silent).verdict is Verdict.DEPENDENCY
    assert sentence(found(silent), "wc") == "count is waiting, not computing: no tuple was processed in the last 1m00s"
    in_call = diagnose(signals(bolt(2, 1.0, 0.0, cpu=0.001, silent_s=30.0), **HELD))
    assert in_call[0].verdict is Verdict.HUNG and Verdict.DEPENDENCY not in {one.verdict for one in in_call}


def test_a_dependency_is_said_until_it_is_as_fast_as_usual() -> None:
    slow = signals(waits(), **HELD, usual_s={"count": 0.001})
    before = (found(slow),)
    assert found(signals(waits(0.0025), **HELD, usual_s={"count": 0.001}), before).verdict is Verdict.DEPENDENCY
    assert found(signals(waits(0.0015), **HELD, usual_s={"count": 0.001}), before).verdict is Verdict.UNDER_PROVISIONED


def reading(busy: float, waiting: float, **more: Any) -> Signals:
    """Two tasks that work off log files at 1,000 bytes per second together."""
    world = signals(bolt(2), **more)
    world.tasks += [
        TaskSignals(f"lines-worker-{n}", "lines-worker", True, True, busy=busy, emits=False) for n in (1, 2)
    ]
    world.backlogs, world.units_backlog, world.units_published = {"lines-worker": (waiting, 1000.0)}, waiting, 1000.0
    return world


def test_spouts_are_too_few_when_they_are_full_and_what_waits_takes_too_long() -> None:
    """Half an hour is the time; two tasks at 70 % do 1,474 bytes/s."""
    few = found(reading(0.95, 7.2e6))
    assert (few.verdict, few.component, few.figures["needed"]) == (Verdict.UNDER_PROVISIONED, "lines-worker", 11)
    assert sentence(few, "wc") == (
        "lines-worker needs more tasks: at the current rate, the backlog at its source takes 2h00m, more than 30m00s;"
        " its 2 tasks are each at least 95 % busy"
    )
    assert advice(few, "local", "wc") == "heron update local wc --component-parallelism lines-worker:11"
    for enough in (reading(0.95, 1e6), reading(0.6, 7.2e6), reading(0.95, 7.2e6, held=0.8, culprits=["count-2"])):
        assert all(one.component != "lines-worker" for one in diagnose(enough))


def test_what_was_held_counts_as_long_as_spare_tasks_have_to_last() -> None:
    past = history(busy=0.2, tasks=4) | history("", held=[0.9] + [0.0] * 5)
    even = [bolt(n) for n in (2, 3, 4, 5)]
    assert found(signals(*even, history=past)).verdict is Verdict.HEALTHY
    short = signals(*even, history=past, times=TIMES.of_day(DAY_S / 72))
    assert found(short).verdict is Verdict.OVER_PROVISIONED


def test_a_shorter_day_has_shorter_times_but_none_that_shows_nothing() -> None:
    assert TIMES.of_day(DAY_S) == TIMES
    short = TIMES.of_day(DAY_S / 144)
    assert (short.window_s, short.settle_s, short.spare_s, short.hung_s) == (15.0, 10.0, 25.0, TIMES.hung_s)
    world = signals(bolt(2, 0.95, 1000), bolt(3, 0.95, 1000), held=0.5, culprits=["count-2"], age_s=20.0)
    assert "needed" not in found(world).figures
    world.times = short
    assert found(world).figures["needed"] == 6, "it has settled"


# ---- what is usual --------------------------------------------------------------------------


def day(
    minutes: int, wall_ms: float = 4.0, baseline: Baseline | None = None, held: float = 0.0, **more: float
) -> Baseline:
    baseline = baseline or Baseline()
    for number in range(minutes):
        baseline.add(FIRST + number, {"": {"held": held}, "call": {"wall_s": wall_ms / 1000, "busy": 0.5} | more})
    return baseline


def test_the_usual_time_is_the_median_of_healthy_minutes() -> None:
    assert day(MINUTES_MIN - 1).usual_s == {}
    assert day(MINUTES_MIN).usual_s == {"call": pytest.approx(0.004, rel=0.1)}
    for ill in ({"held": 0.3}, {"busy": 0.95}, {"restarts": 1.0}):
        assert day(60, 400.0, **ill).usual_s == {}, ill
        assert day(60, 400.0, day(MINUTES_MIN), **ill).usual_s["call"] == pytest.approx(0.004, rel=0.1)
    assert day(60, 40.0, day(100)).usual_s["call"] == pytest.approx(0.004, rel=0.1), "most of the day counts"


def test_a_day_later_something_else_is_usual_and_nothing_grows() -> None:
    baseline = day(600)
    for number in range(60 * HOURS):
        baseline.add(FIRST + 600 + number, {"call": {"wall_s": 0.04, "busy": 0.5}})
    assert baseline.usual_s["call"] == pytest.approx(0.04, rel=0.1)
    [kept] = baseline.kept()
    assert kept.minutes <= 60 * HOURS


def test_a_successor_knows_what_was_usual() -> None:
    heir = Baseline()
    heir.take_over(day(200).kept())
    assert heir.usual_s["call"] == pytest.approx(0.004, rel=0.1)
    assert day(20, 40.0, heir).usual_s["call"] == pytest.approx(0.004, rel=0.1), "it weighs as much as before"
    [damaged] = day(200).kept()
    for name, value in (("wall_s", float("nan")), ("wall_s", -1.0), ("minutes", 10**9), ("component", "")):
        other = type(damaged)(**{"component": "call", "wall_s": 1.0, "minutes": 20, "number": FIRST} | {name: value})
        heir = Baseline()
        heir.take_over([other])
        assert heir.usual_s == {}, name
