"""The life cycle of a submission on its host: it stands by, acts in an epoch, stops and ends. Pure.

Invariants:
- The executor is started only in an epoch that the scheduler has given, and never in an epoch in which it has stopped.
- The executor runs no longer than the lease plus the grace for stopping.
- A container that was asked to end never starts its executor again.
- At most one lease request is in flight.
- `End` is the last effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from heronpy.engines.lease import Fencing, Lease, LeaseTimes

#: A running executor that sends no heartbeat for this long is killed.
SILENT_S = 30.0
#: The first heartbeat may take longer, because the executor first loads its modules, perhaps on a busy host.
FIRST_SIGN_S = 120.0
#: If no event arrives for this long, this process was paused, so a silent executor may still be running.
OWN_STALL_S = 5.0
#: A standby repeats its request after at least this fraction of `renew_s`, whatever the answer.
PAUSE = 0.1
#: Minimum time between requests to the endpoint, even if the connection is lost often.
BACK_S = 0.5


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a submission has replaced another submission, as reported by the endpoint."""

    reason: str
    text: str


class Word(Enum):
    """The endpoint's answer to a lease request."""

    NONE = "none"
    GRANTED = "granted"
    ACTIVATED = "activated"
    FENCED = "fenced"


class Ending(Enum):
    """Why a container ends."""

    #: The executor ended by itself; `End` has its wait status.
    EXECUTOR = "executor"
    #: The engine requested the end.
    ASKED = "asked"
    FENCED = "fenced"
    #: The executor sent no heartbeat and was killed.
    HUNG = "hung"


# ---- events ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Prepared:
    """Package, keys and files are on this host, so the executor can run."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """The endpoint's answer to the lease request with this number."""

    number: int
    word: Word
    epoch: int = 0
    why: str = ""
    after: Cause | None = None


@dataclass(frozen=True, slots=True)
class AnswerLate:
    """The lease request with this number was not answered in time, or was temporarily refused."""

    number: int


@dataclass(frozen=True, slots=True)
class LinkBack:
    """The connection to the endpoint has been reopened after a loss; earlier requests may never be answered."""


@dataclass(frozen=True, slots=True)
class StateAnswered:
    """Whether a scheduler exists, according to the state manager; None if the state manager did not answer."""

    number: int
    has_scheduler: bool | None


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """A heartbeat from the executor's event loop."""


@dataclass(frozen=True, slots=True)
class ExecutorEnded:
    """The executor has ended with this wait status, and none of its processes is left."""

    status: int


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that the engine will end the container soon; if `now` is set, the container must end immediately."""

    now: bool
    why: str


@dataclass(frozen=True, slots=True)
class LeaveHeard:
    """The endpoint has received the report that this container has to leave."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    Prepared | Renewed | AnswerLate | LinkBack | StateAnswered | SignOfLife | ExecutorEnded | Signal | LeaveHeard | Tick
)


# ---- effects --------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Send:
    """Send a lease request to the endpoint; the answer may take up to `wait_s`."""

    number: int
    epoch: int
    stopped: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class AskState:
    """Ask the state manager whether a scheduler exists."""

    number: int


@dataclass(frozen=True, slots=True)
class SendLeave:
    """Report to the endpoint that this container has to leave."""

    why: str


@dataclass(frozen=True, slots=True)
class StartExecutor:
    epoch: int
    after: Cause | None = None
    life: int = 0
    """The number of times that the executor has ended in this epoch."""


@dataclass(frozen=True, slots=True)
class StopExecutor:
    """Ask the executor to end."""

    why: str


@dataclass(frozen=True, slots=True)
class KillExecutor:
    """Kill all processes of the executor; this effect is repeated until they are gone."""

    why: str


@dataclass(frozen=True, slots=True)
class End:
    """End the container. `status` is the executor's wait status if the executor ended without being asked."""

    ending: Ending
    why: str
    status: int = 0


Effect = Send | AskState | SendLeave | StartExecutor | StopExecutor | KillExecutor | End


class Phase(Enum):
    PREPARING = "preparing"
    STANDBY = "standby"
    ACTING = "acting"
    STOPPING = "stopping"
    ENDED = "ended"


class ContainerState:
    """The state of one submission. `handle(event, now)` returns the effects in order; `now` is CLOCK_BOOTTIME in
    seconds.

    The executor is killed `stop_grace_s` after it was asked to end. The executor and all its processes end together;
    `lives` is the maximum number of starts of the executor in one epoch; it is above 1 only for a slot.
    """

    def __init__(
        self, times: LeaseTimes, fencing: Fencing, now: float, state_apart: bool = True, lives: int = 1
    ) -> None:
        self._times = times
        self._lives, self._life = lives, 0
        self._lease = Lease(times, fencing)
        #: Whether this container reaches the state manager without the scheduler, and so can check whether one exists.
        self._state_apart = state_apart
        self.phase = Phase.PREPARING
        self._asked: int | None = None
        self._asked_at = float("-inf")
        self._next_at = now
        self._state_asked: int | None = None
        self._state_asked_at = float("-inf")
        self._after: Cause | None = None
        self._leave_why = ""
        self._leave_at: float | None = None
        #: The next step after the executor has stopped; None if the container then becomes a standby again.
        self._then: End | None = None
        self._why = ""
        self._kill_at = 0.0
        self._silent_at = 0.0
        self._last_now = now

    @property
    def epoch(self) -> int:
        """The epoch in which the submission acts; 0 if it does not act."""
        return self._lease.epoch

    @property
    def leave_unheard(self) -> str:
        """Why the container has to leave; "" if it need not leave, or after the endpoint has received the report."""
        return self._leave_why if self._leave_at is not None else ""

    def farewell(self, now: float) -> Send | None:
        """The last message of a container that its engine is stopping, sent after all its processes have ended.

        After this message, no successor waits for the lease to expire. Returns None if the container has never acted,
        or ends for a reason that its engine reports.
        """
        if self.phase is not Phase.ENDED or not self._leave_why or not self._lease.stopped:
            return None
        return Send(self._lease.ask(now), 0, self._lease.stopped, 0.0)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Handle one event. The caller passes a Tick at least once a second."""
        if now - self._last_now > OWN_STALL_S:
            self._silent_at = max(self._silent_at, now + SILENT_S)
        self._last_now = now
        if self.phase is Phase.ENDED:
            if isinstance(event, LeaveHeard):
                self._leave_at = None
            return []
        return self._apply(event, now) + self._in_time(now)

    def _apply(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Prepared():
                if self.phase is not Phase.PREPARING:
                    return []
                self.phase = Phase.STANDBY
                return self._start(now) if self._lease.epoch else []
            case Renewed():
                return self._on_renewed(event, now)
            case AnswerLate(number):
                if number == self._asked:
                    self._asked, self._next_at = None, max(now, self._asked_at + self._times.renew_s)
            case LinkBack():
                # Soon, because a new scheduler learns from a container's first request that the container is running.
                self._asked, self._next_at = None, self._asked_at + BACK_S
            case StateAnswered(number, has_scheduler):
                if number == self._state_asked:
                    self._state_asked = None
                    if has_scheduler is False:
                        self._lease.granted(number, now)
            case SignOfLife():
                self._silent_at = now + SILENT_S
            case ExecutorEnded(status):
                return self._on_ended(status)
            case Signal(ends_now, why):
                self._leave_why, self._leave_at = self._leave_why or why, now
                if ends_now:
                    return self._end(End(Ending.ASKED, why), now)
            case LeaveHeard():
                self._leave_at = None
        return []

    def _on_renewed(self, event: Renewed, now: float) -> list[Effect]:
        if event.number == self._asked:
            self._asked = None
            pause_s = self._times.renew_s * (1 if self._lease.epoch else PAUSE)
            self._next_at = self._asked_at + pause_s
        match event.word:
            case Word.FENCED:
                return self._end(End(Ending.FENCED, event.why), now)
            case Word.GRANTED:
                self._lease.granted(event.number, now)
            case Word.ACTIVATED if event.epoch == self._lease.epoch:
                self._lease.granted(event.number, now)
            case Word.ACTIVATED if self.phase in (Phase.PREPARING, Phase.STANDBY) and not self._lease.epoch:
                if self._lease.activated(event.number, event.epoch, now):
                    self._after = event.after
                    return self._start(now) if self.phase is Phase.STANDBY else []
        return []

    def _start(self, now: float) -> list[Effect]:
        self.phase, self._next_at, self._life = Phase.ACTING, now, 0
        self._silent_at = now + FIRST_SIGN_S
        return [StartExecutor(self._lease.epoch, self._after)]

    def _on_ended(self, status: int) -> list[Effect]:
        if self.phase is Phase.ACTING and self._life + 1 < self._lives and not self._lease.is_over(self._last_now):
            self._life += 1
            self._silent_at = self._last_now + FIRST_SIGN_S
            return [StartExecutor(self._lease.epoch, None, self._life)]
        self._lease.stop()
        if self.phase is Phase.STOPPING and self._then is None:
            self.phase = Phase.STANDBY
            self._next_at = self._last_now
            return []
        self.phase, then = Phase.ENDED, self._then
        return [then or End(Ending.EXECUTOR, "its executor has ended", status)]

    def _end(self, end: End, now: float) -> list[Effect]:
        """End the container when its executor has stopped; only the first reason counts."""
        if self.phase in (Phase.ACTING, Phase.STOPPING):
            self._then = self._then or end
            return self._stop(end.why, now)
        self._lease.stop()
        self.phase = Phase.ENDED
        return [*self._leave(now), end]

    def _stop(self, why: str, now: float, grace: bool = True) -> list[Effect]:
        if self.phase is not Phase.ACTING:
            return []
        self.phase, self._why = Phase.STOPPING, why
        self._kill_at = now + (self._times.stop_grace_s if grace else 0.0)
        return [StopExecutor(why)] if grace else []

    def _in_time(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if self.phase is Phase.ENDED:
            return effects
        if self._lease.is_over(now):
            if self.phase is Phase.ACTING:
                effects += self._stop(f"its lease has not been granted in the last {self._times.fence_s:g} s", now)
            elif self.phase in (Phase.PREPARING, Phase.STANDBY):
                self._lease.stop()  # no process has run yet
        if self.phase is Phase.ACTING and now >= self._silent_at:
            self._then = End(Ending.HUNG, "its executor sent no heartbeat and was killed")
            effects += self._stop(self._then.why, now, grace=False)
        if self.phase is Phase.STOPPING and now >= self._kill_at:
            effects.append(KillExecutor(self._why))
            self._kill_at = now + 1.0
        effects += self._leave(now)
        if self._asked is None and now >= self._next_at:
            self._asked, self._asked_at = self._lease.ask(now), now
            wait_s = 0.0 if self._lease.epoch else self._times.renew_s
            effects.append(Send(self._asked, self._lease.epoch, self._lease.stopped, wait_s))
        if self._state_apart and self._lease.is_in_doubt(now) and self._state_asked is None:
            if now >= self._state_asked_at + self._times.renew_s:
                self._state_asked, self._state_asked_at = self._lease.ask(now), now
                effects.append(AskState(self._state_asked))
        return effects

    def _leave(self, now: float) -> list[Effect]:
        if self._leave_at is None or now < self._leave_at:
            return []
        self._leave_at = now + self._times.renew_s
        return [SendLeave(self._leave_why)]
