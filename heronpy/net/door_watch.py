"""Watches at the scheduler's door, and the values of the watched nodes.

The door counts the changes of a node since the session watches it, and says the count with each change and in each
answer to a sign of life, so a change whose message was lost is noticed then. In a new session each watch fires once,
because nobody knows what happened in between.

A watched node is read once after each change: until the next one its value is in memory. Like a read from a ZooKeeper
server, that one may be behind for as long as a change needs to get here, and for a session at most when the connection
is lost; any write of this process to the node, and any refusal of one, makes it read anew.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Final

from heronpy.net.door_link import Call

log = logging.getLogger("heronpy.net")

Value = tuple[bytes, int] | None
_UNREAD: Final = object()


@dataclass(slots=True, eq=False)
class DoorWatch:
    """One watch of a node."""

    path: str
    callback: Callable[[str], None]
    owner: Watches
    active: bool = True
    #: Its next call is on the way, which also tells of what happens until then.
    queued: bool = False

    def cancel(self) -> None:
        """End the watch: no call of the callback starts after this."""
        self.active = False
        self.owner.remove(self)


@dataclass(slots=True, eq=False)
class _Place:
    watches: list[DoorWatch] = field(default_factory=list)
    #: The door reports its changes.
    armed: bool = False
    count: int = 0
    #: Grows with each change and each write.
    stamp: int = 0
    value: object = _UNREAD


class Watches:
    """All watches of a state manager; callbacks run one after another in a thread of theirs."""

    def __init__(self, unwatch: Callable[[str], Call | None]) -> None:
        self._unwatch = unwatch
        self._mutex = threading.Lock()
        self._places: dict[str, _Place] = {}
        #: Nodes that nobody watches any more, until the door has answered to that.
        self._leaving: dict[str, Call] = {}
        #: At most one entry per watch, and the jobs of new sessions.
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="state-watch", daemon=True)
        self._thread.start()

    # ---- watches ------------------------------------------------------------------------------
    def add(self, path: str, callback: Callable[[str], None]) -> tuple[DoorWatch, bool, Call | None]:
        """A watch; whether the door must be asked for it, and what must have been answered before that."""
        watch = DoorWatch(path, callback, self)
        with self._mutex:
            place = self._places.setdefault(path, _Place())
            place.watches.append(watch)
            return watch, not place.armed, self._leaving.pop(path, None)

    def arming(self, path: str) -> int:
        """The door is about to be asked to report the changes of a node: the stamp for `armed`."""
        with self._mutex:
            place = self._places.get(path)
            return place.stamp if place is not None else -1

    def armed(self, path: str, stamp: int, value: Value | EllipsisType) -> None:
        """The door reports the changes of a node from now on, when it had a value, unless that is `...`."""
        with self._mutex:
            place = self._places.get(path)
            if place is None:
                return
            place.armed = True
            if place.stamp == stamp and not isinstance(value, EllipsisType):
                place.value = value

    def remove(self, watch: DoorWatch) -> None:
        """Remove a watch; with the last one of a node the door is told."""
        with self._mutex:
            place = self._places.get(watch.path)
            if place is None or watch not in place.watches:
                return
            place.watches.remove(watch)
            if place.watches:
                return
            del self._places[watch.path]
            leaving = self._unwatch(watch.path) if place.armed else None
            self._leaving = {path: call for path, call in self._leaving.items() if not call.done.is_set()}
            if leaving is not None:
                self._leaving[watch.path] = leaving

    def changed(self, path: str, count: int) -> None:
        """The door says how often a node has changed."""
        with self._mutex:
            place = self._places.get(path)
            if place is None or count <= place.count:
                return
            place.count = count
            fired = self._queue_calls(place)
        self._put(fired)

    def renew(self) -> list[str]:
        """A new session: the paths for which the door must be asked again."""
        with self._mutex:
            self._leaving.clear()
            for place in self._places.values():
                place.armed, place.count, place.value = False, 0, _UNREAD
                place.stamp += 1
            return list(self._places)

    def fire(self, path: str) -> None:
        """Call all watches of a node."""
        with self._mutex:
            place = self._places.get(path)
            fired = self._queue_calls(place) if place is not None else []
        self._put(fired)

    def later(self, job: Callable[[], None]) -> None:
        """Run something in the thread of the callbacks."""
        self._queue.put(job)

    def is_callback(self) -> bool:
        """Whether the caller is a callback."""
        return threading.current_thread() is self._thread

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
        """A value was read after `known` gave the stamp."""
        with self._mutex:
            place = self._places.get(path)
            if place is not None and place.armed and place.stamp == stamp:
                place.value = value

    def forget(self, path: str) -> None:
        """Read the node anew next time."""
        with self._mutex:
            place = self._places.get(path)
            if place is not None:
                place.value = _UNREAD
                place.stamp += 1

    # ---- callbacks ----------------------------------------------------------------------------
    def _queue_calls(self, place: _Place) -> list[DoorWatch]:
        """The watches to call; with the mutex held."""
        place.value = _UNREAD
        place.stamp += 1
        fired = [watch for watch in place.watches if not watch.queued]
        for watch in fired:
            watch.queued = True
        return fired

    def _put(self, fired: list[DoorWatch]) -> None:
        for watch in fired:
            self._queue.put(lambda watch=watch: _deliver(watch))  # type: ignore[misc]

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("a change of the state was not handled")


def _deliver(watch: DoorWatch) -> None:
    watch.queued = False
    if not watch.active:
        return
    try:
        watch.callback(watch.path)
    except Exception:
        log.exception("the callback that watches state node %r raised", watch.path)
