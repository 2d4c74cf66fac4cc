"""Virtual time: it does not pass while code runs, and jumps to the next due event.

While a simulation is running, the functions of the standard `time` module use the virtual clock
(for the simulating thread only), so windows, rates and timeouts based on `time.time()` are
deterministic. `time.sleep` takes no real time: only the virtual time of the task advances.
Not covered: `datetime.now()`, and functions imported earlier with `from time import ...`.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

# A full hour, so that windows aligned to minutes or hours start with the simulation.
EPOCH_S = 1767225600.0  # 2026-01-01T00:00:00Z

_NS = 1_000_000_000
#: Maximum turns of a loop in which cancelled coroutines may clean up.
_CLEANUP_TURNS = 10

# The real functions, before any simulation replaced them.
real_sleep = time.sleep
real_monotonic = time.monotonic


class VirtualClock:
    """The virtual time: seconds since the simulation started, plus the seconds that the running task has slept."""

    __slots__ = ("now", "slept")

    def __init__(self) -> None:
        self.now = 0.0
        self.slept = 0.0

    def advance_to(self, when: float) -> None:
        """Advance to `when`, unless it is in the past."""
        self.now = max(self.now, when)

    def task_now(self) -> float:
        """Return the time for the running task: the common time plus the time that the task has slept."""
        return self.now + self.slept

    def wall(self) -> float:
        """Return the virtual `time.time()`."""
        return EPOCH_S + self.task_now()

    def sleep(self, seconds: float) -> None:
        """Advance the running task's clock; this replaces `time.sleep`."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self.slept += seconds


@contextmanager
def virtual_time(clock: VirtualClock) -> Iterator[None]:
    """Make the `time` module use the clock in this thread until the block ends."""
    thread = threading.get_ident()

    def here(virtual: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
        def function(*args: Any) -> Any:
            return virtual(*args) if threading.get_ident() == thread else real(*args)

        return function

    virtual: dict[str, Callable[..., Any]] = {
        "time": clock.wall,
        "time_ns": lambda: round(clock.wall() * _NS),
        "monotonic": clock.task_now,
        "monotonic_ns": lambda: round(clock.task_now() * _NS),
        "perf_counter": clock.task_now,
        "perf_counter_ns": lambda: round(clock.task_now() * _NS),
        "sleep": clock.sleep,
    }
    saved = {name: getattr(time, name) for name in virtual}
    try:
        for name, function in virtual.items():
            setattr(time, name, here(function, saved[name]))
        yield
    finally:
        for name, function in saved.items():
            setattr(time, name, function)


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop of one async bolt or spout. It never waits: `turn` runs the ready callbacks and returns.

    `asyncio.sleep` and timeouts fire when the virtual clock reaches them, so coroutines interleave identically in every
    run. Real I/O inside a coroutine works, but its timing is not deterministic.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._virtual_clock = clock
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._last_timer = 0
        self._has_ready = False
        super().__init__()

    def time(self) -> float:
        """Return the virtual time, which timers use."""
        return self._virtual_clock.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback, and mark the loop as ready for a turn."""
        self._has_ready = True
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback as `call_soon` does, from a thread that did real work for a coroutine."""
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self._has_ready = True
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback, and record when the next turn is due."""
        handle = super().call_at(when, callback, *args, context=context)
        self._last_timer += 1
        heapq.heappush(self._timers, (when, self._last_timer, handle))
        return handle

    def has_work(self) -> bool:
        """Return whether a turn would run a callback now."""
        when = self.next_timer()
        return self._has_ready or (when is not None and when <= self.time())

    def next_timer(self) -> float | None:
        """Return the time at which the next timer is due; None if no timer is set."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def end(self) -> None:
        """Cancel all running coroutines and close the loop. A second call has no effect."""
        if self.is_closed():
            return
        for task in asyncio.all_tasks(self):
            task.cancel()
        for _ in range(_CLEANUP_TURNS):
            if not asyncio.all_tasks(self):
                break
            self.turn()
        self.close()

    def turn(self) -> None:
        """Run all ready callbacks once, without waiting."""
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
