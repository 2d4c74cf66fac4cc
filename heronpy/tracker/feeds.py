"""Live streams: one poll for all viewers of a topology, and no poll without viewers.

Limits: A client has at most `STREAMS_MAX` streams (see `guard`). A viewer has one message in flight, and
then gets the newest state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from heronpy.common.errors import HeronError
from heronpy.proto import control_pb2
from heronpy.tracker import live
from heronpy.tracker.sources import ClusterSource, Watched
from heronpy.views.live import Gone, NewEvents, Snapshot
from heronpy.views.load import Tasks
from heronpy.views.past import Event, Events
from heronpy.views.quotes import without_values

log = logging.getLogger("heronpy.tracker")

#: Maximum number of feeds that are kept for returning viewers.
KEPT_MAX = 64
PING_S = 15.0
POLL_S, LIST_POLL_S = 2.0, 5.0
#: A poll comes earlier by up to twice this share of its interval, at random.
JITTER = 0.1
#: Interval of checks for a significant change, which a page shows without waiting for the next poll.
GLANCE_S = 1.0
#: Maximum age of the figures for such a check. The figures may come from a request for another viewer, such as the
#: list.
GLANCE_FRESH_S = 0.05
#: Pause between the requests for the figures of the list.
APART_S = 0.01
#: Number of rows of the list that are made before the loop does other work.
TURN = 10
#: A state that was not renewed for this long is hidden until it is renewed.
RECENT_S = 10.0
#: Maximum number of new events in one message; `GET /events` returns all events.
EVENTS_MAX = 100

Make = Callable[[], Awaitable[Snapshot]]
#: Whether the new state differs significantly from the shown state.
Glance = Callable[[Snapshot], Awaitable[bool]]


class Feed:
    """The newest state of one view, renewed while it has viewers."""

    def __init__(
        self, make: Make, every_s: float, watched: Watched | None = None, glance: Glance | None = None
    ) -> None:
        self._make = make
        self._every_s = every_s
        self._glance = glance
        self._watched = watched
        self._id = secrets.token_hex(4)
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._last_event: int | None = None
        #: The last encoded message with its versions, for viewers with and without the right to see values.
        self._encoded: dict[bool, tuple[int, int, bytes]] = {}
        self._renewed_at = float("-inf")
        self.version = 0
        self.state: Snapshot | None = None
        self.viewers = 0
        #: Number of viewers by asker.
        self.askers: Counter[str] = Counter()

    @property
    def gone(self) -> str:
        """Why the feed has ended; empty while it continues."""
        return self._watched.gone if self._watched is not None else ""

    async def stream(self, last_id: str, who: str = "", *, values: bool) -> AsyncIterator[bytes]:
        """Yield messages until the viewer or the topology is gone. If `values`, users' values are shown."""
        self.viewers += 1
        self.askers[who] += 1
        try:
            # The state dates from the time of the last viewer.
            recent = self.state is not None and time.monotonic() - self._renewed_at < RECENT_S
            if self._task is None and not recent:
                await self._renew_safely()
            if self._task is None:
                self._task = asyncio.create_task(self._run(at_once=recent))
            async for message in self._messages(last_id, values):
                yield message
        finally:
            self.viewers -= 1
            self.askers[who] -= 1
            if not self.viewers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _messages(self, last_id: str, values: bool) -> AsyncIterator[bytes]:
        seen = self.version if self.state is not None and last_id == f"{self._id}-{self.version}" else 0
        last_event = self._last_event
        before = self.state if seen else None
        while True:
            version, state = self.version, self.state
            if state is not None and version != seen:
                yield self._message(seen, before, version, state, values)
                seen, before = version, state
            new = [event for event in self._events if last_event is None or event.number > last_event]
            if new and last_event is not None:
                told = NewEvents(events=new)
                yield live.message("event", told if values else without_values(told), f"{self._id}-{seen}")
            last_event = self._last_event
            if self.gone:
                yield live.message("gone", Gone(text=self.gone), f"{self._id}-{seen}")
                return
            try:
                async with asyncio.timeout(PING_S), self._changed:
                    await self._changed.wait_for(lambda seen=seen: self.version != seen or bool(self.gone))  # type: ignore[misc]
            except TimeoutError:
                yield live.PING

    def _message(self, seen: int, before: Snapshot | None, version: int, state: Snapshot, values: bool) -> bytes:
        known = self._encoded.get(values)
        if known is not None and known[:2] == (seen, version):
            return known[2]
        if not values:
            before, state = without_values(before), without_values(state)
        change = live.delta(before, state) if before is not None else None
        body: msgspec.Struct = state if change is None else change
        name = "snapshot" if change is None else "delta"
        encoded = live.message(name, body, f"{self._id}-{version}")
        self._encoded[values] = (seen, version, encoded)
        return encoded

    async def _run(self, at_once: bool) -> None:
        while True:
            if not at_once:
                await self._pause()
            at_once = False
            await self._renew_safely()
            if self.gone:
                async with self._changed:
                    self._changed.notify_all()
                return

    async def _pause(self) -> None:
        """Wait until the next poll is due, or until a significant change.

        The interval varies: feeds often begin together, and simultaneous polls would delay other requests.
        """
        due = time.monotonic() + self._every_s * random.uniform(1 - 2 * JITTER, 1)
        while (left_s := due - time.monotonic()) > 0:
            if self._glance is None or left_s < 1.5 * GLANCE_S:
                await asyncio.sleep(left_s)
                return
            await asyncio.sleep(GLANCE_S)
            with contextlib.suppress(HeronError, OSError):
                if self.state is not None and await self._glance(self.state):
                    return

    async def _renew_safely(self) -> None:
        try:
            await self._renew()
        except (HeronError, OSError) as error:
            log.debug("no update for a live stream: %s", error)
        except Exception:
            log.exception("cannot update a live stream")

    async def _renew(self) -> None:
        new = live.settled(self.state, await self._make())
        await asyncio.sleep(0)  # both take milliseconds for hundreds of tasks, so let waiting work run first
        self._renewed_at = time.monotonic()
        events = await self._new_events()
        change = live.delta(self.state, new) if self.state is not None else None
        if change is not None and not change.fields and not change.tables and not events:
            return
        if change is not None:
            # Clients that have seen the last state get only the change.
            number = self.version + 1
            self._encoded[True] = number - 1, number, live.message("delta", change, f"{self._id}-{number}")
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
            found = (await self._watched.master.look(request, Events)).events
        self._last_event = newest
        return found


async def _refresh_in(seconds: float, watched: Watched) -> None:
    await asyncio.sleep(seconds)
    await watched.refresh()


class Feeds:
    """All feeds with viewers."""

    def __init__(self) -> None:
        self._feeds: dict[tuple[str, ...], Feed] = {}

    @property
    def streams(self) -> int:
        """The number of streams, over all feeds."""
        return sum(feed.viewers for feed in self._feeds.values())

    def streams_of(self, who: str) -> int:
        """Return the number of streams that belong to this client, over all feeds."""
        return sum(feed.askers[who] for feed in self._feeds.values())

    def of_topology(self, cluster: ClusterSource, watched: Watched, level: str) -> Feed:
        """Return the feed of one topology; `level` is `component` or `tasks`."""

        known: Tasks | None = None

        async def ask_tasks() -> None:
            nonlocal known
            if level == "tasks" and watched.answers:
                # Without an answer, the rows are kept, and the head shows that the topology master does not answer.
                with contextlib.suppress(HeronError):
                    known = await watched.tasks()

        async def glance(shown: Snapshot) -> bool:
            await watched.refresh(GLANCE_FRESH_S)
            load = watched.load()
            return load is not None and (shown.load is None or live.stands_out(shown.load, load))

        async def make() -> Snapshot:
            if not watched.answers:
                await watched.refresh(GLANCE_FRESH_S)
            await asyncio.gather(cluster.refresh(), ask_tasks())
            # This request comes last, so that the figures for most viewers do not wait for it.
            await watched.refresh(GLANCE_FRESH_S)
            return Snapshot(
                level=level,
                topology=watched.summary(),
                topologies=None,
                plan=watched.known_plan(),
                load=watched.load(),
                tasks=known,
                silent_s=watched.silent_s,
            )

        # The state of the topology while it was running belongs to another feed.
        kind = "ended" if watched.ended_at is not None else "topology"
        return self._kept((kind, level, watched.record.topology_id), lambda: Feed(make, POLL_S, watched, glance))

    def of_list(self, clusters: list[ClusterSource]) -> Feed:
        """Return the feed of the list of all topologies."""

        shown = False

        async def make() -> Snapshot:
            nonlocal shown
            await asyncio.gather(*(cluster.refresh() for cluster in clusters))
            mine = [one for cluster in clusters for one in cluster.topologies.values()]
            # Answers that arrive together delay all other pages; only the first viewer must not wait.
            apart_s = min(APART_S, LIST_POLL_S / 2 / max(len(mine), 1)) if shown else 0.0
            await asyncio.gather(*(_refresh_in(number * apart_s, one) for number, one in enumerate(mine)))
            shown = True
            found = []
            for number, one in enumerate(mine):
                found.append(one.summary())
                if number % TURN == TURN - 1:
                    await asyncio.sleep(0)
            found.sort(key=lambda one: (one.cluster, one.role, one.environ, one.name))
            return Snapshot(
                level="list", topology=None, topologies=found, plan=None, load=None, tasks=None, silent_s=None
            )

        return self._kept(("list",), lambda: Feed(make, LIST_POLL_S))

    def _kept(self, key: tuple[str, ...], make: Callable[[], Feed]) -> Feed:
        if len(self._feeds) >= KEPT_MAX:
            for old in [one for one, feed in self._feeds.items() if not feed.viewers and one != key]:
                del self._feeds[old]
        return self._feeds.setdefault(key, make())
