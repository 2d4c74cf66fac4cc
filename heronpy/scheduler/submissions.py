"""What placement knows of one submission and of one container, and what follows from it without any command. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from heronpy.engines.contract import Ended, EnginePhase, Seen
from heronpy.engines.lease import Fencing
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.restart_policy import Charges, RestartHistory, RestartLimits
from heronpy.scheduler.placement_events import ContainerSpec, ContainerView, Entry, Past, Phase

#: Good lists in a row that do not show a submission, before it counts as missing.
ABSENT_LISTS = 2
#: A list may lack a submission until this time after it was made.
SETTLE_S = 10.0
#: Numbers of ended submissions that are remembered, so that a late message of one is not taken for news.
ENDED_MAX = 64


@dataclass(slots=True)
class Submission:
    """The facts about one submission; its phase is derived from them."""

    number: int
    #: When it was made, or first known.
    since: float
    #: The last list that showed it alive.
    seen_at: float | None = None
    #: The last request of it at the endpoint, and the first.
    heard_at: float | None = None
    hello_at: float | None = None
    #: Since when the engine lists it as running.
    runs_since: float | None = None
    #: Since when the engine says that it will never start.
    hopeless_since: float | None = None
    #: The engine has said so, and did not list it as running since.
    unstarted: bool = False
    #: Lists in a row without it: those that show others, and all.
    missed: int = 0
    missed_any: int = 0
    #: The engine has given it up.
    given_up: bool = False
    #: It is silent, or missing: its end is neither confirmed nor denied.
    lost: bool = False
    #: A user says that its end counts as confirmed once it is lost.
    forced: bool = False
    leaving: bool = False
    #: A user wants it away from its host, and it may stay if nothing else has room.
    moving: bool = False
    #: We asked for its end; when first and when last.
    cancelled_at: float | None = None
    cancel_said_at: float | None = None
    #: The epoch in which it was heard acting last, and the highest in which it has stopped.
    epoch: int = 0
    stopped: int = 0
    engine_id: str = ""
    host: str = ""
    avoid: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()
    #: It waits for room; and for that of one host.
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
        """When it was last known to exist; silence counts only while this scheduler was awake."""
        return max(self.since, self.seen_at or 0.0, self.heard_at or 0.0, awake_since)

    def is_heard(self, now: float, within_s: float) -> bool:
        """Whether it was heard lately."""
        return self.heard_at is not None and now - self.heard_at <= within_s

    def show(self, seen: Seen, now: float) -> None:
        """A list shows it, and it has not ended for sure."""
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
        """A list does not show it; `others`: but it shows something."""
        if asked_at >= self.since + SETTLE_S:
            self.missed_any += 1
            self.missed += others

    def is_absent(self, now: float, lost_s: float, awake_since: float) -> bool:
        """Whether enough lists do not show it. Empty ones prove little, so they need a long silence as well."""
        if self.missed >= ABSENT_LISTS:
            return True
        return self.missed_any >= ABSENT_LISTS and now - self.known_at(awake_since) >= lost_s


@dataclass(slots=True)
class Container:
    """One container: its submissions, and what outlives them."""

    number: int
    entry: Entry
    #: None: it should not run.
    spec: ContainerSpec | None = None
    submissions: dict[int, Submission] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    #: Not before this is it submitted again.
    submit_at: float = 0.0
    #: Since when it waits for the hosts of those that it stays apart from.
    apart_since: float | None = None
    #: It has waited long enough for a host apart from theirs: one of them is better than none.
    beside: bool = False
    #: Nothing else has room: hosts that it may use although they are avoided, and any host rather than a chosen one.
    spared: set[str] = field(default_factory=set)
    anywhere: bool = False
    #: Why its last move was given up.
    unmoved: str = ""
    #: Why it has FAILED; empty: it has not.
    failed: str = ""
    #: It has done its work.
    finished: bool = False
    history: RestartHistory = field(default_factory=RestartHistory)
    #: Ends by commands of others.
    cancels: RestartHistory = field(default_factory=RestartHistory)
    restarts: int = 0
    #: The submission whose end was counted last.
    judged: int = 0
    #: The submission that has said last that it has stopped.
    last_word: int = 0
    exit_reason: ExitReason | None = None
    exit_detail: str = ""

    @classmethod
    def of(cls, number: int, entry: Entry, limits: RestartLimits, cancelled: RestartLimits) -> Container:
        """A container as an earlier scheduler has left it."""
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
        """Its ends and budgets; an end that was counted is not counted again."""
        self.failed, self.finished, self.restarts = "", False, 0
        self.history, self.cancels = RestartHistory(), RestartHistory()
        self.exit_reason, self.exit_detail = None, ""

    def count_loss(self) -> None:
        """Its tasks begin again: if their host was lost, no end was confirmed and counted."""
        cause = self.entry.cause
        if self.entry.holder and cause is not None and cause.reason is ExitReason.LOST_HOST:
            self.restarts += 1
            self.exit_reason, self.exit_detail = cause.reason, cause.text

    def never_ran(self, one: Submission) -> bool:
        """Whether the submission is gone and never started, so that its end needs no confirmation."""
        return one.given_up and one.unstarted and one.heard_at is None and one.number > self.entry.holder

    def named(self) -> list[str]:
        """Its submissions that may exist, in words."""
        return [
            f"container {self.number}, submission {number}"
            + (f" ({one.engine_id}{f' on {one.host}' if one.host else ''})" if one.engine_id else "")
            for number, one in sorted(self.submissions.items())
        ]

    @property
    def moves_from(self) -> str:
        """The host from which it is moved away; empty: it is not."""
        return self.entry.moves_from

    @property
    def is_moving(self) -> bool:
        """Whether it acts until its successor stands by."""
        return bool(self.moves_from) or (self.holder is not None and self.holder.moving)

    @property
    def holder(self) -> Submission | None:
        """The submission that was activated last, while it may exist."""
        return self.submissions.get(self.entry.holder)

    @property
    def stays(self) -> Submission | None:
        """The holder, unless it is to end."""
        holder = self.holder
        leaves = holder is None or holder.phase in (Phase.UNCONFIRMED, Phase.LEAVING)
        return None if leaves else holder

    def successors(self) -> list[Submission]:
        """Submissions that may be activated after the holder, the readiest first."""
        ready = {Phase.STANDBY: 0, Phase.STARTING: 1, Phase.QUEUED: 2}
        found = [one for number, one in self.submissions.items() if number > self.entry.holder and one.phase in ready]
        return sorted(found, key=lambda one: (ready[one.phase], one.number))

    def view(self, fencing: Fencing) -> ContainerView:
        """The public state of the container."""
        shown = self.stays or next(iter(self.successors()), None) or self.holder
        entry, words = self.entry, self.failed or (shown.words if shown else "") or self.exit_detail
        phase = Phase.FAILED if self.failed else shown.phase if shown else Phase.QUEUED
        holder = self.holder
        if phase is Phase.STANDBY:
            words = ""  # to its engine it runs
        if phase is Phase.STANDBY and fencing is Fencing.CONFIRMATION and holder not in (None, shown):
            words = f"it waits until the end of submission {entry.holder} is confirmed, or restart it with --force"
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
        """Away from a host, "" for wherever it is; what only waits there is ended at once."""
        self.unmoved = ""
        for number, one in self.submissions.items():
            here = host in ("", one.host)
            if here and not one.lost and number == self.entry.holder:
                one.moving = one.cancelled_at is None
            elif here and not one.lost and one.cancelled_at is None:
                one.cancelled_at = now

    def end_move(self, why: str, now: float) -> None:
        """End a move: the container stays, or its next submission may go anywhere."""
        self.unmoved = why
        for one in self.submissions.values():
            one.moving = False
            if one.barred and one.phase is Phase.QUEUED:
                one.cancelled_at = now

    def choose_again(self) -> None:
        """After an activation: the next submission starts with all preferences for its host."""
        self.beside = self.anywhere = False
        self.spared.clear()

    def forget(self, number: int) -> None:
        """A submission has ended."""
        self.submissions.pop(number, None)
        if number not in self.ended:
            self.ended.append(number)
            del self.ended[:-ENDED_MAX]
