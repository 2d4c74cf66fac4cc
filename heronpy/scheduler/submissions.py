"""The facts about one submission and one container that placement uses, and the conclusions from them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from heronpy.engines.contract import Ended, EnginePhase, Seen
from heronpy.engines.lease import Fencing
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.restart_policy import Charges, RestartHistory, RestartLimits
from heronpy.scheduler.placement_events import ContainerSpec, ContainerView, Entry, Past, Phase

#: A submission counts as missing after this number of consecutive lists without it.
ABSENT_LISTS = 2
#: A list may lack a submission until this time after it was made.
SETTLE_S = 10.0
#: Number of ended submissions that are remembered, so that their late messages are recognised.
ENDED_MAX = 64


@dataclass(slots=True)
class Submission:
    """The facts about one submission; its phase is derived from them."""

    number: int
    #: When it was made, or when this scheduler first learned of it.
    since: float
    #: Time of the last list that showed it alive.
    seen_at: float | None = None
    #: Times of its last and its first request at the endpoint.
    heard_at: float | None = None
    hello_at: float | None = None
    #: When the engine first listed it as running.
    runs_since: float | None = None
    #: When the engine first reported that it will never start.
    hopeless_since: float | None = None
    #: Whether the engine has reported that it will never start, and has not listed it as running since then.
    unstarted: bool = False
    #: Number of consecutive lists without it: lists that show other submissions, and all lists.
    missed: int = 0
    missed_any: int = 0
    #: Whether the engine has abandoned it.
    given_up: bool = False
    #: Whether it is silent or missing, so that it is unknown whether it has ended.
    lost: bool = False
    #: Whether a user has requested that its end counts as confirmed once it is lost.
    forced: bool = False
    leaving: bool = False
    #: Whether a user has requested its move to another host. It stays if no other host has room.
    moving: bool = False
    #: When this scheduler first and last requested its end.
    cancelled_at: float | None = None
    cancel_said_at: float | None = None
    #: The last epoch in which it reported that it acts, and the highest epoch in which it has stopped.
    epoch: int = 0
    stopped: int = 0
    engine_id: str = ""
    host: str = ""
    avoid: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()
    #: Whether it waits for room, and whether it waits for room on one host.
    waits: bool = False
    pinned: bool = False
    words: str = ""

    @property
    def phase(self) -> Phase:
        if self.lost:
            return Phase.UNCONFIRMED
        if self.leaving or self.moving or self.cancelled_at is not None:
            return Phase.LEAVING
        if self.epoch:
            return Phase.RUNNING
        if self.heard_at is not None:
            return Phase.STANDBY
        return Phase.QUEUED if self.runs_since is None else Phase.STARTING

    def known_at(self, awake_since: float) -> float:
        """When the submission was last known to exist; silence counts only while this scheduler is awake."""
        return max(self.since, self.seen_at or 0.0, self.heard_at or 0.0, awake_since)

    def is_heard(self, now: float, within_s: float) -> bool:
        """Whether the submission has sent a request within this time."""
        return self.heard_at is not None and now - self.heard_at <= within_s

    def show(self, seen: Seen, now: float) -> None:
        """Record that the engine's list contains the submission without a confirmed end."""
        self.missed = self.missed_any = 0
        self.engine_id, self.words, self.avoid = seen.engine_id, seen.words, seen.avoid
        self.waits, self.pinned = seen.waits, seen.pinned
        self.host = seen.host or self.host
        self.given_up = seen.ended is Ended.UNCONFIRMED
        if not self.given_up:
            self.seen_at = now
        runs = seen.phase in (EnginePhase.RUNNING, EnginePhase.ENDING) and not self.given_up
        self.runs_since = (self.runs_since or now) if runs else self.runs_since
        self.hopeless_since = (self.hopeless_since or now) if seen.hopeless else None
        self.unstarted = seen.hopeless or (self.unstarted and seen.phase is not EnginePhase.RUNNING)

    def miss(self, asked_at: float, others: bool) -> None:
        """Record that the engine's list lacks the submission; `others` means that it contains other submissions."""
        if asked_at >= self.since + SETTLE_S:
            self.missed_any += 1
            self.missed += others

    def is_absent(self, now: float, lost_s: float, awake_since: float) -> bool:
        """Whether enough lists lack the submission. Empty lists prove little: they count only after a long silence."""
        if self.missed >= ABSENT_LISTS:
            return True
        return self.missed_any >= ABSENT_LISTS and now - self.known_at(awake_since) >= lost_s


@dataclass(slots=True)
class Container:
    """One container with its submissions, and the data that outlives them."""

    number: int
    entry: Entry
    #: The specification of the container; None if it should not run.
    spec: ContainerSpec | None = None
    submissions: dict[int, Submission] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    #: It is not submitted again before this time.
    submit_at: float = 0.0
    #: When it began to wait for the hosts of the containers that it avoids.
    apart_since: float | None = None
    #: Whether it has waited long enough for a host that it does not avoid, so that it now accepts an avoided host.
    beside: bool = False
    #: For the case that no other host has room: the avoided hosts that it may use, and whether any host may replace the
    #: host that it was submitted to.
    spared: set[str] = field(default_factory=set)
    anywhere: bool = False
    #: Why its last move was abandoned.
    unmoved: str = ""
    #: Why it has FAILED; empty if it has not.
    failed: str = ""
    #: Whether it has finished its work.
    finished: bool = False
    history: RestartHistory = field(default_factory=RestartHistory)
    #: Ends by external commands.
    cancels: RestartHistory = field(default_factory=RestartHistory)
    restarts: int = 0
    #: The submission whose end was counted last.
    judged: int = 0
    #: The last submission that reported that it has stopped.
    last_word: int = 0
    exit_reason: ExitReason | None = None
    exit_detail: str = ""

    @classmethod
    def of(cls, number: int, entry: Entry, limits: RestartLimits, cancelled: RestartLimits) -> Container:
        """Restore a container from an earlier scheduler's ledger."""
        past = entry.past
        return cls(
            number,
            entry,
            failed=past.failed,
            finished=past.finished,
            history=past.ends.history(limits),
            cancels=past.cancels.history(cancelled),
            restarts=past.restarts,
            judged=past.judged,
            exit_reason=past.reason,
            exit_detail=past.detail,
        )

    def past(self) -> Past:
        """The part of a container's history that outlives this scheduler."""
        return Past(
            self.restarts,
            self.judged,
            self.failed,
            self.finished,
            self.exit_reason,
            self.exit_detail,
            Charges.of(self.history),
            Charges.of(self.cancels),
        )

    def forget_past(self) -> None:
        """Reset the container's past ends and budgets; ends that were already counted are not counted again."""
        self.failed, self.finished, self.restarts = "", False, 0
        self.history, self.cancels = RestartHistory(), RestartHistory()
        self.exit_reason, self.exit_detail = None, ""

    def count_loss(self) -> None:
        """Count a restart after the loss of the host, for which there is no confirmed end to count."""
        cause = self.entry.cause
        if self.entry.holder and cause is not None and cause.reason is ExitReason.LOST_HOST:
            self.restarts += 1
            self.exit_reason, self.exit_detail = cause.reason, cause.text

    def never_ran(self, one: Submission) -> bool:
        """Whether a submission is gone without ever having started, so that its end needs no confirmation."""
        return one.given_up and one.unstarted and one.heard_at is None and one.number > self.entry.holder

    def named(self) -> list[str]:
        """Descriptions of the container's submissions that may still exist."""
        return [
            f"container {self.number}, submission {number}"
            + (f" ({one.engine_id}{f' on {one.host}' if one.host else ''})" if one.engine_id else "")
            for number, one in sorted(self.submissions.items())
        ]

    @property
    def moves_from(self) -> str:
        """The host from which the container is moved away; empty if it is not being moved."""
        return self.entry.moves_from

    @property
    def is_moving(self) -> bool:
        """Whether the container is being moved; it keeps acting until its successor stands by."""
        return bool(self.moves_from) or (self.holder is not None and self.holder.moving)

    @property
    def holder(self) -> Submission | None:
        """The last activated submission; None if it can no longer exist."""
        return self.submissions.get(self.entry.holder)

    @property
    def stays(self) -> Submission | None:
        """The holder; None if it must end, or if there is none."""
        holder = self.holder
        leaves = holder is None or holder.phase in (Phase.UNCONFIRMED, Phase.LEAVING)
        return None if leaves else holder

    def successors(self) -> list[Submission]:
        """The submissions that may be activated after the holder, most advanced first."""
        ready = {Phase.STANDBY: 0, Phase.STARTING: 1, Phase.QUEUED: 2}
        found = [one for number, one in self.submissions.items() if number > self.entry.holder and one.phase in ready]
        return sorted(found, key=lambda one: (ready[one.phase], one.number))

    def view(self, fencing: Fencing) -> ContainerView:
        """The container's state as shown to users."""
        shown = self.stays or next(iter(self.successors()), None) or self.holder
        entry, words = self.entry, self.failed or (shown.words if shown else "") or self.exit_detail
        phase = Phase.FAILED if self.failed else shown.phase if shown else Phase.QUEUED
        holder = self.holder
        if phase is Phase.STANDBY:
            words = ""  # the engine lists it as running
        if phase is Phase.STANDBY and fencing is Fencing.CONFIRMATION and holder not in (None, shown):
            waits = f"it waits until the end of submission {entry.holder} is confirmed"
            words = f"{waits}; heron restart --force does not wait"
        return ContainerView(
            self.number,
            phase,
            shown.number if shown else 0,
            entry.epoch,
            shown.engine_id if shown else "",
            shown.host if shown else "",
            words,
            self.restarts,
            self.exit_reason,
            tuple((one.number, one.phase) for _, one in sorted(self.submissions.items())),
            self.unmoved,
        )

    def move(self, host: str, now: float) -> None:
        """Move the container away from a host ("" means its own). A submission that is still waiting there ends."""
        self.unmoved = ""
        for number, one in self.submissions.items():
            here = host in ("", one.host)
            if here and not one.lost and number == self.entry.holder:
                one.moving = one.cancelled_at is None
            elif here and not one.lost and one.cancelled_at is None:
                one.cancelled_at = now

    def end_move(self, why: str, now: float) -> None:
        """End a move: the container stays, or its next submission may run on any host."""
        self.unmoved = why
        for one in self.submissions.values():
            one.moving = False
            if one.barred and one.phase is Phase.QUEUED:
                one.cancelled_at = now

    def choose_again(self) -> None:
        """After an activation, restore all host preferences for the next submission."""
        self.beside = self.anywhere = False
        self.spared.clear()

    def forget(self, number: int) -> None:
        """Forget a submission that has ended."""
        self.submissions.pop(number, None)
        if number not in self.ended:
            self.ended.append(number)
            del self.ended[:-ENDED_MAX]
