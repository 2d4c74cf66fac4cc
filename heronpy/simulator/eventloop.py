"""A private event loop per async bolt or spout, run one turn at a time on virtual time.

`asyncio.sleep` and time-outs fire when the virtual clock reaches them, so coroutines interleave
the same way in every run. Real I/O inside a coroutine still works, but its timing is not deterministic.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from contextvars import Context
from typing import Any

from heronpy.simulator.clock import VirtualClock


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits: `turn` runs what is ready and returns."""

    def __init__(self, clock: VirtualClock) -> None:
        self._virtual_clock = clock
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._last_timer = 0
        self._has_ready = False
        super().__init__()

    def time(self) -> float:
        """The virtual time, which timers use."""
        return self._virtual_clock.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Mark the loop as ready for a turn."""
        self._has_ready = True
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """The same, from a thread that did real work for a coroutine."""
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self._has_ready = True
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Record when the next turn is due."""
        handle = super().call_at(when, callback, *args, context=context)
        self._last_timer += 1
        heapq.heappush(self._timers, (when, self._last_timer, handle))
        return handle

    def has_work(self) -> bool:
        """Whether a turn would run something now."""
        when = self.next_timer()
        return self._has_ready or (when is not None and when <= self.time())

    def next_timer(self) -> float | None:
        """When the next timer is due."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def turn(self) -> None:
        """Run everything that is ready once, without waiting for anything."""
        now = self.time()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)
        self._has_ready = False
        super().call_soon(self.stop)
        # The test itself may be a coroutine; its loop is suspended during this turn.
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            self.run_forever()
        finally:
            asyncio._set_running_loop(outer)
