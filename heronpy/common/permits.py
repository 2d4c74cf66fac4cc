"""Permits for the coroutines of one event loop, granted in the order of their requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Permits:
    """Permits that the event loop offers and coroutines take; `wanted` is called when a wait begins or is cancelled.

    Invariants: while a coroutine waits, no permit is free; `given` is the number of permits given to coroutines that
    have not run since.
    """

    def __init__(self, wanted: Callable[[], None]) -> None:
        self._wanted = wanted
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.free = 0
        self.given = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def offer(self, count: int) -> None:
        """Offer `count` permits; earlier permits that are still free become invalid."""
        waiting = self._waiting
        while waiting and count > 0:
            waiter = waiting.popleft()
            # A waiter that is done belongs to a coroutine that was cancelled and has not run since.
            if not waiter.done():
                waiter.set_result(None)
                self.given += 1
                count -= 1
        self.free = max(0, count)

    async def take(self) -> None:
        """Take a permit, waiting if none is free. A coroutine that is cancelled during the wait has no permit."""
        if self.free > 0:
            self.free -= 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._wanted()
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                # The cancelled waiter had already got a permit, which passes to the next waiter.
                self.given -= 1
                self.offer(self.free + 1)
            elif waiter in self._waiting:
                self._waiting.remove(waiter)
            self._wanted()
            raise
        self.given -= 1
