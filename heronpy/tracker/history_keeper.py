"""Keeps the history of the topologies of a tracker, while it runs: one look each second, whoever watches.

A topology is asked often while it is young or about to end, so that the last answers of a short one are known, and
seldom later. What is kept of each topology is what its routes answer. A topology that came and went between two looks
is found by what its working folder keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from heronpy.clusters.ended import kept_files, read_kept
from heronpy.common.errors import HeronError
from heronpy.common.folders import heron_home
from heronpy.common.states import lifecycle_name
from heronpy.health.findings import Verdict
from heronpy.proto import control_pb2
from heronpy.tmaster.minutes import MINUTE_S
from heronpy.tracker import history_ended, reading, reading_files
from heronpy.tracker.calls import Call
from heronpy.tracker.guard import Asker, Scope
from heronpy.tracker.history import ASKED_MAX, KEPT, Row, rows_of
from heronpy.tracker.history_ended import LOAD, SAMPLES, TOPOLOGY
from heronpy.tracker.history_store import Run, Store
from heronpy.tracker.problems import Problem
from heronpy.tracker.sources import ClusterSource, Watched
from heronpy.tracker.tracker import Tracker
from heronpy.views.load import Load
from heronpy.views.overview import Topology
from heronpy.views.past import event_of

log = logging.getLogger("heronpy.tracker")

LOOK_S = 1.0
#: So long a topology is young.
YOUNG_S = 600.0
#: Distance of questions to a topology that is young or changing, and to others.
SOON_S, LATER_S = 1.0, 10.0
#: The same of what its routes answer.
DOCUMENTS_SOON_S, DOCUMENTS_LATER_S = 5.0, 60.0
FOLDERS_S, TIDY_S = 10.0, 600.0
#: So long after a change towards its end a topology is asked for everything each time.
ENDING_S = 60.0
EVENTS_AT_ONCE = 1000
#: A minute that is not there yet is asked for again after this time.
MINUTES_AGAIN_S = 5.0
#: Topologies that are asked at the same time.
ASKED_AT_ONCE = 16
#: What runs is figures of; the last ones of a topology that has come to its end are all 0.
_ENDING = ("FINISHING", "FINISHED")
_STEADY = ("RUNNING", "PAUSED", "DEGRADED", "FINISHED", "FAILED")

#: By the kind of the document.
DOCUMENTS: dict[str, Callable[[Call], Awaitable[msgspec.Struct]]] = {
    "plan": reading.plan,
    "tasks": reading.tasks,
    "exceptions": reading.exceptions,
    "checkpoints": reading.checkpoints,
    "batches": reading.batches,
    "units": reading.units,
}
_KEEPER = Asker("tracker", Scope.ALL)


@dataclass(slots=True)
class _Kept:
    """A topology that runs, and what was kept of it when."""

    watched: Watched
    asked_at: float = float("-inf")
    documents_at: float = float("-inf")
    state: str = ""
    last_event: int = -1
    #: The minute after the last that is kept; -1: not known yet.
    next_minute: int = -1
    minutes_at: float = float("-inf")
    ending_at: float = float("-inf")
    #: The last figures before it came to its end.
    load: Load | None = None
    #: With the last finding that was more than that it changes, or ends.
    said: Topology | None = None
    has_config: bool = False
    under_way: asyncio.Task[None] | None = None


class Keeper:
    """See the module."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._history = tracker.history
        self._kept: dict[str, _Kept] = {}
        self._some = asyncio.Semaphore(ASKED_AT_ONCE)
        #: By cluster.
        self._seen_files: dict[str, frozenset[str]] = {}
        #: Clusters that have been read at least once.
        self._followed: set[str] = set()
        self._folders_at = self._tidy_at = float("-inf")

    @property
    def busy(self) -> bool:
        """Whether a topology runs whose history is kept."""
        return any(one.watched.silent_s == 0.0 for one in self._kept.values())

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self.look()
            except (HeronError, OSError) as error:
                log.warning("the history misses something: %s", error)
            except Exception:
                log.exception("the history misses something")
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Ask those that are due, and note who has ended. Does not wait for slow answers."""
        clusters = list(self._tracker.clusters.values())
        await asyncio.gather(*(cluster.refresh() for cluster in clusters))
        for cluster in clusters:
            if not cluster.trouble:
                await self._follow(cluster)
        now = time.monotonic()
        for one in self._kept.values():
            if one.under_way is None or one.under_way.done():
                soon = _age_s(one) < YOUNG_S or one.state not in _STEADY or now - one.ending_at < ENDING_S
                if now - one.asked_at >= (SOON_S if soon else LATER_S):
                    one.asked_at = now
                    one.under_way = asyncio.create_task(self._observe(one))
        if now - self._folders_at >= FOLDERS_S:
            self._folders_at = now
            for cluster in clusters:
                await self._find_ended(cluster)
        if now - self._tidy_at >= (TIDY_S if not self._history.store.trouble else MINUTE_S):
            self._tidy_at = now
            await self._history.do(lambda store: store.tidy(time.time()))

    async def close(self) -> None:
        """Keep what only this process knows."""
        under_way = [one.under_way for one in self._kept.values() if one.under_way is not None]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        for key, one in self._kept.items():
            await self._put_samples(key, one)

    # ---- who is there -------------------------------------------------------------------------

    async def _follow(self, cluster: ClusterSource) -> None:
        here = {one.record.topology_id: one for one in cluster.topologies.values()}
        for key, watched in here.items():
            if key not in self._kept:
                self._kept[key] = _Kept(watched)
                await self._see(watched)
        known = {key for key, one in self._kept.items() if one.watched.record.cluster == cluster.name}
        for key in known - here.keys():
            gone = self._kept.pop(key)
            if gone.under_way is not None:
                gone.under_way.cancel()
            await self._put_samples(key, gone)
            if gone.said is not None:
                await self._history.do(partial(_put_said, key, gone.said))
        if known - here.keys() or cluster.name not in self._followed:
            self._followed.add(cluster.name)
            await self._history.do(partial(_finish_others, cluster.name, frozenset(here)))

    async def _see(self, watched: Watched) -> None:
        record = watched.record
        run = Run(record.topology_id, record.cluster, record.topology, record.SerializeToString(), time.time(), None)
        await self._history.do(lambda store: store.see(run))

    async def _put_samples(self, key: str, one: _Kept) -> None:
        found = one.watched.samples.timeline()
        if len(found.times) > 1 and found.times[-1] - one.watched.record.submitted_at < YOUNG_S + MINUTE_S:
            body = msgspec.json.encode(found)
            await self._history.do(lambda store: store.put(key, [(SAMPLES, body)]))

    async def _find_ended(self, cluster: ClusterSource) -> None:
        """Topologies that no look has seen, by what their working folders keep."""
        here = {one.record.topology_id for one in cluster.topologies.values()}
        paths = await asyncio.to_thread(lambda: list(kept_files(heron_home(), cluster.name)))
        seen = self._seen_files.get(cluster.name, frozenset())
        self._seen_files[cluster.name] = frozenset(path.name for path in paths)
        new = [path for path in paths if path.name not in seen and path.name not in here]
        if not new:
            return
        known = {run.id for run in await self._history.do(lambda store: store.runs())}
        for path in new:
            kept = await asyncio.to_thread(read_kept, path) if path.name not in known else None
            if kept is not None and kept.record.cluster == cluster.name:
                record = kept.record
                run = Run(path.name, cluster.name, record.topology, record.SerializeToString(), kept.ended_at, None)
                await self._history.do(partial(_take_in, run))

    # ---- one topology -------------------------------------------------------------------------

    async def _observe(self, one: _Kept) -> None:
        watched = one.watched
        try:
            async with self._some:
                await watched.refresh(0.5 * SOON_S)
                reply = watched.reply
                if reply is None or watched.silent_s != 0.0:
                    return
                load, state = watched.load(), lifecycle_name(reply.lifecycle)
                shown = watched.summary()
                if shown.verdict not in (None, Verdict.CHANGING.value):
                    one.said = shown
                if load is not None and (one.load is None or state not in _ENDING):
                    one.load = load
                with contextlib.suppress(HeronError):
                    await self._events(one, reply.last_event)
                with contextlib.suppress(HeronError):
                    await self._minutes(one)
                if state != one.state and state in _ENDING:
                    one.ending_at = time.monotonic()
                every_s = DOCUMENTS_SOON_S if _age_s(one) < YOUNG_S else DOCUMENTS_LATER_S
                if state in _ENDING and time.monotonic() - one.ending_at < ENDING_S:
                    every_s = 0.0  # the last answers may be the next
                if state != one.state or time.monotonic() - one.documents_at >= every_s:
                    one.state, one.documents_at = state, time.monotonic()
                    await self._documents(one)
        except (HeronError, OSError) as error:
            log.debug("nothing is kept of %s now: %s", watched.name, error)
        except Exception:
            log.exception("the history of %s misses something", watched.name)

    async def _events(self, one: _Kept, newest: int) -> None:
        key = one.watched.record.topology_id
        if one.last_event < 0:
            one.last_event = await self._history.do(lambda store: store.last_event(key))
        if newest <= one.last_event:
            return
        request = control_pb2.GetEvents(after=one.last_event, limit=EVENTS_AT_ONCE)
        events = (await one.watched.master.ask(request)).events
        if await self._history.do(lambda store: store.add_events(key, map(event_of, events))):
            one.last_event = newest

    async def _minutes(self, one: _Kept) -> None:
        """The minutes since the last one: up to a day after a long absence."""
        key, now = one.watched.record.topology_id, int(time.time() // MINUTE_S)
        if one.next_minute < 0:
            span = await self._history.do(lambda store: store.span(key))
            one.next_minute = span[1] if span is not None else 0
        # The last whole minute is there a few seconds after its end.
        if one.next_minute >= now or time.monotonic() - one.minutes_at < MINUTES_AGAIN_S:
            return
        one.minutes_at, first = time.monotonic(), max(one.next_minute, now - KEPT)
        if now - first > 2:
            since = (await one.watched.master.ask(control_pb2.GetTimeline(names=["tasks"], points=1))).known_since
            first = max(first, int(since // MINUTE_S)) if since else now
        while first < now:
            end = min(first + ASKED_MAX, now)
            request = control_pb2.GetTimeline(since=first * MINUTE_S, until=end * MINUTE_S)
            rows = rows_of(await one.watched.master.ask(request))
            first = end
            if not rows:
                continue
            kept = await self._history.do(partial(_add_minutes, key, rows))
            if kept:
                one.next_minute = rows[-1].number + 1

    async def _documents(self, one: _Kept) -> None:
        watched = one.watched
        record = watched.record
        source = self._tracker.clusters[record.cluster]
        query = {"component": None, "task": 0}
        call = Call(self._tracker, _KEEPER, {}, query, {}, cluster=source, topology=watched)
        wanted = dict(DOCUMENTS)
        if not one.has_config:
            wanted["config"] = reading_files.config
        answers = await asyncio.gather(*(ask(call) for ask in wanted.values()), return_exceptions=True)
        found: dict[str, msgspec.Struct] = {TOPOLOGY: history_ended.said_last(watched.summary(), one.said)}
        for kind, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, msgspec.Struct):
                found[kind] = answer
            elif not isinstance(answer, HeronError | Problem):
                log.error("the %s of %s cannot be kept", kind, watched.name, exc_info=answer)
        if one.load is not None:
            found[LOAD] = one.load
        one.has_config = one.has_config or "config" in found
        bodies = [(kind, msgspec.json.encode(document)) for kind, document in found.items()]
        await self._see(watched)
        await self._history.do(lambda store: store.put(record.topology_id, bodies))


def _finish_others(cluster: str, here: frozenset[str], store: Store) -> None:
    """Note the end of those that are not there any more."""
    for run in store.runs():
        if run.ended_at is None and run.cluster == cluster and run.id not in here:
            history_ended.finish(store, run, time.time())


def _put_said(key: str, said: Topology, store: Store) -> None:
    """The last finding, which may be newer than what was kept."""
    known = history_ended.decoded(store.document(key, TOPOLOGY), Topology)
    if known is not None and known.ended_at is None:
        store.put(key, [(TOPOLOGY, msgspec.json.encode(history_ended.said_last(known, said)))])


def _take_in(run: Run, store: Store) -> None:
    store.see(run)
    history_ended.finish(store, run, time.time())


def _add_minutes(key: str, rows: list[Row], store: Store) -> bool:
    return store.add_minutes(key, rows)


def _age_s(one: _Kept) -> float:
    return time.time() - one.watched.record.submitted_at
