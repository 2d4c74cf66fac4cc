"""Watches at the scheduler's control endpoint, and the values of the watched nodes.

The endpoint counts the changes to a watched node. It sends the count with each change and in each answer to a
keep-alive, so that the client notices a lost message. After a session is reopened, each watch fires as soon as the
endpoint reports changes again, because changes in between are unknown.

A watched node is read once after each change; until the next change its value is kept in memory. As with a read from a
ZooKeeper server, this value may be outdated for as long as the message about a change takes, and for at most a session
timeout if the connection is lost. After any write by this process to the node, whether successful or refused, the node
is read again.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from heronpy.proto import endpoint_pb2

log = logging.getLogger("heronpy.net")

Value = tuple[bytes, int] | None
_UNREAD: Final = object()


@dataclass(slots=True, eq=False)
class EndpointWatch:
    """One watch of a node."""

    path: str
    callback: Callable[[str], None]
    owner: Watches
    active: bool = True
    #: Whether the next call is scheduled; it also reports all changes until then.
    queued: bool = False

    def cancel(self) -> None:
        """End the watch: no call of the callback starts after this."""
        self.active = False
        self.owner.remove(self)


@dataclass(slots=True, eq=False)
class _Place:
    watches: list[EndpointWatch] = field(default_factory=list)
    #: Whether the endpoint reports the node's changes, and whether this was requested.
    armed: bool = False
    asked: bool = False
    count: int = 0
    #: Grows with each change and each write.
    stamp: int = 0
    value: object = _UNREAD


class Watches:
    """All watches of a state manager; callbacks run one after another in their own thread."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        #: Includes nodes that are no longer watched, because the endpoint reports their changes until the session ends.
        self._places: dict[str, _Place] = {}
        #: The watches whose callbacks have to be called; at most one entry per watch.
        self._queue: queue.SimpleQueue[EndpointWatch | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    # ---- watches ------------------------------------------------------------------------------
    def add(self, path: str, callback: Callable[[str], None]) -> tuple[EndpointWatch, bool]:
        """Add a watch; returns it, and whether the endpoint already reports the changes to its node."""
        watch = EndpointWatch(path, callback, self)
        with self._mutex:
            place = self._places.setdefault(path, _Place())
            place.watches.append(watch)
            return watch, place.armed

    def stamp(self, path: str) -> int:
        """A stamp to pass to `armed` and `learned`; call this before sending the request to the endpoint."""
        with self._mutex:
            place = self._places.get(path)
            return place.stamp if place is not None else -1

    def unasked(self) -> list[tuple[str, int]]:
        """The nodes whose watches must be requested from the endpoint now, with their stamps; each is returned once."""
        with self._mutex:
            found = [(path, one) for path, one in self._places.items() if not one.armed and not one.asked]
            for _, place in found:
                place.asked = True
            return [(path, place.stamp) for path, place in found]

    def armed(self, path: str, stamp: int, answer: endpoint_pb2.StateAnswer, late: bool = False) -> None:
        """Record that the endpoint now reports changes to a node; if `late`, earlier changes may have been missed."""
        with self._mutex:
            place = self._places.get(path)
            if place is None:
                return
            place.asked = False
            if answer.error:
                return
            place.armed = True
            place.count = max(place.count, max((seen.count for seen in answer.seen), default=0))
            if place.stamp == stamp and not answer.unread:
                place.value = (answer.data, answer.number) if answer.found else None
            fired = self._changed(place) if late else []
        self._put(fired)

    def remove(self, watch: EndpointWatch) -> None:
        with self._mutex:
            place = self._places.get(watch.path)
            if place is not None and watch in place.watches:
                place.watches.remove(watch)

    def changed(self, path: str, count: int) -> None:
        """Record the endpoint's count of changes to a node."""
        with self._mutex:
            place = self._places.get(path)
            if place is None or count <= place.count:
                return
            place.count = count
            fired = self._changed(place)
        self._put(fired)

    def renew(self) -> None:
        """Mark all watches as not set, because the session was reopened."""
        with self._mutex:
            self._places = {path: place for path, place in self._places.items() if place.watches}
            for place in self._places.values():
                place.armed, place.asked, place.count, place.value = False, False, 0, _UNREAD
                place.stamp += 1

    def close(self) -> None:
        """End all watches: no callback starts after this."""
        with self._mutex:
            for place in self._places.values():
                for watch in place.watches:
                    watch.active = False
            self._places.clear()
        self._queue.put(None)

    # ---- values -------------------------------------------------------------------------------
    def known(self, path: str) -> tuple[bool, Value, int]:
        """Whether the value of a node is in memory, the value, and the stamp for `learned`."""
        with self._mutex:
            place = self._places.get(path)
            if place is None or not place.armed:
                return False, None, -1
            if place.value is _UNREAD:
                return False, None, place.stamp
            return True, place.value, place.stamp  # type: ignore[return-value]

    def learned(self, path: str, value: Value, stamp: int) -> None:
        """Store a value that was read after `known` returned the stamp."""
        with self._mutex:
            place = self._places.get(path)
            if place is not None and place.armed and place.stamp == stamp:
                place.value = value

    def forget(self, path: str) -> None:
        """Drop the value of a node from memory, so that it is read again."""
        with self._mutex:
            place = self._places.get(path)
            if place is not None:
                place.value = _UNREAD
                place.stamp += 1

    # ---- callbacks ----------------------------------------------------------------------------
    def _changed(self, place: _Place) -> list[EndpointWatch]:
        """The watches to call; call this with the mutex held."""
        place.value = _UNREAD
        place.stamp += 1
        fired = [watch for watch in place.watches if not watch.queued]
        for watch in fired:
            watch.queued = True
        return fired

    def _put(self, fired: list[EndpointWatch]) -> None:
        for watch in fired:
            self._queue.put(watch)
        with self._mutex:
            if fired and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="state-watch", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while (watch := self._queue.get()) is not None:
            watch.queued = False
            if not watch.active:
                continue
            try:
                watch.callback(watch.path)
            except Exception:
                log.exception("the callback that watches state node %r raised an exception", watch.path)
