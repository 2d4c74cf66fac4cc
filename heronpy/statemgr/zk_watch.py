"""Watches on znodes that continue after each change, after an outage and in a new session.

ZooKeeper's watches fire once and end with the connection, so each event and each new connection
triggers another read, and a difference to the last one triggers a call. Invariants: only `add` waits for
ZooKeeper, and not for long; callbacks run one after another in kazoo's callback
thread; changes that come faster than the callback share a call.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, SessionExpiredError
from kazoo.protocol.states import Callback, EventType

from heronpy.statemgr.zk_session import Session

log = logging.getLogger("heronpy.statemgr.zookeeper")

_NEVER: Final = object()
"""The value of a watch before its first read."""


@dataclass(slots=True, eq=False)
class NodeWatch:
    """One watched node."""

    path: str
    callback: Callable[[str], None]
    place: _Place
    owner: Watches
    seen: object = _NEVER
    overdue: bool = False
    """The first read came so late that changes before it count."""
    queued: bool = False
    active: bool = True
    armed: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """End the watch: no call of the callback starts after this."""
        self.active = False
        self.owner.remove(self)


@dataclass(slots=True, eq=False)
class _Place:
    """A znode and its watches."""

    znode: str
    owner: Watches
    watches: list[NodeWatch] = field(default_factory=list)

    def on_event(self, event: Any) -> None:
        # The end of the connection is an event of type NONE; a new connection triggers a new read.
        if event.type != EventType.NONE and self.watches:
            self.owner.look(self)


class Watches:
    """All watches of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._mutex = threading.Lock()
        self._places: dict[str, _Place] = {}
        self._delivering = 0
        session.on_connected.append(self._on_connected)

    def add(self, path: str, znode: str, callback: Callable[[str], None]) -> NodeWatch:
        """Watch a znode; changes after the return are reported, even those while there is no connection."""
        with self._mutex:
            place = self._places.get(znode)
            if place is None:
                place = self._places[znode] = _Place(znode, self)
            watch = NodeWatch(path, callback, place, self)
            place.watches.append(watch)
        self.look(place)
        if not watch.armed.wait(self._session.patience()):
            with self._mutex:
                watch.overdue = watch.seen is _NEVER
        return watch

    def remove(self, watch: NodeWatch) -> None:
        """Remove a watch."""
        with self._mutex:
            if watch in watch.place.watches:
                watch.place.watches.remove(watch)
            if not watch.place.watches and self._places.get(watch.place.znode) is watch.place:
                del self._places[watch.place.znode]

    def close(self) -> None:
        """End all watches: no callback starts after this."""
        with self._mutex:
            for place in self._places.values():
                for watch in place.watches:
                    watch.active = False
            self._places.clear()

    def is_callback(self) -> bool:
        """Whether the caller is a callback."""
        return self._delivering == threading.get_ident()

    def look(self, place: _Place) -> None:
        """Request the current state of a znode and notification of its next change."""
        result = self._session.client.exists_async(place.znode, watch=place.on_event)
        result.rawlink(partial(self._looked, place))

    def _on_connected(self, fresh: bool) -> None:
        with self._mutex:
            places = list(self._places.values())
        for place in places:
            self.look(place)

    def _looked(self, place: _Place, result: Any) -> None:
        error = result.exception
        if error is not None:
            # The next connection triggers the next read.
            if not isinstance(error, (ConnectionLoss, SessionExpiredError, ConnectionClosedError)):
                log.error("cannot watch ZooKeeper node %s: %s", place.znode, error or type(error).__name__)
            return
        status = result.value
        now = (status.czxid, status.mzxid) if status is not None else None
        with self._mutex:
            changed = []
            for watch in place.watches:
                if watch.seen != now and (watch.overdue or watch.seen is not _NEVER) and not watch.queued:
                    watch.queued = True
                    changed.append(watch)
                watch.seen, watch.overdue = now, False
                watch.armed.set()
        for watch in changed:
            self._session.client.handler.dispatch_callback(Callback("watch", self._deliver, (watch,)))

    def _deliver(self, watch: NodeWatch) -> None:
        watch.queued = False
        if not watch.active:
            return
        self._delivering = threading.get_ident()
        try:
            watch.callback(watch.path)
        except Exception:
            log.exception("the callback that watches state node %r raised", watch.path)
        finally:
            self._delivering = 0
