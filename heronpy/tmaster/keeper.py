"""Persists totals, events and the last minutes for the next topology master, in the background; nothing waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from google.protobuf.message import Message

from heronpy.common.errors import FencedError, HeronError, StateError
from heronpy.tmaster.desk import Desk
from heronpy.tmaster.effects import Node
from heronpy.tmaster.minutes import Minutes
from heronpy.tmaster.store import Store, TopologyRemovedError

log = logging.getLogger("heronpy.tmaster")

#: Minimum pause after a write of the totals, after one of the events or minutes, and after a failed write.
TOTALS_PAUSE_S, EVENTS_PAUSE_S, RETRY_S = 1.0, 5.0, 10.0
#: Counts that only grow are written so often: tasks tell them again, unless they die with the topology master.
GROWTH_PAUSE_S = 10.0
#: How long the end of the process may wait for the last write.
LAST_WRITE_S = 1.0


class Keeper:
    """Keeps a copy of the desk's totals and events, and of the newest minutes, in the state manager."""

    def __init__(self, store: Store, desk: Desk, minutes: Minutes) -> None:
        self._store = store
        self._desk = desk
        self._minutes = minutes
        self._task: asyncio.Task[None] | None = None
        self._changes = self._growth = self._event = 0
        self._grown_at = float("-inf")
        self._minute = minutes.last
        self._written: set[Node] = set()
        #: The write in progress; it goes on when the task that waits for it is cancelled.
        self._writing: asyncio.Future[None] | None = None

    def look(self) -> None:
        """Start writing if something has changed."""
        if self._task is None and self._unkept() is not None:
            self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Write the latest counts, and unsaved events, once; a write in progress completes first."""
        if self._task is not None:
            self._task.cancel()
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=LAST_WRITE_S)
        # Counts change all the time, and a successor may not hear of them from anybody else.
        last = [Node.TOTALS] if self._desk.journal.last == self._event else [Node.TOTALS, Node.EVENTS]
        for node in last:
            # Where nothing was written before, the topology may be gone by now.
            if node in self._written:
                with contextlib.suppress(HeronError, OSError, TimeoutError):
                    async with asyncio.timeout(LAST_WRITE_S):
                        await self._write(node)

    def _unkept(self) -> Node | None:
        totals = self._desk.registry.totals
        grown = totals.growth != self._growth and time.monotonic() - self._grown_at >= GROWTH_PAUSE_S
        if grown or totals.changes != self._changes:
            return Node.TOTALS
        if self._desk.journal.last != self._event:
            return Node.EVENTS
        return Node.MINUTES if self._minutes.last != self._minute else None

    async def _write(self, node: Node) -> None:
        totals, journal, topology = self._desk.registry.totals, self._desk.journal, self._desk.book.topology.id
        changes, growth, event, minute = totals.changes, totals.growth, journal.last, self._minutes.last
        # Copied here, because all of them keep changing during the write.
        ledger: Message
        if node is Node.TOTALS:
            ledger = totals.ledger(topology)
        elif node is Node.EVENTS:
            ledger = journal.ledger(topology)
        else:
            ledger = self._minutes.ledger(topology)
        self._writing = asyncio.ensure_future(asyncio.to_thread(self._store.write, node, ledger))

        def note(writing: asyncio.Future[None]) -> None:
            if not writing.cancelled() and writing.exception() is None:
                self._written.add(node)

        self._writing.add_done_callback(note)
        await asyncio.shield(self._writing)
        if node is Node.TOTALS:
            self._changes, self._growth, self._grown_at = changes, growth, time.monotonic()
        elif node is Node.EVENTS:
            self._event = event
        else:
            self._minute = minute

    async def _keep(self) -> None:
        while (node := self._unkept()) is not None:
            pause_s = TOTALS_PAUSE_S if node is Node.TOTALS else EVENTS_PAUSE_S
            try:
                await self._write(node)
            except (TopologyRemovedError, FencedError):
                return  # the next plan write fails as well, and is handled
            except (StateError, OSError) as error:
                log.warning("cannot write the %s, trying again: %s", node.value, error)
                pause_s = RETRY_S
            except Exception:
                log.exception("cannot write the %s, trying again", node.value)
                pause_s = RETRY_S
            await asyncio.sleep(pause_s)
        self._task = None
