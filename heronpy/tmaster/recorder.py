"""Persists totals, counts, events and the last minutes for the next topology master, in the background.

The last answers serve requests after the topology has ended. They are written when the topology ends or fails, after
exceptions, and while the topology processes work units.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message
from msgspec import Struct

from heronpy.common.errors import FencedError, HeronError, StateError
from heronpy.metrics.cache import MetricsCache
from heronpy.proto import control_pb2
from heronpy.tmaster.events import Node
from heronpy.tmaster.last_answers import LastAnswers
from heronpy.tmaster.minutes import Minutes
from heronpy.tmaster.shared_state import SharedState
from heronpy.tmaster.store import Store, TopologyRemovedError

log = logging.getLogger("heronpy.tmaster")
M = TypeVar("M", control_pb2.StatusReply, control_pb2.MetricsReply)

#: Minimum pauses in seconds after a write of totals or events, after a write of another record, and after a failed
#: write.
SOON_PAUSE_S, OTHERS_PAUSE_S, RETRY_S = 1.0, 5.0, 10.0
#: Interval at which growing counts are written, in addition to the writes before they are shown. Tasks report their
#: counts again unless they die together with the topology master.
GROWTH_PAUSE_S = 30.0
#: Maximum share of the loop's time for building records.
_SHARE = 1 / 200
#: Seconds for which the end of the process may wait for the last write.
LAST_WRITE_S = 1.0
#: Seconds for which an answer may wait until its data is written.
SHOWN_S = 1.0


class _Record(Struct):
    """A record in one node, with the function that builds it and its last written state."""

    node: Node
    #: Function that builds the record for a topology id.
    make: Callable[[str], Message]
    #: Counters of changes that must be written soon, and of changes that may wait for `growth_pause_s`.
    changes: Callable[[], int]
    growth: Callable[[], int] = lambda: 0
    pause_s: float = OTHERS_PAUSE_S
    growth_pause_s: float = 0.0
    written_changes: int = 0
    written_growth: int = 0
    #: Monotonic time of the last write, and the time that building the record took.
    written_at: float = float("-inf")
    cost_s: float = 0.0

    def is_ahead(self) -> bool:
        """Whether the record has changed since it was written."""
        return (self.changes(), self.growth()) != (self.written_changes, self.written_growth)

    def due(self, now: float) -> bool:
        pause_s = max(self.growth_pause_s, self.cost_s / _SHARE)
        changed = self.changes() != self.written_changes
        # An infinite pause is never over, even before the first write.
        return now - self.written_at > (self.pause_s if changed else pause_s) and (
            changed or self.growth() != self.written_growth
        )


class Recorder:
    """Writes the shared totals and events, the newest minutes and all counts to the state manager.

    `now` returns the time of the topology master's clock, which is needed for the last answers.
    """

    def __init__(
        self,
        store: Store,
        shared: SharedState,
        minutes: Minutes,
        metrics: MetricsCache,
        answers: LastAnswers,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._topology = shared.book.topology.id
        totals, event_log = shared.registry.totals, shared.event_log
        self._totals = _Record(
            Node.TOTALS,
            totals.ledger,
            changes=lambda: totals.changes,
            growth=lambda: totals.growth,
            pause_s=SOON_PAUSE_S,
            growth_pause_s=GROWTH_PAUSE_S,
        )
        self._counts = _Record(
            Node.COUNTS,
            metrics.ledger,
            changes=lambda: metrics.changes,
            growth=lambda: metrics.growth,
            growth_pause_s=GROWTH_PAUSE_S,
        )
        self._events = _Record(Node.EVENTS, event_log.ledger, lambda: event_log.last, pause_s=SOON_PAUSE_S)
        # The minutes of an idle topology are not written.
        self._minutes = _Record(
            Node.MINUTES,
            minutes.ledger,
            changes=lambda: minutes.moved,
            growth=lambda: minutes.last,
            growth_pause_s=math.inf,
            written_changes=minutes.moved,
            written_growth=minutes.last,
        )
        #: Whether this process is ending.
        self._ends = False
        self._last = _Record(
            Node.LAST,
            lambda _: answers.message(now(), self._ends),
            changes=lambda: answers.changes,
            growth=lambda: answers.growth,
            pause_s=GROWTH_PAUSE_S,
            growth_pause_s=GROWTH_PAUSE_S,
        )
        self._task: asyncio.Task[None] | None = None
        self._written: set[Node] = set()
        #: The write in progress, which continues even if the waiting task is cancelled.
        self._writing: asyncio.Future[None] | None = None
        #: Held during a write, because two concurrent writes of one node would fence each other.
        self._turn = asyncio.Lock()

    def look(self) -> None:
        """Start a write if a record has changed and its pause is over."""
        if self._task is None and self._unkept() is not None:
            self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Complete a write in progress, then write the latest counts, the last answers, and unsaved events and minutes.

        Call this once, at the end.
        """
        if self._task is not None:
            self._task.cancel()
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=LAST_WRITE_S)
        # Counts change continuously, and a successor may have no other source for them.
        last = [self._totals, self._counts, *(one for one in (self._events, self._minutes) if one.is_ahead())]
        self._ends = True
        for record in (*last, self._last):
            with contextlib.suppress(HeronError, OSError, TimeoutError):
                async with asyncio.timeout(LAST_WRITE_S):
                    # A node that was never written is not created: the topology and its location may be gone by now.
                    # The events tell how a short topology ended.
                    if record.node in self._written or (
                        record.node in (Node.LAST, Node.EVENTS) and await asyncio.to_thread(self._store.check_fence)
                    ):
                        await self._write(record)

    async def shown(self, answer: M) -> M:
        """Return an answer once its counts are written, so that no successor shows lower counts. Waits up to `SHOWN_S`.

        Counts that cannot be written by then, or whose write would take too large a share of the loop's time, are
        written later.
        """
        record = self._counts if isinstance(answer, control_pb2.MetricsReply) else self._totals
        pause_s = record.written_at + record.cost_s / _SHARE - time.monotonic()
        if record.is_ahead() and pause_s < SHOWN_S:
            with contextlib.suppress(HeronError, OSError, TimeoutError):
                async with asyncio.timeout(SHOWN_S):
                    if pause_s > 0:
                        await asyncio.sleep(pause_s)
                    await self._write(record)
        return answer

    def _unkept(self) -> _Record | None:
        """Return the due record whose last write is the oldest; None if no record may be written now."""
        now = time.monotonic()
        records = (self._totals, self._counts, self._events, self._minutes, self._last)
        due = [one for one in records if one.due(now)]
        return min(due, key=lambda one: one.written_at, default=None)

    async def _write(self, record: _Record) -> None:
        changes, growth = record.changes(), record.growth()
        began = time.thread_time()
        # Build the record in the loop, because its data may change during the write.
        message = record.make(self._topology)
        record.cost_s = time.thread_time() - began
        async with self._turn:
            if self._writing is not None and not self._writing.done():
                await asyncio.wait([self._writing])  # the waiting task was cancelled
            self._writing = asyncio.ensure_future(asyncio.to_thread(self._store.write, record.node, message))

            def note(writing: asyncio.Future[None]) -> None:
                if not writing.cancelled() and writing.exception() is None:
                    self._written.add(record.node)

            self._writing.add_done_callback(note)
            await asyncio.shield(self._writing)
        record.written_changes, record.written_growth, record.written_at = changes, growth, time.monotonic()

    async def _keep(self) -> None:
        while (record := self._unkept()) is not None:
            pause_s = SOON_PAUSE_S
            try:
                await self._write(record)
            except (TopologyRemovedError, FencedError):
                return  # the next write of a plan fails, too, and handles the error
            except (StateError, OSError) as error:
                log.warning("cannot write the %s (%s); trying again", record.node.value, error)
                pause_s = RETRY_S
            except Exception:
                log.exception("cannot write the %s; trying again", record.node.value)
                pause_s = RETRY_S
            await asyncio.sleep(pause_s)
        self._task = None
