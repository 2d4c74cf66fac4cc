"""The restart policy under random histories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronpy.procs.exit_reason import NEVER_RESTARTED, UNCOUNTED, ExitReason
from heronpy.procs.restart_policy import (
    HEALTHY_RUN_PAUSES,
    HEALTHY_RUN_S,
    UNCHARGED_PAUSE_MAX_S,
    RestartHistory,
    RestartLimits,
    decide_restart,
)

CHARGED = [r for r in ExitReason if r not in NEVER_RESTARTED and RestartLimits().charges(r)]


@given(
    st.lists(st.tuples(st.sampled_from(CHARGED), st.floats(0, 100), st.floats(0, 100)), max_size=80),
    st.integers(0, 5),
)
def test_gives_up_exactly_when_a_budget_within_the_window_is_spent(
    exits: list[tuple[ExitReason, float, float]], budget: int
) -> None:
    limits = RestartLimits(budget=budget, window_s=60)
    history = RestartHistory()
    times: dict[ExitReason, list[float]] = {}
    now, healthy_at, pause_s = 0.0, -1.0, 0.0
    for reason, gap, ran_s in exits:
        now += gap
        if ran_s >= max(HEALTHY_RUN_S, HEALTHY_RUN_PAUSES * pause_s):
            healthy_at = now
        times.setdefault(reason, []).append(now)
        recent = [t for t in times[reason] if now - t <= 60 or t >= healthy_at]
        decision = decide_restart(limits, history, reason, ran_s, now)
        pause_s = decision.pause_s
        assert decision.restart == (len(recent) <= budget)
        assert 0 <= decision.pause_s <= limits.backoff_max_s
        assert decision.restart or ("within" in decision.cause) == (now - recent[0] <= 60)
        if not decision.restart:
            return
        assert all(len(kept) <= budget + 1 for kept in history.failures.values())


@given(st.lists(st.sampled_from([*UNCOUNTED, ExitReason.KILLED, ExitReason.CRASHED]), max_size=50))
def test_preemptions_and_kills_never_use_up_a_budget(reasons: list[ExitReason]) -> None:
    """As often as anybody likes, and the process is back within a second."""
    history = RestartHistory()
    limits = RestartLimits(budget=3)
    crashed = 0
    for step, reason in enumerate(reasons):
        decision = decide_restart(limits, history, reason, 0.0, float(step))
        crashed += reason is ExitReason.CRASHED
        assert decision.restart == (reason is not ExitReason.CRASHED or crashed <= 3)
        assert decision.pause_s <= UNCHARGED_PAUSE_MAX_S or reason is ExitReason.CRASHED


def test_kills_have_a_budget_when_one_is_named() -> None:
    limits, history = RestartLimits(budgets={ExitReason.KILLED: 2}), RestartHistory()
    restarts = [decide_restart(limits, history, ExitReason.KILLED, 0.0, float(step)).restart for step in range(3)]
    assert restarts == [True, True, False]


@given(st.floats(0.01, 10), st.floats(10, 60), st.integers(0, 30), st.floats(1, 300))
def test_a_crash_loop_always_comes_to_its_end(first_s: float, most_s: float, budget: int, window_s: float) -> None:
    """F11: also with pauses too long for enough failures in one window."""
    limits = RestartLimits(backoff_s=first_s, backoff_max_s=most_s, budget=budget, window_s=window_s)
    history = RestartHistory()
    now, pauses = 0.0, []
    while (decision := decide_restart(limits, history, ExitReason.CRASHED, 0.1, now)).restart:
        pauses.append(decision.pause_s)
        now += decision.pause_s + 0.1
        assert len(pauses) <= budget
    assert pauses == [min(first_s * 2.0**step, most_s) for step in range(budget)]


def test_a_pause_of_a_second_doubles_up_to_a_minute() -> None:
    """F11."""
    history, limits = RestartHistory(), RestartLimits(backoff_s=1.0)
    pauses = [
        decide_restart(limits, history, ExitReason.USER_EXCEPTION, 0.1, 70.0 * step).pause_s for step in range(10)
    ]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    last = decide_restart(limits, history, ExitReason.USER_EXCEPTION, 0.1, 700.0)
    assert not last.restart and last.cause == "ended 11 times in 700 s without a healthy run in between"


def test_startup_failure_and_finish_are_final() -> None:
    for reason in NEVER_RESTARTED:
        assert not decide_restart(RestartLimits(), RestartHistory(), reason, 99.0, 0.0).restart


def test_pause_is_bounded_however_long_the_streak() -> None:
    history = RestartHistory()
    limits = RestartLimits(budget=10_000)
    for step in range(2000):
        assert decide_restart(limits, history, ExitReason.CRASHED, 0.0, float(step)).pause_s <= 60


@given(st.floats(0.01, 5), st.floats(5, 60), st.floats(60, 900))
def test_user_code_that_goes_on_raising_has_a_budget_of_time(first_s: float, most_s: float, budget_s: float) -> None:
    """However many restarts that makes; the pauses double up to the longest."""
    limits = RestartLimits(backoff_s=first_s, backoff_max_s=most_s, budget=1, exception_budget_s=budget_s)
    history = RestartHistory()
    now, pauses = 1000.0, []
    while (decision := decide_restart(limits, history, ExitReason.USER_EXCEPTION, 0.1, now, True)).restart:
        pauses.append(decision.pause_s)
        assert decision.outlook.charged == len(pauses) and decision.outlook.budget == 0
        assert decision.outlook.failing_since == 1000.0 and decision.outlook.failing_max_s == budget_s
        now += decision.pause_s + 0.1
    assert pauses == [min(first_s * 2.0**step, most_s) for step in range(len(pauses))]
    assert budget_s <= now - 1000.0 <= budget_s + most_s + 0.1
    assert f"ended {len(pauses) + 1} times in " in decision.cause and "without a healthy run" in decision.cause


def test_a_dependency_that_is_away_for_a_minute_ends_nothing() -> None:
    limits, history = RestartLimits(exception_budget_s=600.0), RestartHistory()
    now = 0.0
    while now < 60.0:
        decision = decide_restart(limits, history, ExitReason.USER_EXCEPTION, 0.1, now, True)
        assert decision.restart
        now += decision.pause_s + 0.1
    assert now < 60.0 + limits.backoff_max_s
    after = decide_restart(limits, history, ExitReason.USER_EXCEPTION, 1000.0, now + 1000.0, True)
    assert after.restart and after.pause_s == limits.backoff_s, "a healthy run resets the count"
    assert after.outlook.failing_since == now + 1000.0 and after.outlook.charged == 1


def test_kills_do_not_use_up_the_time_for_exceptions() -> None:
    limits, history = RestartLimits(exception_budget_s=600.0), RestartHistory()
    for step in range(400):
        assert decide_restart(limits, history, ExitReason.KILLED, 1.0, 2.0 * step).restart
    assert decide_restart(limits, history, ExitReason.USER_EXCEPTION, 1.0, 802.0, True).outlook.failing_since == 802.0


def test_exceptions_are_counted_when_their_number_is_named_or_there_is_no_time() -> None:
    for limits in (
        RestartLimits(budgets={ExitReason.USER_EXCEPTION: 2}, exception_budget_s=600.0),
        RestartLimits(budget=2, exception_budget_s=0.0),
    ):
        history = RestartHistory()
        raised = ExitReason.USER_EXCEPTION
        decisions = [decide_restart(limits, history, raised, 0.0, float(step), True) for step in range(3)]
        assert [decision.restart for decision in decisions] == [True, True, False]
        assert [(one.outlook.charged, one.outlook.budget) for one in decisions[:2]] == [(1, 2), (2, 2)]
