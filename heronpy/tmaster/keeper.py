"""Persists totals, events and the last minutes for the next topology master, in the background; nothing waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from google.protobuf.message import Message

from heronpy.common.errors import FencedError, HeronError, StateError
from heronpy.tmaster.desk import Desk
from heronpy.tmaster.effects import Node
from heronpy.tmaster.minutes import Minutes
from heronpy.tmaster.store import Store, TopologyRemovedError

log = logging.getLogger("heronpy.tmaster")

#: Minimum pause after a write of the totals, after one of the events or minutes, and after a failed write.
TOTALS_PAUSE_S, EVENTS_PAUSE_S, RETRY_S = 1.0, 5.0, 10.0
#: How long the end of the process may wait for the last write.
LAST_WRITE_S = 1.0


class Keeper:
    """Keeps a copy of the desk's totals and events, and of the newest minutes, in the state manager."""

    def __init__(self, store: Store, desk: Desk, minutes: Minutes) -> None:
        self._store = store
        self._desk = desk
        self._minutes = minutes
        self._task: asyncio.Task[None] | None = None
        self._changes = self._event = 0
        self._minute = minutes.last
        self._written = False

    def look(self) -> None:
        """Start writing if something has changed."""
        if self._task is None and self._unkept() is not None:
            self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Write unsaved changes, once; a write in progress is left to complete."""
        if self._task is not None:
            self._task.cancel()
        # Where nothing was written before, the topology may be gone by now.
        if self._written and self._unkept() is not None:
            with contextlib.suppress(HeronError, OSError, TimeoutError):
                async with asyncio.timeout(LAST_WRITE_S):
                    await self._write(Node.EVENTS)

    def _unkept(self) -> Node | None:
        if self._desk.registry.totals.changes != self._changes:
            return Node.TOTALS
        if self._desk.journal.last != self._event:
            return Node.EVENTS
        return Node.MINUTES if self._minutes.last != self._minute else None

    async def _write(self, node: Node) -> None:
        totals, journal, topology = self._desk.registry.totals, self._desk.journal, self._desk.book.topology.id
        changes, event, minute = totals.changes, journal.last, self._minutes.last
        # Copied here, because all of them keep changing during the write.
        ledger: Message
        if node is Node.TOTALS:
            ledger = totals.ledger(topology)
        elif node is Node.EVENTS:
            ledger = journal.ledger(topology)
        else:
            ledger = self._minutes.ledger(topology)
        await asyncio.to_thread(self._store.write, node, ledger)
        if node is Node.TOTALS:
            self._changes = changes
        elif node is Node.EVENTS:
            self._event, self._written = event, True
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
