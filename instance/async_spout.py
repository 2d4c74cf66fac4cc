"""The loop of an asynchronous spout: the user's coroutines, and turns between them, on an asyncio loop.

A turn does what spout_loop.py does between two calls to next_tuple: frames, acks, checkpoints, timeouts, sends. A
turn runs when a coroutine has emitted or waits to emit, when a frame or a message has arrived, or when a timer is due;
nothing is polled. Each turn offers permits for the emits until the next turn. If there is no permit, an emit waits for
the next turn, so neither a full link nor backpressure nor the limit on pending tuples ever blocks the loop.

Invariants: no turn runs between the append of a tuple and the next await of the coroutine that emitted it. A
checkpoint is made in a turn, so it never separates a tuple from the user code that directly follows the emit. Tuples of
one coroutine are sent in the order in which it emitted them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

from heronpy.api.spout.async_spout import AsyncSpout
from heronpy.common.errors import TopologyError
from heronpy.common.permits import Permits
from heronpy.net.zsock import readable

from .awake import Awake, WatchedSelector
from .linger import FULL, OPEN
from .spout_loop import MORE_S, SpoutTask
from .task import StopRequested, UserError
from .time_use import AT_LIMIT, BLOCKED, IDLE, WORKING

log = logging.getLogger("heron.instance")

#: Maximum number of emits between two turns. The number is doubled if a turn follows sooner than after CHUNK_SHORT_S
#: seconds, and halved if it follows later than after CHUNK_LONG_S seconds.
CHUNK_MAX = 4096
CHUNK_SHORT_S, CHUNK_LONG_S = 1e-4, 4e-4
#: Seconds without activity after which a task reports that it is idle.
SETTLE_S = 0.05
#: Methods in addition to `run` that may be coroutines.
CALLS = ("ack", "fail", "activate", "deactivate")
#: True if the coroutine is `run` or one of CALLS, or was started by such a coroutine.
_in_call: ContextVar[bool] = ContextVar("in_call", default=False)


class AsyncSpoutTask(SpoutTask):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._awake = Awake()
        self._permits = Permits(self._awake.set)
        self._push: Callable[..., list[int] | None] = self._emit_any
        #: True if the next emit must be traced.
        self._tracing = False
        self._run: asyncio.Task[Any]
        #: Running coroutines of CALLS, and the number of their emits that wait for a permit.
        self._calls: set[asyncio.Task[Any]] = set()
        self._calls_waiting = 0
        self._failure: BaseException | None = None
        self._ending = False
        #: True if an emit was waiting for a permit when the loop fell asleep.
        self._held_up = False
        self._chunk = 1
        self._offered_at = 0.0
        self._moved: tuple[int, ...] = ()

    # ---- emit ---------------------------------------------------------------------------------

    def prepare_delegate(self) -> None:
        super().prepare_delegate()
        self.user.delegate.emit = self._emit
        self.user.delegate.emit_batch = self._emit_batch

    def bind_emit(self) -> None:
        """Create the emit closure; wrap the methods of CALLS, so that calling a method starts its coroutine."""
        context = self.user.context
        compiled = self.emitter.compile_emit("spout", self._emit_any, context, self._immediate.append)
        self._push = compiled or self._emit_any
        delegate, spout = self.user.delegate, self.user.object
        if type(spout).emit is AsyncSpout.emit and getattr(spout, "delegate", None) is delegate:
            spout.emit = self._emit
        for name in CALLS:
            setattr(spout, name, self._counted(getattr(spout, name)))

    async def _emit(
        self,
        tup: Any,
        tup_id: Any = None,
        stream: str = "default",
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        permits = self._permits
        if permits.free > 0:
            permits.free -= 1
        else:
            await self._permit()
        self._awake.set()
        if self._tracing:
            span = self.tracer.open()
            tasks = self._push(tup, tup_id, stream, direct_task, need_task_ids)
            self._tracing = not self.tracer.close(span, self.emitter.batches.now, time.time())
            return tasks
        return self._push(tup, tup_id, stream, direct_task, need_task_ids)

    async def _emit_batch(self, columns: Any, **more: Any) -> None:
        permits = self._permits
        if permits.free > 0:
            permits.free -= 1
        else:
            await self._permit()
        self._awake.set()
        span = self.tracer.open() if self._tracing else None
        self.emit_batch(columns, **more)
        if span is not None:
            self._tracing = not self.tracer.close(span, self.emitter.batches.now, time.time())

    async def _permit(self) -> None:
        inside = _in_call.get()
        self._calls_waiting += inside
        try:
            await self._permits.take()
        finally:
            self._calls_waiting -= inside

    def wait_for_room(self) -> None:
        """Do nothing, because an emit never blocks the loop: if the link is full, the next emits wait."""
        if self.link.outbox:
            self._permits.offer(0)

    def _end_of_input(self) -> None:
        self.exhausted = True
        self._awake.set()

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the method: its coroutine runs concurrently with all others, and counts as a call until it ends."""

        def call(*args: Any) -> Any:
            result = method(*args)
            if not asyncio.iscoroutine(result):
                return result
            within = _in_call.set(True)
            try:
                task = self._start(result)
            finally:
                _in_call.reset(within)
            self._calls.add(task)
            return task

        return call

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(_contained(coroutine))
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            self._failure = self._failure or task.exception()
        elif not self._ending:
            cancelled = TopologyError(f"a coroutine of component {self.name.component} was cancelled")
            self._failure = self._failure or cancelled
        self._awake.set()

    # ---- the loop -----------------------------------------------------------------------------

    def run_loop(self) -> None:
        """Run the asyncio loop until a stop is requested; raises UserError if user code raises an exception."""
        self._begin()
        loop = asyncio.SelectorEventLoop(WatchedSelector(self.falls_asleep, self.wakes_up))
        try:
            loop.run_until_complete(self._main())
        finally:
            # A coroutine that ignores its cancellation must not keep the process alive.
            loop.close()
        if self._failure is not None:
            if isinstance(self._failure, UserError | StopRequested):
                raise self._failure
            raise UserError from self._failure

    async def _main(self) -> None:
        self._awake.listen(self.control.wake_fd)
        try:
            self._run = self._start(self.guard(self.user.object.run))
            self._switch_active()
            self._show_state()
            while not self.stopping and self._failure is None:
                self._turn()
                if not self.stopping:
                    await self._sleep()
        except (UserError, StopRequested) as error:
            self._failure = self._failure or error
        await self._end()

    def falls_asleep(self) -> None:
        """Record that no coroutine can continue. No tuples will join the buffered tuples, so the buffer may be sent
        even if the task is busy.
        """
        if not self._ending:
            self._flush_due(time.monotonic())
        self.note_outgoing()
        may_not = self.active and self._permits.waiting > 0
        self._held_up = bool(self.link.outbox) or may_not
        rest = AT_LIMIT if may_not and self._at_limit else BLOCKED if self._held_up else IDLE
        self.time_use.turn(rest, time.monotonic_ns())
        self.progress.resting = True

    def wakes_up(self) -> None:
        """Record that coroutines continue: the asyncio loop runs, even if this task has no turn to make."""
        if self.progress.resting:
            self.progress.resting = False
            if self._held_up:
                self._sleeps.forget()  # an emit was waiting, so the task was not idle
            self.time_use.turn(WORKING, time.monotonic_ns())
        now = self.progress.turned_at = self.emitter.batches.now = time.monotonic()
        if now >= self.marks.due:
            self.marks.open(now, time.time_ns())
        self._tracing = now >= self.tracer.due

    def _turn(self) -> None:
        self._awake.clear()
        if self.control.interrupted:
            self.serve_inbox()
            if self.stopping:
                return
        if self.active != self._activated:
            self._switch_active()
        self._awake.watch(self.link)
        self.link.receive(self.take_frame)
        now = self.emitter.batches.now = time.monotonic()
        self._do_what_came(now)
        self.turn(now)
        self._flush_and_offer(now)
        self._look_for_end()

    def _flush_and_offer(self, now: float) -> None:
        """Send tuples that have waited long enough, or all if no more may follow, and offer the next permits."""
        if self._permits.waiting:
            took = now - self._offered_at
            if took < CHUNK_SHORT_S:
                self._chunk = min(CHUNK_MAX, self._chunk * 2)
            elif took > CHUNK_LONG_S:
                self._chunk = max(1, self._chunk // 2)
        given = self._permits.given
        # A coroutine of `ack` or `fail` counts as one pending tuple until it is done or emits.
        calls = max(0, len(self._calls) - self._calls_waiting)
        allowed = self.may_emit(given + calls)
        if not (allowed or given) or self._run.done() or self._linger.over(now - MORE_S, self._sleeps.any):
            self._flush(now)
            allowed = self.may_emit(given + calls)
        if calls and not self.max_pending:
            allowed = min(allowed, self.settings.async_concurrency - calls - given)
        self._permits.offer(max(0, min(allowed, self._chunk - given)))
        self._offered_at = now

    def _look_for_end(self) -> None:
        """End the input if `run` has returned and no tuple can be emitted again."""
        if self._calls:
            return
        if self._run.done() and not (self.pending.total or self._immediate or self.emitter.dirty()):
            self.exhausted = True
        if self.exhausted:
            self._show_state()

    def on_link_lost(self) -> None:
        self._awake.unwatch()
        super().on_link_lost()

    # ---- rest and end -------------------------------------------------------------------------

    async def _sleep(self) -> None:
        sock = self.link.sock
        if not self._awake.is_set() and not (sock is not None and readable(sock)):
            timer = asyncio.get_running_loop().call_later(self.rest_s(), self._awake.set)
            await self._awake.wait()
            timer.cancel()
        # Coroutines that can continue do so first, so that their tuples are sent together.
        await asyncio.sleep(0)

    def rest_s(self) -> float:
        """Return the seconds until the task's next timer; report a task that has been idle for `SETTLE_S`."""
        now, progress = time.monotonic(), self.progress
        moved = (self.emitter.emitted(), progress.acked, progress.failed, self.pending.total)
        rest_s = self._rest_max_s
        if self.emitter.dirty():
            # Buffered tuples are sent when the loop falls asleep (see `falls_asleep`), or at this time if it never
            # does.
            due = self._linger.due
            rest_s = max(0.0, (due if due > now else self._linger.latest) - now)
        elif moved == self._moved:
            self.publish_progress(now, resting=True)
        else:
            self._moved, rest_s = moved, SETTLE_S
        if self._resume_at not in (OPEN, FULL):
            rest_s = min(rest_s, max(0.0, self._resume_at - now))
        return self._until_timer(rest_s, now)

    async def _end(self) -> None:
        """Wait for `ack` and `fail` coroutines, then cancel all coroutines.

        Both waits together take at most half of the time until the process is killed."""
        self._ending = True
        self._permits.offer(0)
        self._awake.close()
        moment_s = self.settings.force_exit_s / 4
        if self._calls:
            await asyncio.wait(self._calls, timeout=moment_s)
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        if running:
            _, stuck = await asyncio.wait(running, timeout=moment_s)
            if stuck:
                log.warning("%d coroutines did not end when they were cancelled", len(stuck))
                return
        await asyncio.get_running_loop().shutdown_asyncgens()


async def _contained(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Make an exit in user code end the task in an orderly way, instead of stopping the loop."""
    try:
        return await coroutine
    except SystemExit as error:
        raise UserError from error
