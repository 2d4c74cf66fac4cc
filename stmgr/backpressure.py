"""Spout backpressure with high and low marks, carried as a lease (decision D5). Pure.

The marks of a queue are the data that its task processes in a quarter and in an eighth of the target time (`marks_of`).
Until the pace of the task is known, they are at most `QUEUE_START_BYTES`. Links to other stream managers have the marks
from the settings. A stream manager in which frames for a task pile up announces this, and the culprit, to its peers.
The episode is *avoided* while the task gets its input only by shuffle and another task of its component is not full:
its senders use that task, and no spout is held back. An announcement is a lease: it is renewed each second and expires
after three, so a dead announcer never stops the topology for long.

Spouts are stopped only where credit is not enough: the senders of a full task get no credit back (stmgr/links.py), so
they are held to its pace one frame at a time, hop by hop up to the spouts. A queue past twice the high mark clamps all
spouts until it has shrunk to one and a half times the mark. Clamps never flap: clamps are separated by a pause,
unless the queue is past four times the mark. If surplus tuples are discarded (`drops`), nothing is held and no spout is
clamped. `now` is given, and announcements are returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from heronpy.proto import control_pb2

#: Maximum number of announcements from other stream managers that are kept.
ACTIVE_MAX = 10_000
#: Shortest time in seconds between the starts of two clamps of a link, which gives less than one toggle a second.
REST_S = 1.0
#: Multiples of the high mark: where spouts are clamped, where they are clamped even during a pause between clamps, and
#: where they are released.
CLAMP, CLAMP_SOON, UNCLAMP = 2, 4, 1.5
#: Shares of the target: the high mark of a queue, and the maximum of a frame. The other part is for data in transit.
QUEUE_SHARE, FRAME_SHARE = 1 / 4, 1 / 32
#: The high mark in bytes of a queue for a task whose pace is not known yet.
QUEUE_START_BYTES = 512
#: A frame whose limit is at least this number of tuples is not limited.
FRAME_TUPLES_MAX = 2000


def marks_of(high: int, low: int, bytes_per_s: float, target_s: float) -> tuple[int, int]:
    """Return the high and low marks in bytes for a queue that is processed at this pace; at most `high` and `low`."""
    wanted = int(bytes_per_s * target_s * QUEUE_SHARE)
    return (max(1, wanted), wanted // 2) if wanted < high else (high, low)


def frame_limit(pace: float, target_s: float) -> int:
    """Return the maximum number of tuples in a frame for a task with this pace in tuples per second; 0: no limit."""
    limit = max(1, int(pace * target_s * FRAME_SHARE))
    return limit if limit < FRAME_TUPLES_MAX else 0


class Episode(Struct):
    """A local link whose queue has passed the high mark."""

    number: int
    link: str
    task: int
    since: float
    queued_bytes: int
    high: int = 0
    #: Tuples per second that the task has recently processed; 0: unknown.
    pace: float = 0.0
    #: True if the queue has passed the mark at which spouts are clamped.
    over: bool = False
    #: True if its senders use other tasks; the start of this state.
    avoided: bool = False
    judged: float = 0.0


class Remote(Struct):
    """The announcement of another stream manager."""

    epoch: int
    episode: int
    expires: float
    culprits: list[Any] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """True if the announcement holds back senders, at least by credit."""
        return not self.culprits or any(not (one.avoided or one.drops) for one in self.culprits)

    @property
    def clamps(self) -> bool:
        """True if the announcement stops the spouts."""
        return not self.culprits or any(culprit.clamps for culprit in self.culprits)


def clamps(episode: Episode) -> bool:
    """Return whether spouts are stopped for this episode."""
    return episode.over and not episode.avoided


class Backpressure:
    """The backpressure that this stream manager and others have announced."""

    def __init__(self, high: int, low: int, lease_s: float, renew_s: float) -> None:
        self.high, self.low = high, low
        self.lease_s, self.renew_s = lease_s, renew_s
        self.local: dict[str, Episode] = {}
        self.remote: dict[str, Remote] = {}
        self.clamped = False
        #: True if surplus tuples are discarded.
        self.drops = False
        #: Maps a task that gets its input only by shuffle to all tasks of its component.
        self.alike: Mapping[int, frozenset[int]] = {}
        #: The result of `full`; None if it must be computed again.
        self._full: frozenset[int] | None = None
        self._episodes = 0
        #: The time until which a link has a pause between clamps.
        self._rest: dict[str, float] = {}
        self._announced = False
        self._announced_kinds: set[tuple[bool, bool]] = set()
        self._next_renewal = 0.0
        #: Seconds per culprit task that this stream manager has announced, up to the latest update of an episode.
        self.spent_s: dict[int, float] = {}
        #: Seconds per culprit task of avoided episodes.
        self.avoided_s: dict[int, float] = {}
        #: True if a full task holds back its senders, by credit or by a clamp; the total seconds of this state.
        self.holding = False
        self.held_s = self._held_since = 0.0
        self.episodes_started = 0

    def observe(
        self,
        link: str,
        queued_bytes: int,
        top_task: Any,
        now: float,
        marks: tuple[int, int] | None = None,
        pace: float = 0.0,
    ) -> bool:
        """Observe a link's queue; `top_task()` names the culprit.

        Returns whether the announcement changed. `marks` are the high and the low mark in bytes, by default those for
        links of unknown pace.
        """
        high, low = marks or (self.high, self.low)
        episode = self.local.get(link)
        if episode is None:
            if queued_bytes <= high:
                return False
            self._episodes += 1
            self.episodes_started += 1
            episode = self.local[link] = Episode(
                self._episodes, link, top_task()[0], now, queued_bytes, high, pace, judged=now
            )
            self._full = None
            episode.avoided = self._can_avoid(episode, {})
            self._measure(episode, now)
            return True
        episode.queued_bytes, episode.high, episode.pace = queued_bytes, high, pace
        if queued_bytes > low:
            return self._measure(episode, now)
        self._close(episode, now)
        return True

    def _measure(self, episode: Episode, now: float) -> bool:
        """Update whether the queue clamps the spouts; return whether that changed."""
        queued, link = episode.queued_bytes, episode.link
        if self.drops:
            return False
        if episode.over:
            episode.over = queued > UNCLAMP * episode.high
            if not episode.over:
                self._rest[link] = now + REST_S
            return not episode.over
        if queued > CLAMP_SOON * episode.high or (queued > CLAMP * episode.high and now >= self._rest.get(link, 0.0)):
            episode.over = True
        return episode.over

    def forget(self, link: str, now: float) -> bool:
        """Remove a link that has ended permanently."""
        self._rest.pop(link, None)
        episode = self.local.get(link)
        if episode is None:
            return False
        self._close(episode, now)
        return True

    def _close(self, episode: Episode, now: float) -> None:
        del self.local[episode.link]
        self._full = None
        if episode.over:
            self._rest[episode.link] = now + REST_S
        self._bank(episode, now)

    def _bank(self, episode: Episode, now: float) -> None:
        spent = self.avoided_s if episode.avoided else self.spent_s
        spent[episode.task] = spent.get(episode.task, 0.0) + now - episode.judged
        episode.judged = now

    def full(self) -> frozenset[int]:
        """The tasks whose queues are above their marks, here or at another stream manager."""
        if self._full is None:
            here = {episode.task for episode in self.local.values()}
            there = ({culprit.task_id for culprit in remote.culprits} for remote in self.remote.values())
            self._full = frozenset(here.union(*there))
        return self._full

    def _can_avoid(self, episode: Episode, all_full: dict[frozenset[int], bool]) -> bool:
        """Return whether senders can use another task of the component; False if the task's queue exceeds twice `high`.

        `all_full` remembers the components of which all tasks are full: each is looked up once, not once per task.
        """
        alike = self.alike.get(episode.task)
        if alike is None or episode.queued_bytes > 2 * self.high:
            return False
        if alike not in all_full:
            all_full[alike] = alike <= self.full()
        return not all_full[alike]

    def _judge(self, now: float) -> None:
        """Update which episodes can be avoided."""
        all_full: dict[frozenset[int], bool] = {}
        for episode in self.local.values():
            avoided = self._can_avoid(episode, all_full)
            if avoided != episode.avoided:
                self._bank(episode, now)
                episode.avoided = avoided

    def heard(self, message: control_pb2.Backpressure, now: float) -> None:
        """Store another stream manager's announcement; ignore an announcement of an older incarnation."""
        known = self.remote.get(message.stmgr_id)
        if known is not None and message.epoch < known.epoch:
            return
        self._full = None
        if not message.on:
            self.remote.pop(message.stmgr_id, None)
        elif len(self.remote) < ACTIVE_MAX:
            # With this order of arguments, the smaller of a number and NaN is the number.
            self.remote[message.stmgr_id] = Remote(
                message.epoch, message.episode, now + min(self.lease_s, message.lease_s), list(message.culprits)
            )

    def lost(self, stmgr_id: str) -> None:
        """Remove a stream manager that has left the plan."""
        self._full = None
        self.remote.pop(stmgr_id, None)

    def expire(self, now: float) -> None:
        """Drop announcements with an expired lease."""
        for stmgr_id in [s for s, r in self.remote.items() if r.expires <= now]:
            del self.remote[stmgr_id]
            self._full = None

    def clamp_changed(self, now: float) -> bool:
        """Update `clamped` and `holding`; return whether the local spouts must be notified."""
        self._judge(now)
        held = not self.drops and any(not episode.avoided for episode in self.local.values())
        holding = held or any(remote.holds for remote in self.remote.values())
        if self.holding:
            self.held_s += now - self._held_since
        self.holding, self._held_since = holding, now
        clamped = any(map(clamps, self.local.values())) or any(remote.clamps for remote in self.remote.values())
        if clamped == self.clamped:
            return False
        self.clamped = clamped
        return True

    def announcement_due(self, now: float, changed: bool) -> bool | None:
        """Return True to announce backpressure now, False to announce its end, None for no announcement."""
        if self.local:
            kinds = {(episode.avoided, clamps(episode)) for episode in self.local.values()}
            if changed or not self._announced or kinds != self._announced_kinds or now >= self._next_renewal:
                self._announced, self._announced_kinds = True, kinds
                self._next_renewal = now + self.renew_s
                return True
            return None
        if self._announced:
            self._announced = False
            return False
        return None

    def next_deadline(self) -> float | None:
        """Return the earliest time at which `expire` or `announcement_due` may have an effect."""
        times = [remote.expires for remote in self.remote.values()]
        if self._announced:
            times.append(self._next_renewal)
        return min(times, default=None)

    def held_until(self, now: float) -> float:
        """Return for how many seconds full tasks have held back their senders."""
        return self.held_s + (now - self._held_since if self.holding else 0.0)

    def spent(self, now: float, avoided: bool = False) -> dict[int, float]:
        """Return, by culprit task, for how many seconds spouts were held back or (`avoided`) senders avoided the
        task."""
        total = dict(self.avoided_s if avoided else self.spent_s)
        for episode in self.local.values():
            if episode.avoided == avoided:
                total[episode.task] = total.get(episode.task, 0.0) + now - episode.judged
        return total
