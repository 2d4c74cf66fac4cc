"""Decides which submissions of containers are created, activated and cancelled. Pure.

Decisions are based on the engine's list and on messages from containers at the endpoint. Each event updates facts, and
`_settle` compares the facts with the plan. A lost command is therefore repeated, and a scheduler that takes over adopts
the existing submissions: it starts with its predecessor's ledger and waits for the first list.

Invariants:
- At most one submission of a container may act, and `heronpy.scheduler.leases` decides when its successor may act.
- Submission numbers and epochs only increase, and are in the ledger before they are used.
- Once a successor has been chosen, its predecessor gets no more grants.
- A submission does not count as ended merely because a list is missing or does not contain it.
"""

from __future__ import annotations

from heronpy.engines.contract import Ended, Request, Seen
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.restart_policy import RestartHistory, decide_restart
from heronpy.scheduler.placement_events import (
    Activate,
    AllGone,
    Cancel,
    ContainerSpec,
    DrainAsked,
    DrainEnded,
    Effect,
    EngineAway,
    Entry,
    Event,
    Fence,
    GiveUp,
    Grant,
    Heard,
    HostLifted,
    KillAsked,
    Leaving,
    Listed,
    MoveAsked,
    MoveEnded,
    Note,
    Persist,
    Phase,
    PlanChanged,
    Refused,
    RestartAsked,
    Submit,
    Tick,
)
from heronpy.scheduler.placement_facts import CANCELLED, PlacementFacts
from heronpy.scheduler.submissions import Container, Submission

#: The shell passes an event at least this often.
TICK_S = 1.0
#: If no event arrives for this long, this process was paused, so silent containers may still be running.
OWN_STALL_S = 5.0
#: A list that took longer than this does not show which containers are missing now.
LIST_LATE_S = 10.0
#: Pause before the request to the engine to end a submission is repeated.
CANCEL_AGAIN_S = 10.0
#: A container has FAILED when the engine has called its submission hopeless for this time.
HOPELESS_S = 30.0


class Placement(PlacementFacts):
    """Places one topology's containers. `handle(event, now)` returns the effects; the first event is a PlanChanged."""

    # ---- events -----------------------------------------------------------------------------
    def handle(self, event: Event, now: float) -> list[Effect]:
        """Handle one event at the monotonic time `now`; AllGone is the last effect."""
        if now - self._last_now > OWN_STALL_S:
            self._awake_since = now
        self._last_now, self._changed = now, False
        if self._gone:
            return []
        effects = self._apply(event, now)
        for container in list(self._containers.values()):
            if not isinstance(event, Heard):
                effects += self._settle(container, 0, now)
            elif container.number == event.container:
                effects += self._settle(container, event.submission, now)
        if self._killed_at is not None and not self.left():
            self._gone = True
            effects.append(AllGone())
        persist = Persist(self.ledger, self.is_killed, self._avoided.known(now))
        return [persist, *effects] if self._changed else effects

    def _apply(self, event: Event, now: float) -> list[Effect]:
        match event:
            case PlanChanged(containers):
                return self._on_plan(containers)
            case Listed():
                return self._on_listed(event, now)
            case Heard():
                return self._on_heard(event, now)
            case Leaving(container, number, why):
                found = self._containers.get(container)
                leaver = found.submissions.get(number) if found is not None else None
                if found is None or leaver is None or leaver.leaving:
                    return []
                leaver.leaving = True
                if leaver.cancelled_at is not None:
                    return []  # its engine ends it at this scheduler's request
                what = f"has to leave {leaver.host or 'its host'}: {why}"
                self._blame(found, number, ExitReason.PREEMPTED, f"it {what.replace('has', 'had', 1)}")
                return [Note(f"container {container} {what}")]
            case Refused():
                return self._on_refused(event, now)
            case DrainAsked(host, by):
                return self._avoid(host, f"{by} is draining it", now, by)
            case DrainEnded(host, failed):
                self._changed = True
                self._avoided.drained(host, failed, now)
                return [
                    Note(
                        f"the drain of host {host} {'has failed; it may get containers again' if failed else 'is over'}"
                    )
                ]
            case HostLifted(host, by):
                if not self._avoided.lift(host):
                    return []
                self._changed = True
                return [Note(f"host {host} may get containers again, as requested by {by}")]
            case MoveAsked(container, host, by):
                found = self._containers.get(container)
                if found is None or found.spec is None:
                    return []
                found.move(host, now)
                self._write(found, moves_from=host)
                if not host:
                    self._blame(found, found.entry.holder, ExitReason.RESTARTED, f"{by} changed its size")
                    return [
                        Note(f"container {container} is being replaced by one of another size, as requested by {by}")
                    ]
                self._blame(found, found.entry.holder, ExitReason.MOVED, f"{by} has moved it away from host {host}")
                return [Note(f"container {container} is being moved away from {host}, which {by} is draining")]
            case MoveEnded(container):
                found = self._containers.get(container)
                if found is not None and found.is_moving:
                    self._end_move(found, "it took too long", now)
                return []
            case RestartAsked():
                return self._on_restart(event, now)
            case KillAsked(grace_s):
                self._changed = self._killed_at is None
                self._killed_at, self._kill_grace_s = self._killed_at or now, grace_s
                return []
            case EngineAway(why):
                self.away_why = why
                if self.away_since is not None:
                    return []
                self.away_since = now
                return [Note(f"the engine does not answer: {why}; containers keep running", True)]
            case Tick():
                return []

    def _on_plan(self, specs: tuple[ContainerSpec, ...]) -> list[Effect]:
        self._planned = True
        wanted = {spec.container: spec for spec in specs}
        for number in wanted.keys() - self._containers.keys():
            self._containers[number] = Container(number, Entry())
        for number, container in self._containers.items():
            container.spec = wanted.get(number)
            if container.spec is None:
                # A container that is added again later starts without this history.
                container.forget_past()
                self._write(container, past=container.past(), cause=None)
        return []

    def _on_listed(self, event: Listed, now: float) -> list[Effect]:
        effects: list[Effect] = []
        late = now - event.asked_at > LIST_LATE_S or event.asked_at < self._asked_at
        for seen in event.seen:
            container = self._containers.get(seen.container)
            if container is None:
                container = self._containers[seen.container] = Container(seen.container, Entry())
            if seen.ended is Ended.CONFIRMED:
                effects += self._on_ended(container, seen, now)
            elif not late and seen.submission not in container.ended:
                self._known(container, seen.submission, now).show(seen, now)
        if late:
            return [
                *effects,
                Note(f"ignored a list from the engine that arrived {now - event.asked_at:.0f} s late", True),
            ]
        if self.away_since is not None:
            effects.append(Note(f"the engine answers again after {now - self.away_since:.0f} s"))
        self._asked_at, self._listed, self.away_since, self.away_why = event.asked_at, True, None, ""
        self._ready = event.ready
        shown = {(seen.container, seen.submission) for seen in event.seen}
        for container in self._containers.values():
            for number, one in container.submissions.items():
                if (container.number, number) not in shown:
                    one.miss(event.asked_at, bool(shown))
        return effects

    def _on_ended(self, container: Container, seen: Seen, now: float) -> list[Effect]:
        """Handle a confirmed end. The engine's lists repeat the end for a while, but it counts only once."""
        number = seen.submission
        if number in container.ended:
            return []
        if number > container.entry.submitted:
            self._write(container, submitted=number)
        one = container.submissions.get(number)
        container.forget(number)
        if number == container.entry.holder:
            self._grants.release(container.number)
        if one is None or number < container.entry.holder or not self._is_wanted(container):
            return []
        if number == container.judged:
            return []  # ended by an earlier scheduler
        detail = seen.words or (seen.reason.value if seen.reason else "")
        container.exit_reason, container.exit_detail = seen.reason, detail
        if one.cancelled_at is not None:
            return []
        container.judged = number
        effects = self._judge(container, seen, one, now)
        self._write(container, past=container.past())
        return effects

    def _judge(self, container: Container, seen: Seen, one: Submission, now: float) -> list[Effect]:
        """Decide how to react to the unexpected end of a submission."""
        where = f"on host {seen.host}: " if seen.host else ""
        what = f"container {container.number}, submission {one.number} on {seen.host or 'no host'}, has ended"
        what += f" ({container.exit_detail})"
        ran_s = now - one.hello_at if one.hello_at is not None else 0.0
        reason = ExitReason.PREEMPTED if one.leaving else seen.reason or ExitReason.KILLED
        if not one.leaving:  # otherwise the reason is already known
            self._blame(container, one.number, reason, f"it had ended {where}{container.exit_detail}")
        if seen.cancelled and not one.leaving:
            decision = decide_restart(CANCELLED, container.cancels, ExitReason.KILLED, ran_s, now)
        else:
            decision = decide_restart(self._limits.restart, container.history, reason, ran_s, now)
        if reason is ExitReason.FINISHED:
            container.finished = True
            return [Note(what)]
        if not decision.restart:
            cause = decision.cause if decision.cause != reason.value else ""
            return [Note(what, True), *self._fail(container, reason, f"{cause}: {container.exit_detail}".lstrip(": "))]
        # The end of a submission that was asked to leave never counts, whether or not it already has a successor.
        container.restarts += reason is not ExitReason.PREEMPTED
        container.submit_at = now + decision.pause_s
        return [Note(what, True)]

    def _on_heard(self, event: Heard, now: float) -> list[Effect]:
        number = event.submission
        container = self._containers.get(event.container)
        if container is None:
            why = f"the topology has no container {event.container}"
            return [Fence(event.container, number, why)] if self._planned else []
        entry = container.entry
        if max(event.epoch, event.stopped) > entry.epoch and number >= entry.holder:
            # Either the state manager has lost its records, or this process is no longer the scheduler. In the latter
            # case, the write will fail.
            self._write(
                container,
                submitted=max(number, entry.submitted),
                holder=number,
                epoch=max(event.epoch, event.stopped),
            )
            entry = container.entry
        if number < entry.holder:
            return [Fence(container.number, number, f"submission {entry.holder} has replaced it")]
        if number in container.ended:
            return [Fence(container.number, number, "the engine has confirmed its end")]
        one = self._known(container, number, now)
        back = one.lost
        one.heard_at, one.lost, one.hello_at = now, False, one.hello_at or now
        one.host, one.stopped = event.host or one.host, max(one.stopped, event.stopped)
        if number == entry.holder:
            if one.stopped >= entry.epoch:
                one.epoch = 0
                container.last_word = number
                self._grants.release(container.number)
            else:
                self._grants.hold(container.number, now)
                if container.last_word == number:
                    container.last_word = 0  # it acts again
                one.epoch = event.epoch if event.epoch == entry.epoch else one.epoch
                if back:  # it was not replaced
                    self._write(container, cause=None)
        effects: list[Effect] = [Note(f"container {container.number} on {one.host} is reporting again")] if back else []
        asked_at, held = one.cancelled_at, number == entry.holder
        # The engine was also asked to end it, but may be unavailable.
        patience_s = self._limits.leave_s if self._killed_at is None else self._kill_grace_s
        if asked_at is not None and (not held or now - asked_at >= patience_s):
            return [*effects, Fence(container.number, number, "it was asked to end")]
        return [*effects, Grant(container.number, number)] if one.epoch else effects

    def _on_refused(self, event: Refused, now: float) -> list[Effect]:
        container = self._containers.get(event.container)
        if container is None or event.submission not in container.submissions:
            return []
        if not event.fatal:
            return [Note(f"container {event.container} could not be submitted: {event.why}", True)]
        container.forget(event.submission)
        return self._has_no_successor(container, event.why, now)

    def _on_restart(self, event: RestartAsked, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for container in self._containers.values():
            if container.spec is None or (event.containers and container.number not in event.containers):
                continue
            effects.append(Note(f"restarting container {container.number}: {event.why or 'on request'}"))
            container.history, container.cancels = RestartHistory(), RestartHistory()
            container.failed, container.finished, container.submit_at = "", False, now
            holder = container.holder
            if event.force and (holder is None or holder.lost):
                self._grants.release(container.number)
            elif holder is not None:
                holder.forced = holder.forced or event.force
                if holder.cancelled_at is None:
                    # A lost submission is cancelled too, because the engine may still be able to end it.
                    holder.cancelled_at = now
            self._write(container, past=container.past())
            self._blame(container, container.entry.holder, ExitReason.RESTARTED, event.why or "a user requested it")
        return effects

    # ---- consequences of the facts ------------------------------------------------------------
    def _settle(self, container: Container, heard: int, now: float) -> list[Effect]:
        """The effects required by the facts about one container; submission `heard` has just sent a request."""
        if not self._planned:
            return []
        effects = self._find_lost(container, now)
        wanted, holder = self._is_wanted(container), container.holder
        stays = container.stays if wanted else None
        # An adopted submission that has not sent a request yet may have ended.
        sure = stays is not None and stays.heard_at is not None
        keep = next(iter(container.successors()), None) if wanted and not sure else None
        if keep is not None:
            effects += self._doubt(container, keep, now)
            keep = keep if keep.cancelled_at is None else None
        for one in list(container.submissions.values()):
            if one is stays or one is keep:
                continue
            needed = wanted and one is holder
            if needed and one.cancelled_at is None and (one.lost or keep is None or keep.phase is not Phase.STANDBY):
                continue
            effects += self._cancel(container, one, now)
            if not needed and self._has_vanished(one, now):
                container.submissions.pop(one.number)
        # `stays` is read again, because the move may have just been cancelled.
        if wanted and container.stays is None and keep is None and self._may_submit(container, now):
            effects += self._submit(container, now)
        target = stays if sure else keep
        return effects + (self._activate(container, target, heard, now) if target is not None else [])

    def _find_lost(self, container: Container, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for number, one in list(container.submissions.items()):
            if container.never_ran(one):
                container.forget(number)
                continue
            if one.lost or one.is_heard(now, 2 * self._times.renew_s):
                if one.given_up and not one.lost and not one.leaving:
                    one.leaving = True
                    what = f"the engine has abandoned container {container.number}, which is still running"
                    self._blame(container, number, ExitReason.LOST_HOST, f"the engine had abandoned it on {one.host}")
                    effects += [Note(what, True), *self._avoid(one.host, "the engine has abandoned a container", now)]
                continue
            absent = one.is_absent(now, self._times.lost_s, self._awake_since)
            silent_s = now - max(one.since, one.heard_at or 0.0, self._awake_since)
            speaks = one.heard_at is not None or number == container.entry.holder
            if one.given_up or absent or (speaks and silent_s >= self._times.lost_s):
                one.lost = True
                if one.forced and number == container.entry.holder:
                    self._grants.release(container.number)
                how = (
                    "the engine has abandoned it"
                    if one.given_up
                    else "the engine does not list it"
                    if absent
                    else "it is silent"
                )
                what = f"container {container.number}, submission {number} on {one.host or 'no host'}, is lost: {how}"
                effects.append(Note(what, one.cancelled_at is None))
                if one.cancelled_at is None:  # otherwise it was asked to end
                    self._blame(
                        container, number, ExitReason.LOST_HOST, f"it was lost on {one.host or 'no host'}: {how}"
                    )
                if one.host:
                    effects += self._avoid(one.host, "a container on this host was lost", now)
        return effects

    def _doubt(self, container: Container, one: Submission, now: float) -> list[Effect]:
        """Cancel a submission that will probably never run, or that can be submitted again with more hosts."""
        if one.hopeless_since is not None and now - one.hopeless_since >= HOPELESS_S:
            one.cancelled_at = now
            return self._has_no_successor(container, one.words, now)
        if one.phase is Phase.STARTING and now - (one.runs_since or now) >= self._limits.start_s:
            one.cancelled_at = now
            what = (
                f"container {container.number} has not connected within {self._limits.start_s:g} s; submitting it again"
            )
            return [Note(what, True), *self._avoid(one.host, "a container on this host did not start", now)]
        apart = self._hosts_of(container.spec.apart_from) if container.spec is not None else set()
        if one.phase is Phase.QUEUED and apart & set(one.avoid) and now - one.since >= self._limits.apart_queue_s:
            container.beside = True
        if one.phase is Phase.QUEUED and one.waits:
            container.anywhere = container.anywhere or one.pinned
            container.spared |= {*one.avoid} & self._ready
        freer = set(one.avoid) - set(self._avoid_for(container, now)) or (one.pinned and container.anywhere)
        if one.phase is Phase.QUEUED and freer:
            one.cancelled_at = now
            return [Note(f"container {container.number} may now use more hosts; submitting it again")]
        return []

    def _cancel(self, container: Container, one: Submission, now: float) -> list[Effect]:
        one.cancelled_at = now if one.cancelled_at is None else one.cancelled_at
        said = one.cancel_said_at
        if self.away_since is not None or not one.engine_id or (said is not None and now - said < CANCEL_AGAIN_S):
            return []
        one.cancel_said_at = now
        grace_s = self._kill_grace_s if self._killed_at is not None else self._limits.leave_s
        return [Cancel(container.number, one.number, one.engine_id, grace_s)]

    def _has_vanished(self, one: Submission, now: float) -> bool:
        """Whether a cancelled submission is no longer listed and sends no requests."""
        return one.is_absent(now, self._times.lost_s, self._awake_since) and not one.is_heard(now, self._times.lost_s)

    def _may_submit(self, container: Container, now: float) -> bool:
        ready = self._listed and self.away_since is None and now >= container.submit_at
        return ready and not container.failed and not container.finished and not self._waits_for_hosts(container, now)

    def _submit(self, container: Container, now: float) -> list[Effect]:
        number, spec = container.entry.submitted + 1, container.spec
        assert spec is not None
        self._write(container, submitted=number)
        avoid, barred = self._avoid_for(container, now), tuple(one for one in (container.moves_from,) if one)
        container.submissions[number] = Submission(number, since=now, avoid=avoid, barred=barred)
        wish = Request(
            self._topology_id, spec.container, number, spec.cpu, spec.ram_bytes, spec.disk_bytes, avoid, barred,
            spec.apart_from, tuple(sorted(self._hosts_of(spec.apart_from) - self._avoided.at(now) - {*barred})),
            container.anywhere,
        )  # fmt: skip
        return [Submit(wish)]

    def _activate(self, container: Container, one: Submission, heard: int, now: float) -> list[Effect]:
        """Activate a standby as soon as no other process of the container can act."""
        entry = container.entry
        if not one.is_heard(now, 2 * self._times.renew_s) or one.epoch:
            return []
        if one.number == entry.holder and one.stopped < entry.epoch:
            # It was activated but has not received the message.
            again = heard == one.number
            return [Activate(container.number, one.number, entry.epoch)] if again else []
        if not self._grants.is_free(container.number, now):
            return []
        container.count_loss()
        self._write(container, holder=one.number, epoch=entry.epoch + 1, moves_from="", past=container.past())
        container.choose_again()
        self._grants.hold(container.number, now)
        return [Activate(container.number, one.number, container.entry.epoch)]

    def _has_no_successor(self, container: Container, why: str, now: float) -> list[Effect]:
        """Handle a permanent refusal from the engine. A container that was to be moved stays on its host."""
        if not container.is_moving:
            return self._fail(container, None, why)
        self._end_move(container, why, now)
        return [Note(f"container {container.number} is not moved: {why}", True)]

    def _end_move(self, container: Container, why: str, now: float) -> None:
        container.end_move(why, now)
        self._write(container, moves_from="", cause=None)

    def _fail(self, container: Container, reason: ExitReason | None, detail: str) -> list[Effect]:
        container.failed = detail or (reason.value if reason else "it was refused")
        self._write(container, past=container.past())
        return [GiveUp(container.number, reason, container.failed)]

    def _avoid(self, host: str, why: str, now: float, by: str = "") -> list[Effect]:
        self._changed = self._changed or bool(host)
        if not self._avoided.add(host, now, why, by):
            return []
        return [Note(f"host {host} gets no containers for {self._limits.avoid_s:g} s: {why}", True)]
