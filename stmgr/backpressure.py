"""Spout backpressure with high and low byte marks, carried as a lease (decision D5). Pure.

A stream manager whose frames for a task pile up announces this to all, naming the culprit;
every stream manager clamps its local spouts while any announcement is valid. An announcement is a
lease: it is renewed each second and expires after three, so a dead announcer never stops the world.

It never flaps: after an episode a link rests before its next one may begin. In that time its senders
are held by credit alone (stmgr/links.py); a queue past twice the high mark ends the rest.
Pure: `now` is given, and what to announce is returned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from heronpy.proto import control_pb2

#: Announcements of other stream managers that are kept.
ACTIVE_MAX = 10_000
#: A link's next episode begins this long after its last one at the earliest: below one toggle a second.
REST_S = 2.0


@dataclass(slots=True)
class Episode:
    """One local link past the high mark."""

    number: int
    link: str
    task: int
    since: float
    queued_bytes: int


@dataclass(slots=True)
class Remote:
    """The announcement of another stream manager."""

    epoch: int
    episode: int
    expires: float
    culprits: list[Any] = field(default_factory=list)


class Backpressure:
    """What this stream manager announces and what others announced."""

    def __init__(self, high: int, low: int, lease_s: float, renew_s: float) -> None:
        self.high, self.low = high, low
        self.lease_s, self.renew_s = lease_s, renew_s
        self.local: dict[str, Episode] = {}
        self.remote: dict[str, Remote] = {}
        self.clamped = False
        self._episodes = 0
        #: Until when a link rests.
        self._rest: dict[str, float] = {}
        self._announced = False
        self._next_renewal = 0.0
        #: Seconds per culprit task that this stream manager has announced, finished episodes only.
        self.spent_s: dict[int, float] = {}
        #: Seconds that local spouts were clamped, finished clamps only.
        self.clamped_s = 0.0
        self._clamped_since = 0.0
        self.episodes_started = 0

    def observe(self, link: str, queued_bytes: int, top_task: Any, now: float) -> bool:
        """Look at a link's queue; `top_task()` names the culprit. True when the announcement changed."""
        episode = self.local.get(link)
        if episode is None:
            if queued_bytes <= self.high:
                return False
            if queued_bytes <= 2 * self.high and now < self._rest.get(link, 0.0):
                return False
            self._episodes += 1
            self.episodes_started += 1
            self.local[link] = Episode(self._episodes, link, top_task()[0], now, queued_bytes)
            return True
        episode.queued_bytes = queued_bytes
        if queued_bytes > self.low:
            return False
        self._close(episode, now)
        self._rest[link] = now + REST_S
        return True

    def forget(self, link: str, now: float) -> bool:
        """A link is gone for good."""
        self._rest.pop(link, None)
        episode = self.local.get(link)
        if episode is None:
            return False
        self._close(episode, now)
        return True

    def _close(self, episode: Episode, now: float) -> None:
        del self.local[episode.link]
        self.spent_s[episode.task] = self.spent_s.get(episode.task, 0.0) + now - episode.since

    def heard(self, message: control_pb2.Backpressure, now: float) -> None:
        """Take another stream manager's announcement; one of an older incarnation is ignored."""
        known = self.remote.get(message.stmgr_id)
        if known is not None and message.epoch < known.epoch:
            return
        if not message.on:
            self.remote.pop(message.stmgr_id, None)
        elif len(self.remote) < ACTIVE_MAX:
            # In this order the smaller of a number and NaN is the number.
            self.remote[message.stmgr_id] = Remote(
                message.epoch, message.episode, now + min(self.lease_s, message.lease_s), list(message.culprits)
            )

    def lost(self, stmgr_id: str) -> None:
        """A stream manager left the plan."""
        self.remote.pop(stmgr_id, None)

    def expire(self, now: float) -> None:
        """Drop announcements whose lease ran out."""
        for stmgr_id in [s for s, r in self.remote.items() if r.expires <= now]:
            del self.remote[stmgr_id]

    def clamp_changed(self, now: float) -> bool:
        """Must the local spouts be told? Reads and updates `clamped`."""
        clamped = bool(self.local or self.remote)
        if clamped == self.clamped:
            return False
        self.clamped = clamped
        if clamped:
            self._clamped_since = now
        else:
            self.clamped_s += now - self._clamped_since
        return True

    def announcement_due(self, now: float, changed: bool) -> bool | None:
        """True or False: announce on or off now; None: no announcement."""
        if self.local:
            if changed or not self._announced or now >= self._next_renewal:
                self._announced = True
                self._next_renewal = now + self.renew_s
                return True
            return None
        if self._announced:
            self._announced = False
            return False
        return None

    def next_deadline(self) -> float | None:
        """When `expire` or `announcement_due` has something to do."""
        times = [remote.expires for remote in self.remote.values()]
        if self._announced:
            times.append(self._next_renewal)
        return min(times, default=None)

    def clamped_until(self, now: float) -> float:
        """Seconds that local spouts were clamped, a running clamp included."""
        return self.clamped_s + (now - self._clamped_since if self.clamped else 0.0)

    def spent(self, now: float) -> dict[int, float]:
        """Seconds per culprit task, running episodes included."""
        total = dict(self.spent_s)
        for episode in self.local.values():
            total[episode.task] = total.get(episode.task, 0.0) + now - episode.since
        return total
