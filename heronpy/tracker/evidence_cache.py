"""Captures in progress and the last results, in bounded memory and never on disk."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable
from dataclasses import dataclass

from heronpy.common.errors import HeronError
from heronpy.common.ids import is_called
from heronpy.views.evidence import Evidence

#: Maximum number of kept results of all topologies; one answer has up to a megabyte on the wire.
KEPT_MAX = 16
#: Maximum number of captures at the same time, each with a connection to an executor.
AT_ONCE_MAX = 8


@dataclass(slots=True)
class Entry:
    """One capture: its process, kind and result."""

    topology_id: str
    process: str
    kind: str
    found: Evidence
    #: Why there is no result.
    problem: HeronError | None = None
    under_way: bool = True


class EvidenceCache:
    """The entries, one per topology, process and kind. The oldest complete entry is evicted first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, str, str], Entry] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def busy(self, topology_id: str, process: str) -> Entry | None:
        """Return the capture in progress for this process; None if no capture is in progress."""
        mine = (one for one in self._entries.values() if (one.topology_id, one.process) == (topology_id, process))
        return next((one for one in mine if one.under_way), None)

    @property
    def is_full(self) -> bool:
        """Whether the limit of simultaneous captures is reached."""
        return len(self._tasks) >= AT_ONCE_MAX

    def begin(self, entry: Entry, take: Awaitable[Evidence]) -> None:
        """Store the entry now, and the result of `take` when it arrives."""
        key = entry.topology_id, entry.process, entry.kind
        self._entries.pop(key, None)
        self._entries[key] = entry
        complete = [old for old, one in self._entries.items() if not one.under_way]
        for old in complete[: max(0, len(self._entries) - KEPT_MAX)]:
            del self._entries[old]
        task = asyncio.ensure_future(self._wait(entry, take))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _wait(entry: Entry, take: Awaitable[Evidence]) -> None:
        try:
            entry.found = await take
        except HeronError as error:
            entry.problem = error
        except Exception as error:
            entry.problem = HeronError(f"internal error of the tracker: {type(error).__name__}")
        finally:
            entry.found.at = time.time()
            entry.under_way = False

    def find(self, topology_id: str, what: str, kind: str) -> Entry | None:
        """Return the last requested entry for the process with this name (see `is_called`), or None."""
        for one in self._entries.values():
            if (one.topology_id, one.kind) == (topology_id, kind) and is_called(one.process, what):
                return one
        return None

    def close(self) -> None:
        """Stop waiting for results."""
        for task in self._tasks:
            task.cancel()
