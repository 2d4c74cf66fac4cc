"""Decides whether and when an ended process is restarted. Pure.

Each exit reason has its own budget within a sliding window. The pause before a restart doubles from `backoff_s`, and is
reset once the process has run long enough to count as healthy. In a crash loop no failure expires, so the budget runs
out even if the pauses are long. The history holds at most `budget + 1` failures per reason.

A process that was preempted, lost its host or was killed from outside (by a SIGKILL although memory was sufficient) is
always restarted and never charged, unless `budgets` names `killed`. A process that failed at startup or has finished is
never restarted.

An exception of user code that has run before often has a temporary cause, such as a database that is down for a minute.
Such exceptions therefore have a time budget instead, unless `budgets` names `user_exception`. The pauses grow up to
`backoff_max_s`, and the process is FAILED only after it has failed for `exception_budget_s` without a healthy run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from heronpy.common.errors import ConfigError
from heronpy.procs.exit_reason import COUNTED, NEVER_RESTARTED, UNCOUNTED, ExitReason

if TYPE_CHECKING:
    from heronpy.common.setting_types import SchedulerSettings

#: A run at least this long resets the pauses.
HEALTHY_RUN_S = 5.0
#: A run must also be this many times longer than the pause before it.
HEALTHY_RUN_PAUSES = 4.0
#: Longest pause before a container is restarted.
CONTAINER_PAUSE_MAX_S = 60.0
#: Maximum pause before a restart that is not charged; it only prevents a busy loop of restarts.
UNCHARGED_PAUSE_MAX_S = 0.5


class RestartLimits(Struct, frozen=True):
    """The settings of the restart policy."""

    backoff_s: float = 0.05
    backoff_max_s: float = 60.0
    #: Restarts for one reason within the window; the next failure is final.
    budget: int = 10
    window_s: float = 300.0
    #: Budgets of single reasons, which override `budget`.
    budgets: Mapping[ExitReason, int] = {}
    #: How long user code that has run before may keep raising exceptions; 0: they are counted, like other reasons.
    exception_budget_s: float = 0.0

    def charges(self, reason: ExitReason) -> bool:
        """Whether an end for this reason counts against a budget."""
        return reason not in UNCOUNTED and (reason is not ExitReason.KILLED or reason in self.budgets)

    def budget_of(self, reason: ExitReason) -> int:
        return self.budgets.get(reason, self.budget)

    @property
    def by_time(self) -> bool:
        """Whether exceptions of user code that has run before have a time budget."""
        return self.exception_budget_s > 0 and ExitReason.USER_EXCEPTION not in self.budgets


def limits_of(settings: SchedulerSettings) -> RestartLimits:
    return RestartLimits(
        settings.container_restart_backoff_s,
        CONTAINER_PAUSE_MAX_S,
        settings.container_restart_budget,
        settings.container_restart_window_s,
    )


def budgets_of(values: Mapping[str, object]) -> dict[ExitReason, int]:
    """Parse the setting heron.executor.restart_budgets; raises a ConfigError that names the invalid entry."""
    known = {reason.value: reason for reason in COUNTED}
    for name, number in values.items():
        if name not in known:
            raise ConfigError(
                f"heron.executor.restart_budgets has unknown reason {name!r}; reasons are {', '.join(sorted(known))}"
            )
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ConfigError(f"heron.executor.restart_budgets: {name} is {number!r} but must be a whole number")
    return {known[name]: int(str(number)) for name, number in values.items()}


class RestartHistory(Struct):
    """The failures of one process so far."""

    #: Times of the charged failures, per reason, oldest first.
    failures: dict[ExitReason, deque[float]] = field(default_factory=dict)
    #: Consecutive failures without a healthy run between them.
    streak: int = 0
    #: The pause before the current run.
    last_pause_s: float = 0.0
    #: When the last healthy run ended.
    healthy_at: float = float("-inf")
    #: Exceptions of user code since the last healthy run: their number, and the time of the first.
    raised: int = 0
    raised_since: float = 0.0


class Charges(Struct, frozen=True):
    """An immutable copy of a `RestartHistory` that outlives the counting process, with times on the same clock."""

    failures: tuple[tuple[ExitReason, tuple[float, ...]], ...] = ()
    streak: int = 0
    last_pause_s: float = 0.0
    #: None: there was no healthy run.
    healthy_at: float | None = None

    @classmethod
    def of(cls, history: RestartHistory) -> Charges:
        """The charges of a history, without the time since which user code has been raising exceptions."""
        failures = tuple((reason, tuple(times)) for reason, times in history.failures.items() if times)
        healthy_at = None if history.healthy_at == float("-inf") else history.healthy_at
        return cls(failures, history.streak, history.last_pause_s, healthy_at)

    def history(self, limits: RestartLimits) -> RestartHistory:
        """A history that continues from these charges."""
        return RestartHistory(
            {reason: deque(times, limits.budget_of(reason) + 1) for reason, times in self.failures},
            self.streak,
            self.last_pause_s,
            float("-inf") if self.healthy_at is None else self.healthy_at,
        )


class Outlook(Struct, frozen=True):
    """How much of its restart budget a process has used; all values are zero if no budget is charged."""

    #: The number of failures that count, and the maximum; the maximum is 0 if only time counts.
    charged: int = 0
    budget: int = 0
    #: When it began to fail without a healthy run (on the supervisor's clock), and how long it may continue to fail.
    failing_since: float = 0.0
    failing_max_s: float = 0.0


class Decision(Struct, frozen=True):
    """Restart after `pause_s`, or do not restart because of `cause`."""

    restart: bool
    pause_s: float = 0.0
    cause: str = ""
    #: The state of the budget.
    outlook: Outlook = Outlook()


def decide_restart(
    limits: RestartLimits,
    history: RestartHistory,
    reason: ExitReason,
    ran_s: float,
    now: float,
    transient: bool = False,
) -> Decision:
    """Decide how to react to one exit, and update the history.

    `transient` means that the exception comes from user code that has run before, so its cause may be temporary.
    """
    if reason in NEVER_RESTARTED:
        return Decision(False, cause=reason.value)
    if reason is ExitReason.REWOUND:
        # The topology master controls these restarts, and all tasks of a region wait for each other.
        return Decision(True)
    if ran_s >= max(HEALTHY_RUN_S, HEALTHY_RUN_PAUSES * history.last_pause_s):
        history.streak, history.raised, history.healthy_at = 0, 0, now
    charged, outlook = limits.charges(reason), Outlook()
    if transient and limits.by_time:
        history.raised_since = history.raised_since if history.raised else now
        history.raised += 1
        outlook = Outlook(history.raised, 0, history.raised_since, limits.exception_budget_s)
        failing_s = now - history.raised_since
        if failing_s >= limits.exception_budget_s:
            cause = f"ended {history.raised} times in {failing_s:.0f} s without a healthy run in between"
            return Decision(False, cause=cause, outlook=outlook)
    elif charged:
        times = history.failures.setdefault(reason, deque(maxlen=limits.budget_of(reason) + 1))
        times.append(now)
        while times and now - times[0] > limits.window_s and times[0] < history.healthy_at:
            times.popleft()
        if len(times) > limits.budget_of(reason):
            return Decision(False, cause=_spent(limits, len(times), now - times[0]))
        outlook = Outlook(len(times), limits.budget_of(reason))
    pause = min(limits.backoff_s * 2.0 ** min(history.streak, 60), limits.backoff_max_s)
    if not charged:
        pause = min(pause, UNCHARGED_PAUSE_MAX_S)
    history.streak += 1
    history.last_pause_s = pause
    return Decision(True, pause_s=pause, outlook=outlook)


def _spent(limits: RestartLimits, count: int, took_s: float) -> str:
    times = "once" if count == 1 else f"{count} times"
    if took_s > limits.window_s:
        return f"ended {times} in {took_s:.0f} s without a healthy run in between"
    return f"ended {times} within {limits.window_s:g} s"
