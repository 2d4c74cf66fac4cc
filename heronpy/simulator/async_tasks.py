"""Simulated tasks of async bolts and spouts: a bounded number of concurrent coroutines, on virtual time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from itertools import repeat
from typing import Any

from heronpy.common.errors import TopologyError
from heronpy.common.permits import Permits
from heronpy.simulator.clock import VirtualLoop
from heronpy.simulator.shared import Shared
from heronpy.simulator.tasks import BoltTask, SpoutTask
from heronpy.simulator.tuples import SimulatedTuple


class AsyncBoltTask(BoltTask):
    """Runs a coroutine per tuple, up to the limit. A step starts at most one coroutine, and runs the loop once."""

    def __init__(self, world: Shared, message: Any, task_id: int, index: int) -> None:
        super().__init__(world, message, task_id, index)
        self.loop = VirtualLoop(world.clock)
        self.most_at_once = 0
        self._running: dict[asyncio.Task[Any], tuple[str, SimulatedTuple | None]] = {}
        self._limit = self.settings.async_concurrency

    def close(self) -> None:
        super().close()
        self.loop.end()
        self._running.clear()

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
        """Return whether coroutines are waiting for something other than a virtual timer."""
        return bool(self._running) and not self.loop.has_work() and self.loop.next_timer() is None

    def poll(self) -> None:
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
        """Run the result if it is a coroutine; a plain function has already finished."""
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
                raise self.failure(what, TopologyError("it was cancelled"))
            error = task.exception()
            if error is not None:
                raise self.failure(what, error) from error
            if tup is not None:
                self._executed(tup)


class AsyncSpoutTask(SpoutTask):
    """Runs the coroutines of an async spout, on virtual time.

    A step reports at most one outcome to the user's spout, allows at most one emit, and runs one turn of the event
    loop.
    """

    def __init__(self, world: Shared, message: Any, task_id: int, index: int) -> None:
        super().__init__(world, message, task_id, index)
        self.loop = VirtualLoop(world.clock)
        self._permits = Permits(lambda: None)
        self._run: asyncio.Task[Any] | None = None
        #: Coroutines of `ack`, `fail`, `activate` and `deactivate`, with the method's name.
        self._calls: dict[asyncio.Task[Any], str] = {}

    def start(self, saved: bytes | None = None, checkpoint: int = 0) -> None:
        super().start(saved, checkpoint)
        for name in ("ack", "fail", "activate", "deactivate"):
            setattr(self.user, name, self._beside(name, getattr(self.user, name)))
        self._run = self.loop.create_task(self.call("run", self.user.run))

    def close(self) -> None:
        self.loop.end()
        self._calls.clear()
        super().close()

    # -- answers for the scheduler ------------------------------------------------------------

    def is_runnable(self, now: float) -> bool:
        if now < self.wake_at:
            return False
        return bool(self.outcomes) or self.loop.has_work() or self._lets_emit()

    def wake_time(self, now: float) -> float | None:
        if self.wake_at > now:
            return self.wake_at
        return self.loop.next_timer()

    def is_silent(self) -> bool:
        if self.outcomes or self.loop.has_work() or self._lets_emit():
            return False
        return self.loop.next_timer() is None or self.idles()

    def is_busy(self) -> bool:
        return bool(self._calls) or super().is_busy()

    def waits_for_outside(self) -> bool:
        if self.outcomes or self.loop.has_work() or self._permits.waiting or self.loop.next_timer() is not None:
            return False
        return bool(self._calls) or not (self._run is None or self._run.done())

    def poll(self) -> None:
        self.call("run", self.loop.turn)
        self._collect()

    def step(self) -> None:
        if self.outcomes:
            self._report(*self.outcomes.popleft())
        emitted, timer = self.emit_calls, self.loop.next_timer()
        self._permits.offer(int(self._has_room()))
        self.poll()
        self._permits.offer(0)
        if self.emit_calls != emitted:
            self.count_call(True)
        elif timer is not None and timer <= self.world.clock.now:
            # A coroutine that wakes up repeatedly without an effect is polling its source.
            self.count_call(False)

    def _lets_emit(self) -> bool:
        return self._permits.waiting > 0 and self._has_room()

    # -- coroutines ---------------------------------------------------------------------------

    def _beside(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a method so that the coroutine it returns runs concurrently with other coroutines."""

        def call(*args: Any) -> Any:
            result = method(*args)
            if not asyncio.iscoroutine(result):
                return result
            task = self.loop.create_task(result)
            self._calls[task] = name
            return task

        return call

    def _collect(self) -> None:
        for task in [task for task in self._calls if task.done()]:
            self._check(self._calls.pop(task), task)
        if self._run is None or not self._run.done():
            return
        self._check("run", self._run)
        if not self.is_busy() and not self.world.tracker.pending(self.task_id):
            self.is_exhausted = True

    def _check(self, name: str, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            raise self.failure(name, TopologyError("it was cancelled"))
        error = task.exception()
        if error is not None:
            raise self.failure(name, error) from error

    # -- the delegate -------------------------------------------------------------------------

    def emit(  # type: ignore[override]
        self,
        tup: Sequence[Any],
        tup_id: Any = None,
        stream: str = "default",
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> Coroutine[Any, Any, list[int] | None]:
        """Emit a tuple for the user's spout as soon as the spout may emit."""
        return self._emit(tup, tup_id, stream, direct_task, need_task_ids)

    def emit_batch(
        self, columns: Any, *, rows: Any, ids: Any, stream: str, direct_task: int | None
    ) -> Coroutine[Any, Any, None]:
        """Emit many tuples for the user's spout as soon as the spout may emit."""
        return self._emit_batch(columns, rows, ids, stream, direct_task)

    async def _emit_batch(self, columns: Any, rows: Any, ids: Any, stream: str, direct_task: int | None) -> None:
        await self._permits.take()
        count, hooked = None if ids is None else len(ids), self.context.has_hooks
        given = self.outputs.rows(stream, columns, rows, "ids", count, direct_task, hooked)
        for row, tup_id in zip(given, repeat(None) if ids is None else ids):
            super().emit(row, tup_id, stream, direct_task)

    async def _emit(
        self, tup: Sequence[Any], tup_id: Any, stream: str, direct_task: int | None, need_task_ids: bool
    ) -> list[int] | None:
        await self._permits.take()
        return super().emit(tup, tup_id, stream, direct_task, need_task_ids)
