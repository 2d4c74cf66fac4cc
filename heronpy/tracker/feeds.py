"""Live streams: one poll for all viewers of a topology, and none without viewers.

Bounded: `STREAMS_MAX` streams; a viewer has one message on its way, and is then brought to the newest state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from heronpy.common.errors import HeronError
from heronpy.proto import control_pb2
from heronpy.tracker import live
from heronpy.tracker.sources import ClusterSource, Watched
from heronpy.views.build_past import event_of
from heronpy.views.live import Gone, NewEvents, Snapshot
from heronpy.views.load import Tasks
from heronpy.views.past import Event

log = logging.getLogger("heronpy.tracker")

STREAMS_MAX = 64
#: Feeds that are kept for those who come back.
KEPT_MAX = 64
PING_S = 15.0
POLL_S, LIST_POLL_S = 2.0, 5.0
#: New events that a viewer gets at once; all are in `GET /events`.
EVENTS_MAX = 100

Make = Callable[[], Awaitable[Snapshot]]


class Feed:
    """The newest state of one view, renewed while somebody looks."""

    def __init__(self, make: Make, every_s: float, watched: Watched | None = None) -> None:
        self._make = make
        self._every_s = every_s
        self._watched = watched
        self._id = secrets.token_hex(4)
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._last_event: int | None = None
        #: The last message that was made: from which version to which.
        self._encoded: tuple[int, int, bytes] | None = None
        self.version = 0
        self.state: Snapshot | None = None
        self.viewers = 0

    @property
    def gone(self) -> str:
        """Why there will be no more news; empty while there may be."""
        return self._watched.gone if self._watched is not None else ""

    async def stream(self, last_id: str) -> AsyncIterator[bytes]:
        """Messages for one viewer, until it goes or the topology does."""
        self.viewers += 1
        try:
            if self._task is None:
                await self._renew_safely()  # the state is of the time when somebody looked last
            if self._task is None:
                self._task = asyncio.create_task(self._run())
            async for message in self._messages(last_id):
                yield message
        finally:
            self.viewers -= 1
            if not self.viewers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _messages(self, last_id: str) -> AsyncIterator[bytes]:
        seen = self.version if self.state is not None and last_id == f"{self._id}-{self.version}" else 0
        last_event = self._last_event
        before = self.state if seen else None
        while True:
            version, state = self.version, self.state
            if state is not None and version != seen:
                yield self._message(seen, before, version, state)
                seen, before = version, state
            new = [event for event in self._events if last_event is None or event.number > last_event]
            if new and last_event is not None:
                yield live.message("event", NewEvents(events=new), f"{self._id}-{seen}")
            last_event = self._last_event
            if self.gone:
                yield live.message("gone", Gone(text=self.gone), f"{self._id}-{seen}")
                return
            try:
                async with asyncio.timeout(PING_S), self._changed:
                    await self._changed.wait_for(lambda seen=seen: self.version != seen or bool(self.gone))  # type: ignore[misc]
            except TimeoutError:
                yield live.PING

    def _message(self, seen: int, before: Snapshot | None, version: int, state: Snapshot) -> bytes:
        if self._encoded is None or self._encoded[:2] != (seen, version):
            change = live.delta(before, state) if before is not None else None
            body: msgspec.Struct = state if change is None else change
            name = "snapshot" if change is None else "delta"
            self._encoded = (seen, version, live.message(name, body, f"{self._id}-{version}"))
        return self._encoded[2]

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self._renew_safely()
            if self.gone:
                async with self._changed:
                    self._changed.notify_all()
                return

    async def _renew_safely(self) -> None:
        try:
            await self._renew()
        except (HeronError, OSError) as error:
            log.debug("no news for a live stream: %s", error)
        except Exception:
            log.exception("a live stream could not be renewed")

    async def _renew(self) -> None:
        new = await self._make()
        events = await self._new_events()
        change = live.delta(self.state, new) if self.state is not None else None
        if change is not None and not change.fields and not change.tables and not events:
            return
        async with self._changed:
            self.state, self.version = new, self.version + 1
            self._events.extend(events)
            self._changed.notify_all()

    async def _new_events(self) -> list[Event]:
        reply = self._watched.reply if self._watched is not None else None
        if self._watched is None or reply is None or reply.last_event == self._last_event:
            return []
        known, newest = self._last_event, reply.last_event
        found: list[Event] = []
        if known is not None and newest > known:
            request = control_pb2.GetEvents(after=known, limit=EVENTS_MAX)
            found = [event_of(one) for one in (await self._watched.master.ask(request)).events]
        self._last_event = newest
        return found


class Feeds:
    """All feeds that somebody looks at."""

    def __init__(self) -> None:
        self._feeds: dict[tuple[str, ...], Feed] = {}

    @property
    def streams(self) -> int:
        """Viewers of all feeds."""
        return sum(feed.viewers for feed in self._feeds.values())

    def of_topology(self, cluster: ClusterSource, watched: Watched, level: str) -> Feed:
        """The feed of one topology; `level` is `component` or `tasks`."""

        known: Tasks | None = None

        async def make() -> Snapshot:
            nonlocal known
            await asyncio.gather(cluster.refresh(), watched.refresh())
            if level == "tasks":
                # Without an answer those that are known stay; the head says that nobody answers.
                with contextlib.suppress(HeronError):
                    known = await watched.tasks()
            return Snapshot(
                level=level,
                topology=watched.summary(),
                topologies=None,
                plan=watched.known_plan(),
                load=watched.load(),
                tasks=known,
                silent_s=watched.silent_s,
            )

        # What was seen of it while it ran is another feed.
        kind = "ended" if watched.ended_at is not None else "topology"
        return self._kept((kind, level, watched.record.topology_id), lambda: Feed(make, POLL_S, watched))

    def of_list(self, clusters: list[ClusterSource], where: str, sees: Callable[[Watched], bool]) -> Feed:
        """The feed of all topologies that are within `where`, by place and name."""

        async def make() -> Snapshot:
            await asyncio.gather(*(cluster.refresh() for cluster in clusters))
            mine = [one for cluster in clusters for one in cluster.topologies.values() if sees(one)]
            await asyncio.gather(*(one.refresh() for one in mine))
            found = [one.summary() for one in mine]
            found.sort(key=lambda one: (one.cluster, one.role, one.environ, one.name))
            return Snapshot(
                level="list", topology=None, topologies=found, plan=None, load=None, tasks=None, silent_s=None
            )

        return self._kept(("list", where), lambda: Feed(make, LIST_POLL_S))

    def _kept(self, key: tuple[str, ...], make: Callable[[], Feed]) -> Feed:
        if len(self._feeds) >= KEPT_MAX:
            for old in [one for one, feed in self._feeds.items() if not feed.viewers and one != key]:
                del self._feeds[old]
        return self._feeds.setdefault(key, make())
