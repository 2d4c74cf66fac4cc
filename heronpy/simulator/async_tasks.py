"""A simulated task of an async bolt: a bounded number of concurrent coroutines, on virtual time."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from heronpy.simulator.eventloop import VirtualLoop
from heronpy.simulator.shared import Shared
from heronpy.simulator.tasks import BoltTask
from heronpy.simulator.tuples import SimulatedTuple


class AsyncBoltTask(BoltTask):
    """Starts a coroutine per tuple while there is room; a step is one start and one turn."""

    def __init__(self, world: Shared, message: Any, task_id: int, index: int) -> None:
        super().__init__(world, message, task_id, index)
        self.loop = VirtualLoop(world.clock)
        self.most_at_once = 0
        self._running: dict[asyncio.Task[Any], tuple[str, SimulatedTuple | None]] = {}
        self._limit = self.settings.async_concurrency

    def close(self) -> None:
        super().close()
        self.stop_loop()

    def stop_loop(self) -> None:
        """Cancel what is running and close the loop."""
        if self.loop.is_closed():
            return
        for task in self._running:
            task.cancel()
        for _ in range(len(self._running) and 3):
            self.loop.turn()
        self._running.clear()
        self.loop.close()

    def is_runnable(self, now: float) -> bool:
        if now < self.wake_at:
            return False
        return self._may_start() or self.is_tick_due(now) or self.loop.has_work()

    def wake_time(self, now: float) -> float | None:
        if (inherited := super().wake_time(now)) is not None:
            return inherited
        return self.loop.next_timer() if self._running else None

    def is_busy(self) -> bool:
        return bool(self._running) or super().is_busy()

    def waits_for_outside(self) -> bool:
        """Whether coroutines wait for something other than a virtual timer."""
        return bool(self._running) and not self.loop.has_work() and self.loop.next_timer() is None

    def poll(self) -> None:
        """Poll for external events."""
        self.call("process", self.loop.turn)
        self._collect()

    def step(self) -> None:
        if self.is_tick_due(self.world.clock.now):
            self.step_tick()
        elif self._may_start():
            tup = self._take()
            self._start("process", self.call("process", self.user.process, tup), tup)
        self.poll()

    def finish(self) -> None:
        self._start("finish", self.call("finish", self.user.finish), None)

    def _may_start(self) -> bool:
        return bool(self.queue) and len(self._running) < self._limit

    def _process_tick(self, tick: Any) -> None:
        self._start("process_tick", self.call("process_tick", self.user.process_tick, tick), None)

    def _start(self, what: str, result: Any, tup: SimulatedTuple | None) -> None:
        """Run a coroutine; a plain function has already finished."""
        if not inspect.iscoroutine(result):
            if tup is not None:
                self._executed(tup)
            return
        self._running[self.loop.create_task(result)] = (what, tup)
        self.most_at_once = max(self.most_at_once, len(self._running))

    def _collect(self) -> None:
        for task in [task for task in self._running if task.done()]:
            what, tup = self._running.pop(task)
            if task.cancelled():
                continue
            error = task.exception()
            if error is not None:
                raise self.failure(what, error) from error
            if tup is not None:
                self._executed(tup)
