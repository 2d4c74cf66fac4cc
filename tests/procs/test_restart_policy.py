"""The restart policy under random histories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronpy.procs.exit_reason import NEVER_RESTARTED, UNCOUNTED, ExitReason
from heronpy.procs.restart_policy import RestartHistory, RestartLimits, decide_restart

COUNTED = [r for r in ExitReason if r not in NEVER_RESTARTED | UNCOUNTED]


@given(
    st.lists(st.tuples(st.sampled_from(COUNTED), st.floats(0, 100), st.floats(0, 100)), max_size=80),
    st.integers(0, 5),
)
def test_gives_up_exactly_when_a_budget_within_the_window_is_spent(
    exits: list[tuple[ExitReason, float, float]], budget: int
) -> None:
    limits = RestartLimits(budget=budget, window_s=60)
    history = RestartHistory()
    times: dict[ExitReason, list[float]] = {}
    now = 0.0
    for reason, gap, ran_s in exits:
        now += gap
        times.setdefault(reason, []).append(now)
        recent = [t for t in times[reason] if now - t <= 60]
        decision = decide_restart(limits, history, reason, ran_s, now)
        assert decision.restart == (len(recent) <= budget)
        assert 0 <= decision.pause_s <= limits.backoff_max_s
        assert decision.restart or "within" in decision.cause
        if not decision.restart:
            return
        assert all(len(kept) <= budget + 1 for kept in history.failures.values())


@given(st.lists(st.sampled_from([*UNCOUNTED, ExitReason.KILLED]), max_size=50))
def test_preemptions_never_use_up_a_budget(reasons: list[ExitReason]) -> None:
    history = RestartHistory()
    limits = RestartLimits(budget=3)
    killed = 0
    for step, reason in enumerate(reasons):
        decision = decide_restart(limits, history, reason, 0.0, float(step))
        killed += reason is ExitReason.KILLED
        assert decision.restart == (reason in UNCOUNTED or killed <= 3)


def test_startup_failure_and_finish_are_final() -> None:
    for reason in NEVER_RESTARTED:
        assert not decide_restart(RestartLimits(), RestartHistory(), reason, 99.0, 0.0).restart


def test_pause_is_bounded_however_long_the_streak() -> None:
    history = RestartHistory()
    limits = RestartLimits(budget=10_000)
    for step in range(2000):
        assert decide_restart(limits, history, ExitReason.KILLED, 0.0, float(step)).pause_s <= 60
