"""The topology's history for users: restarts, episodes of backpressure, checkpoints, updates. Pure.

The parts of the topology master add events for their decisions; `Watcher` derives all other events from reports.
Invariants: At most `limit` events are kept; the oldest events are dropped first, and counted. Events of backpressure
never displace more than their share of the others. Numbers increase across
topology masters, so a reader can request only newer events. An event that repeats within `MERGE_S` (same kind, subject
and reason) becomes one event with a count and the newest text, under a new number. So a crash loop does not evict
all other events. Lifecycle states matter in sequence, so they are merged only when they flap.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from math import isfinite

from msgspec import Struct, field

from heronpy.common.ids import stmgr_id
from heronpy.common.states import BRIEF_S
from heronpy.common.units import format_bytes, format_duration
from heronpy.procs.exit_reason import ORDERLY, ExitReason
from heronpy.proto import control_pb2, endpoint_pb2
from heronpy.proto.control_pb2 import EventKind, TopologyEvent
from heronpy.views.past import Events, event_of, start_of

#: Number of events kept in memory, and of events handed to a successor.
KEPT_MAX, HANDED_OVER_MAX = 1_000, 200
#: If events must be dropped, backpressure keeps this share: hundreds of slow tasks have an event each.
PRESSURE_SHARE = 1 / 4
#: Seconds within which a repeated event is merged with the earlier event; the second value applies to lifecycle states.
#: The first value is longer than the longest pause before a restart (heron.executor.restart_backoff_max_s), so a crash
#: loop is one event.
MERGE_S, FLAP_S = 150.0, 5.0
#: Seconds after which backpressure becomes an event even if it has not ended.
LASTING_S = 1.0
TEXT_MAX_CHARS = 500
#: Exits caused by a restore, an update or a command. The cause itself is an event.
_EXPLAINED = frozenset(
    {control_pb2.EXIT_NONE, control_pb2.EXIT_REWOUND, control_pb2.EXIT_FINISHED, control_pb2.EXIT_OK}
)
#: Exit reasons that are not failures.
_WANTED = frozenset(reason.value for reason in ORDERLY)

_Key = tuple[EventKind, str, str]


def _surplus(events: list[TopologyEvent], most: int) -> list[TopologyEvent]:
    """Return the events to drop, so that at most `most` remain: the oldest ones, first those of backpressure."""
    surplus = max(0, len(events) - most)
    pressure = [event for event in events if event.kind == control_pb2.EVENT_BACKPRESSURE]
    first = pressure[: min(surplus, max(0, len(pressure) - int(most * PRESSURE_SHARE)))]
    known = {event.number for event in first}
    return first + [event for event in events if event.number not in known][: surplus - len(first)]


class EventLog:
    """The newest events. `wall_offset_s`, the wall time minus the monotonic time, is only used to date events."""

    def __init__(self, wall_offset_s: float = 0.0, limit: int = KEPT_MAX) -> None:
        self._wall_offset_s = wall_offset_s
        self._limit = limit
        #: Oldest first.
        self._events: OrderedDict[int, TopologyEvent] = OrderedDict()
        self._newest: dict[_Key, int] = {}
        #: The highest number of an event, and the number of events that were dropped for newer ones.
        self.last = 0
        self.forgotten = 0
        #: The monotonic time of the current event.
        self.now = 0.0
        #: By container: the epoch of the executor that reported last, perhaps to a predecessor.
        self.executors: dict[int, int] = {}
        #: How the topology was started.
        self.start = control_pb2.StartTimes()

    def __len__(self) -> int:
        return len(self._events)

    def add(
        self,
        kind: EventKind,
        text: str,
        *,
        subject: str = "",
        reason: str = "",
        detail: str = "",
        lasted_s: float = 0.0,
        times: int = 1,
        warning: bool = False,
    ) -> None:
        """Record an event that has just happened."""
        at = self.now + self._wall_offset_s
        self.last += 1
        event = TopologyEvent(
            number=self.last,
            at=at,
            first_at=at,
            times=times,
            kind=kind,
            subject=subject,
            reason=reason,
            text=" ".join(text.split())[:TEXT_MAX_CHARS],
            lasted_s=lasted_s,
            warning=warning,
            detail=detail[:TEXT_MAX_CHARS],
        )
        key = (kind, subject, reason)
        before = self._events.get(self._newest.get(key, 0))
        near_s = FLAP_S if kind == control_pb2.EVENT_LIFE else MERGE_S
        if before is not None and 0 <= at - before.at <= near_s:
            event.first_at = before.first_at
            event.times = min(before.times + times, (1 << 32) - 1)
            event.lasted_s += before.lasted_s
            event.warning = event.warning or before.warning
            del self._events[before.number]
        self._events[event.number] = event
        self._newest[key] = event.number
        self._drop_oldest()

    def go_on(
        self, kind: EventKind, text: str, *, subject: str, reason: str = "", lasted_s: float | None = None
    ) -> bool:
        """Update the newest event of this kind, subject and reason, whatever its age, with this text and a new number.

        `lasted_s` is added to the event's duration, and marks the event as ended. Returns False if there is no such
        event.
        """
        before = self._events.get(self._newest.get((kind, subject, reason), 0))
        if before is None:
            return False
        text = " ".join(text.split())[:TEXT_MAX_CHARS]
        if text == before.text and lasted_s is None:
            return True
        event = TopologyEvent()
        event.CopyFrom(before)
        self.last += 1
        event.number, event.text = self.last, text
        if lasted_s is not None:
            event.at, event.lasted_s = self.now + self._wall_offset_s, before.lasted_s + lasted_s
        del self._events[before.number]
        self._events[event.number] = event
        self._newest[(kind, subject, reason)] = event.number
        return True

    def _drop_oldest(self) -> None:
        surplus = len(self._events) - self._limit
        for oldest in _surplus(list(self._events.values()), self._limit) if surplus > 0 else ():
            number = oldest.number
            del self._events[number]
            self.forgotten += 1
            known = (oldest.kind, oldest.subject, oldest.reason)
            if self._newest.get(known) == number:
                del self._newest[known]

    def after(self, number: int, limit: int = 0) -> Events:
        """The events with a higher number, oldest first; only the newest `limit` events, or all if `limit` is 0."""
        found = [event for event in self._events.values() if event.number > number][-limit:]
        return Events(
            events=[event_of(one) for one in found],
            last=self.last,
            forgotten=self.forgotten,
            start=start_of(self.start),
        )

    def ledger(self, topology_id: str) -> control_pb2.EventLedger:
        """The newest events, for a new topology master."""
        events = list(self._events.values())
        gone = {event.number for event in _surplus(events, HANDED_OVER_MAX)}
        newest = [event for event in events if event.number not in gone]
        return control_pb2.EventLedger(
            topology_id=topology_id, last=self.last, events=newest, executors=self.executors, start=self.start
        )

    def take_over(self, kept: control_pb2.EventLedger | None, topology_id: str) -> None:
        """Continue with a predecessor's events, unless there are none or they belong to another topology."""
        if kept is None or kept.topology_id != topology_id:
            return
        # A reader may have later events of the predecessor, so the numbers of these events are skipped.
        self.last = max(self.last, kept.last) + self._limit
        self.executors = dict(kept.executors)
        self.start.CopyFrom(kept.start)
        for event in sorted(kept.events, key=lambda one: one.number)[-self._limit :]:
            if 0 < event.number <= kept.last and isfinite(event.at):
                self._events[event.number] = event
                self._newest[(event.kind, event.subject, event.reason)] = event.number

    def validate(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        numbers = list(self._events)
        assert numbers == sorted(numbers) and len(numbers) <= self._limit, "events are out of order or too many"
        assert not numbers or numbers[-1] <= self.last, "a number was never assigned"
        assert set(self._newest.values()) <= set(numbers), "an event to merge with was dropped"


class _Episode(Struct):
    """A period in which one receiver was full."""

    name: str
    since: float
    most_bytes: int = 0
    #: Whether the receiver's tuples go to other tasks of its component, and whether tuples that do not fit are
    #: discarded. If both are true, tuples are discarded when the other tasks are full as well.
    avoided: bool = False
    drops: bool = False
    #: Whether the episode is already an event.
    told: bool = False

    @property
    def reason(self) -> str:
        """Why frames were kept waiting or dropped; "" for an episode in which spouts were held back."""
        return "dropped" if self.drops else "avoided" if self.avoided else ""


class Watcher(Struct):
    """Derives events from reports: restarts of processes, and backpressure episodes."""

    event_log: EventLog
    #: Containers whose executors have reported to this topology master.
    _heard: set[int] = field(default_factory=set)
    #: Per container and process: its number of restarts when it was last seen.
    _restarts: dict[int, dict[str, int]] = field(default_factory=dict)
    #: Per stream manager: the culprits that it announces.
    _episodes: dict[str, dict[tuple[int, str, bool], _Episode]] = field(default_factory=dict)

    def processes(
        self,
        container: int,
        epoch: int,
        records: Iterable[control_pb2.ProcessRecord],
        after: endpoint_pb2.Cause | None = None,
    ) -> None:
        """Process an executor's report of its processes. Restarts are counted from the first report of each process.

        `after` is the scheduler's reason for replacing the earlier container; None if it gives no reason.
        """
        known = self.event_log.executors.get(container)
        # An earlier container that reported only to a predecessor counts if the reason for its replacement is known.
        if known not in (None, epoch) and (container in self._heard or after is not None):
            name, text = f"container {container}", after.text if after is not None else ""
            self.event_log.add(
                control_pb2.EVENT_RESTART,
                f"{name} was restarted{': ' if text else ''}{text}",
                subject=name,
                reason=after.reason if after is not None else ExitReason.LOST_HOST.value,
                detail=text,
                warning=after is None or after.reason not in _WANTED,
            )
            self._restarts.pop(container, None)
        self._heard.add(container)
        self.event_log.executors[container] = epoch
        before, seen = self._restarts.get(container, {}), {}
        for process in records:
            seen[process.name] = process.restarts
            new = process.restarts - before.get(process.name, process.restarts)
            if process.exit not in _EXPLAINED and process.restarts:
                self._restarted(process, new)
        self._restarts[container] = seen

    def _restarted(self, process: control_pb2.ProcessRecord, times: int) -> None:
        """Add the event that a process has ended `times` more times (0: not again), and is restarting now or after a
        pause.
        """
        kind = control_pb2.EVENT_OOM if process.exit == control_pb2.EXIT_OOM else control_pb2.EVENT_RESTART
        reason = process.exit_reason
        detail = next(iter(process.exit_detail.strip().splitlines()), "")
        what = reason.replace("_", " ") + (f": {detail}" if detail else "")
        again = "was restarted"
        if process.state == control_pb2.PROC_BACKOFF:
            again = f"will be restarted in {format_duration(round(process.next_restart_s, 1) or 0.1)}"
        text = f"{process.name} {again}: {what}"
        if times > 0:
            warning = reason not in _WANTED
            self.event_log.add(
                kind, text, subject=process.name, reason=reason, detail=detail, times=times, warning=warning
            )
        elif process.state in (control_pb2.PROC_STARTING, control_pb2.PROC_RUNNING):
            self.event_log.go_on(kind, text, subject=process.name, reason=reason)

    def culprits(self, stmgr: str, found: Iterable[control_pb2.Culprit]) -> None:
        """Process a stream manager's report of its full queues. An empty report ends the stream manager's episodes.

        A new episode begins when the component's other tasks begin or stop taking over the tuples of the full task.
        """
        now, open_ones = self.event_log.now, self._episodes.setdefault(stmgr, {})
        there = set()
        for culprit in found:
            key = (culprit.task_id, culprit.peer, culprit.avoided and not culprit.drops)
            there.add(key)
            episode = open_ones.get(key)
            if episode is None:
                since = now - culprit.since_s if isfinite(culprit.since_s) and culprit.since_s > 0 else now
                if (*key[:2], not key[2]) in open_ones:
                    since = now  # `since_s` counts from the beginning of the other episode
                name = culprit.instance_id or culprit.component or f"the link to {culprit.peer}"
                episode = open_ones[key] = _Episode(name, since, avoided=culprit.avoided, drops=culprit.drops)
            episode.most_bytes = max(episode.most_bytes, culprit.queued_bytes)
            if not episode.told and now - episode.since >= LASTING_S:
                self._lasts(stmgr, episode)
        for key in open_ones.keys() - there:
            self._over(stmgr, open_ones.pop(key))
        if not open_ones:
            del self._episodes[stmgr]

    def _lasts(self, stmgr: str, episode: _Episode) -> None:
        """Add an event for a long episode before it ends. Most episodes are too short for this."""
        episode.told = True
        what = f"the spouts are held back because {episode.name} is too slow"
        if episode.drops:
            what = f"{episode.name} is full, and tuples that do not fit are discarded"
        elif episode.avoided:
            what = f"{episode.name} is full, and its tuples go to the other tasks of its component"
        self.event_log.add(
            control_pb2.EVENT_BACKPRESSURE,
            f"{what} ({format_bytes(episode.most_bytes)} wait in {stmgr})",
            subject=episode.name,
            reason=episode.reason,
        )

    def _over(self, stmgr: str, episode: _Episode) -> None:
        kind, lasted_s = control_pb2.EVENT_BACKPRESSURE, max(0.0, self.event_log.now - episode.since)
        full = f"for {format_duration(lasted_s)} {episode.name} was full"
        what = f"the spouts were held back for {format_duration(lasted_s)} because {episode.name} was too slow"
        if episode.drops:
            what = f"{full}, and tuples that did not fit were discarded"
        elif episode.avoided:
            what = f"{full}, and its tuples went to the other tasks of its component"
        elif lasted_s < BRIEF_S:
            what = f"{full}, and the spouts were held back"
        text = f"{what} (up to {format_bytes(episode.most_bytes)} waited in {stmgr})"
        name, reason = episode.name, episode.reason
        if not (episode.told and self.event_log.go_on(kind, text, subject=name, reason=reason, lasted_s=lasted_s)):
            self.event_log.add(kind, text, subject=name, reason=reason, lasted_s=lasted_s)

    def place(self, containers: Iterable[int]) -> None:
        """Set the containers of the plan, and forget all others."""
        wanted = {0, *containers}
        for number in self.event_log.executors.keys() - wanted:
            del self.event_log.executors[number]
            self._heard.discard(number)
            self._restarts.pop(number, None)
        for name in self._episodes.keys() - set(map(stmgr_id, wanted)):
            self.culprits(name, ())
