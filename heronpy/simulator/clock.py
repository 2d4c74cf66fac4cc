"""Virtual time: it stands still while code runs and jumps to the next due event.

While a simulation runs, the functions of the standard `time` module answer from the virtual clock
(for the simulating thread only), so windows, rates and time-outs written with `time.time()` are
deterministic. `time.sleep` costs no real time: only the task sleeps.
Not covered: `datetime.now()`, and functions imported with `from time import ...` beforehand.
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

# A round time, so that windows aligned to minutes or hours start with the simulation.
EPOCH_S = 1767225600.0  # 2026-01-01T00:00:00Z

_NS = 1_000_000_000
#: Turns of a loop in which cancelled coroutines may clean up.
_CLEANUP_TURNS = 10

# The real functions, before any simulation replaced them.
real_sleep = time.sleep
real_monotonic = time.monotonic


class VirtualClock:
    """Seconds since the start of the simulation, plus the sleep of the running task."""

    __slots__ = ("now", "slept")

    def __init__(self) -> None:
        self.now = 0.0
        self.slept = 0.0

    def advance_to(self, when: float) -> None:
        """Advance to `when`; never goes back."""
        self.now = max(self.now, when)

    def task_now(self) -> float:
        """The time that the running task sees: the common time plus its own sleep."""
        return self.now + self.slept

    def wall(self) -> float:
        """The virtual `time.time()`."""
        return EPOCH_S + self.task_now()

    def sleep(self, seconds: float) -> None:
        """The virtual `time.sleep`: only the running task's time advances."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self.slept += seconds


@contextmanager
def virtual_time(clock: VirtualClock) -> Iterator[None]:
    """Let the `time` module answer from the clock in this thread, until the block ends."""
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
    """A private event loop per async bolt or spout that never waits: `turn` runs what is ready and returns.

    `asyncio.sleep` and time-outs fire when the virtual clock reaches them, so coroutines interleave the same way in
    every run. Real I/O inside a coroutine still works, but its timing is not deterministic.
    """

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
        """Like `call_soon`, from a thread that did real work for a coroutine."""
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

    def end(self) -> None:
        """Cancel what is running, and close the loop."""
        if self.is_closed():
            return
        for task in asyncio.all_tasks(self):
            task.cancel()
        for _ in range(_CLEANUP_TURNS):
            if not asyncio.all_tasks(self):
                break
            self.turn()
        self.close()
