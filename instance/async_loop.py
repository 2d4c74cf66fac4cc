"""The loop of an asynchronous bolt: `async def process`, with a bounded number of tuples in progress.

Frames, acks and flushes work as in bolt_loop.py, on an asyncio loop. At most `heron.instance.async_concurrency`
coroutines run concurrently; a plan may change this limit. At the limit, no further tuple is taken, so credit is
withheld and backpressure works as for any bolt. A coroutine that raises fails its tuple and restarts the task, as a
synchronous `process` does.

Invariants: tuples are started in order of arrival. A tuple that has been started is never given to the successor.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any

from heronpy.common.errors import TopologyError
from heronpy.net.zsock import readable
from heronpy.plan.component_config import live_concurrency
from heronpy.proto import control_pb2, frame_pb2, plan_pb2
from heronpy.task.tuples import Arrived, DamagedValues, HeronTuple, InFrame

from .awake import Awake, WatchedSelector
from .bolt_loop import IDLE_WAIT_S, TICK_COMPONENT, TICK_STREAM, BoltTask
from .in_queue import Entry
from .progress import ASK_S
from .task import CREDIT_EVERY_S, StopRequested, UserError
from .time_use import WORKING, Doing

log = logging.getLogger("heron.instance")

#: Interval in seconds at which progress is published, and the socket is checked even if its descriptor shows nothing.
HOUSEKEEPING_S = 0.05
CANCELLED = "process() was cancelled, by itself or by a future for which it waited"
#: Maximum number of bytes that a task requests for tuples in progress, in addition to the bytes of its in-queue.
IN_PROGRESS_BYTES_MAX = 64 << 20


class AsyncBoltTask(BoltTask):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._awake = Awake()
        #: The tuple of each running coroutine; None for a tick and for `finish`.
        self._running: dict[asyncio.Task[None], HeronTuple | None] = {}
        #: Frames in progress, by number.
        self._open: dict[int, Entry] = {}
        self._failure: BaseException | None = None
        self._ticking = self._ending = False
        self._concurrency: int = self.settings.async_concurrency
        # Before the pace is known, `in_window` is the limit: slow calls may last longer than any measurement.
        self.in_queue_bytes = self.settings.in_queue_bytes_max
        #: Twice the size of the tuples that may be in progress, by the mean of the tuples that arrived last.
        self._in_progress_bytes = 0

    def take_plan(self, plan: plan_pb2.PhysicalPlan) -> None:
        """Set the maximum number of coroutines from the plan; surplus coroutines finish normally."""
        super().take_plan(plan)
        assert self.plan is not None
        self._concurrency = live_concurrency(self.plan.topology, self.name.component) or self.settings.async_concurrency
        if self.link.window_tuples != self.in_window():
            # Without this grant, a task whose calls never end would not use a larger limit.
            self.link.window_tuples = self.in_window()
            self.link.grant()

    def in_window(self) -> int:
        """Tuples in progress do not wait, so they do not use the capacity of the in-queue.

        As many tuples again may be done while a slow call of their frame holds up their credit.
        """
        return super().in_window() + 2 * self._concurrency

    def in_waiting(self) -> int:
        return sum(entry.tuples for entry in self.in_queue.waiting) + len(self.current) - self._place

    def keep_pace(self) -> None:
        """Update the pace, and the window in bytes, of which tuples in progress do not use the in-queue's share."""
        p, link, before = self.progress, self.link, self.link.window_bytes
        super().keep_pace()
        if p.in_tuples:
            self._in_progress_bytes = min(IN_PROGRESS_BYTES_MAX, 2 * self._concurrency * p.in_bytes // p.in_tuples)
        link.window_bytes = self.in_queue_bytes + self._in_progress_bytes
        if link.window_bytes > 1.25 * before:
            link.grant()

    def run_loop(self) -> None:
        """Run the asyncio loop until a stop is requested."""
        self._tick_s = self.user.tick_interval_s()
        self._next_tick = time.monotonic() + (self._tick_s or 0)
        self.set_state(control_pb2.TASK_RUNNING)
        with asyncio.Runner(loop_factory=self._make_loop) as runner:
            runner.run(self._main())
        if self._failure is not None:
            if isinstance(self._failure, (Exception, SystemExit)):
                raise UserError from self._failure
            raise self._failure

    def _make_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(WatchedSelector(self.falls_asleep, self.wakes_up))

    def falls_asleep(self) -> None:
        """Record that no coroutine can continue, because all of them wait for external events."""
        work = min(1.0, len(self._running) / self._bound())
        self.time_use.turn(Doing(work, bool(self.link.outbox)), time.monotonic_ns())

    def wakes_up(self) -> None:
        """Record that coroutines continue."""
        if self.time_use.doing is not WORKING:
            self.time_use.turn(WORKING, time.monotonic_ns())

    async def _main(self) -> None:
        self._awake.listen(self.control.wake_fd)
        try:
            while not self.stopping and self._failure is None:
                await self._turn()
        except (UserError, StopRequested) as error:
            self._failure = error
        await self._end()

    async def _turn(self) -> None:
        self._awake.clear()
        if self.control.interrupted:
            self.serve_inbox()
        self._awake.watch(self.link)
        self.link.receive(self.take_frame)
        if self.checkpoints is not None and self.checkpoints.pending:
            # A cut waits until no coroutine is in progress; until then no coroutine is started.
            self.checkpoints.work(between=not self._running)
        now = time.monotonic()
        self.turn(now)
        if self._tick_s is not None and now >= self._next_tick:
            self.arm_tick(now)
            if not self._ticking and not self._cut_due():
                # Ticks that are due while a tick is in progress are skipped.
                self._ticking = True
                self._start(None, HeronTuple([], InFrame(TICK_COMPONENT, TICK_STREAM, 0, 1, now), 0))
        self._take_tuples(now)
        self.flush_acks()
        if now >= self._linger.due and self.emitter.dirty():
            self._linger.sent(now)
            self.emitter.flush()
        wanted = self.finish_requested and not self._finished and not self.opener.early_frames
        if wanted and self._idle() and not self._cut_due():
            self._finished = True
            self._run(self._finish_async(), None)
        await self._sleep(now)

    def on_link_lost(self) -> None:
        self._awake.unwatch()
        super().on_link_lost()

    # ---- tuples -------------------------------------------------------------------------------

    def _idle(self) -> bool:
        return not self.in_queue.waiting and not self.current and not self._running

    def _take_tuples(self, now: float) -> None:
        if self._cut_due():
            return
        bound = self._bound()
        waiting = self.in_queue.waiting
        while len(self._running) < bound and not self.link.outbox and (self.current or waiting):
            if not self.current:
                if not self.take_next(now):
                    if self._cut_due():
                        return
                    continue
                self._open[self.current[0].frame.number] = self.entry
            tup = self.current[self._place]
            arrived = tup.frame.trace
            if arrived is not None and arrived.place != self._place:
                arrived = None
            self._place += 1
            if self._place >= len(self.current):
                self.current, self._place = [], 0
            self._start(tup, tup, arrived)

    def _bound(self) -> int:
        # With several tuples in progress it is not known which one ends the process.
        return 1 if self.poison.careful else self._concurrency

    def _cut_due(self) -> bool:
        return self.checkpoints is not None and self.checkpoints.due is not None

    def _start(self, counted: HeronTuple | None, tup: HeronTuple, arrived: Arrived | None = None) -> None:
        """Run a coroutine for a tuple or a tick; ticks are not counted. `arrived` is set if the tuple is traced."""
        self._run(self._run_one(tup, counted is None, arrived), counted)

    def _run(self, coroutine: Coroutine[Any, Any, None], counted: HeronTuple | None) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._running[task] = counted
        task.add_done_callback(self._done)

    async def _run_one(self, tup: HeronTuple, tick: bool, arrived: Arrived | None) -> None:
        start, waited_ns, origin_ns = time.monotonic(), self.waited_ns, tup.frame.origin_ns
        marked = bool(origin_ns) and self.marks.join(origin_ns, start)
        span = self.tracer.begin(arrived) if arrived is not None else None
        try:
            if tick:
                await self.user.object.process_tick(tup)
            else:
                await self._process_one(tup)
        except (StopRequested, UserError) as error:
            self._failure = self._failure or error
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):
                if self._ending:
                    raise
                error = TopologyError(CANCELLED)
            if tick or not self.poison.raised(tup, error):
                if not tick:
                    self.acks.fail(tup)
                self._failure = self._failure or error
        if span is not None:
            self.tracer.end(span)
        if marked:
            self.marks.part(origin_ns)
        if not tick:
            now = time.monotonic()
            took_ns = (now - start) * 1e9 - (self.waited_ns - waited_ns)
            self.progress.executed += 1
            self.account.call(tup, took_ns, now)
            if took_ns > self.slow.limit_ns:
                self.slow.call(tup, took_ns, time.time())
            if origin_ns and not self.emitter.has_consumers():
                self.account.path_ended(tup, 1, time.time_ns())
            self._tuple_done(tup)

    async def _process_one(self, tup: HeronTuple) -> None:
        if type(tup.values) is DamagedValues:
            self.poison.bury_damaged(tup, tup.values)
            return
        process = self.poison.careful or self.user.object.process
        limit_s = self.settings.execute_timeout_s
        if not limit_s:
            await process(tup)
            return
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                await process(tup)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(
                f"process() has lasted longer than heron.instance.execute_timeout_s, which is {limit_s:g} s"
            ) from None

    process_function = _process_one
    asynchronous = True

    def _tuple_done(self, tup: HeronTuple) -> None:
        number = tup.frame.number
        entry = self._open[number]
        self.in_queue.done(entry, 1)
        if not entry.left:
            del self._open[number]
        if not self.current:
            self.in_queue.relieve(self.link.window_bytes / 2, self._concurrency)

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._running.pop(task, None) is None:
            self._ticking = False
        self._awake.set()

    # ---- rest and end -------------------------------------------------------------------------

    async def _finish_async(self) -> None:
        self.hold_ticks()
        try:
            again = self.checkpoints is not None and self.checkpoints.finished_before
            result = None if again else self.user.object.finish()
            if asyncio.iscoroutine(result):
                await result
        except Exception as error:
            self._failure = error
            return
        self.acks.flush()
        self.emitter.flush()
        self.set_state(control_pb2.TASK_FINISHED)

    async def _sleep(self, now: float) -> None:
        if self.stopping:
            return
        sock = self.link.sock
        cut_now = self._cut_due() and not self._running
        if cut_now or (sock is not None and readable(sock)):
            await asyncio.sleep(0)
            return
        deadline = IDLE_WAIT_S if self._idle() else HOUSEKEEPING_S
        if self.emitter.dirty():
            deadline = min(deadline, max(0.0, self._linger.due - now))
        # Without waiting tuples, the task could start more. Buffered tuples are sent first, as before any credit.
        hungry = not self.in_queue.waiting and not self.current
        if hungry and self.link.unreported() and not (self.acking and self.emitter.dirty()):
            credit_at = self._granted_at + CREDIT_EVERY_S
            if now >= credit_at:
                self._granted_at = now
                self.link.grant()
            else:
                deadline = min(deadline, credit_at - now)
        if self._idle():
            self.publish_progress(now, resting=True)
        if self._tick_s is not None:
            deadline = min(deadline, max(0.0, self._next_tick - now))
        if self.standing.readiness is not None:
            deadline = min(deadline, ASK_S)
        # A running coroutine may block the loop.
        self.note_outgoing()
        self.progress.resting = self._idle()
        try:
            async with asyncio.timeout(deadline):
                await self._awake.wait()
        except TimeoutError:
            pass
        self.progress.resting = False

    async def _end(self) -> None:
        """Wait for running coroutines, then cancel them; the tuples of cancelled coroutines fail.

        The wait ends after half of the time until the process is killed, to leave time for a clean shutdown.
        """
        self._awake.close()
        if self._running:
            await asyncio.wait(self._running, timeout=self.settings.force_exit_s / 2)
        cancelled = dict(self._running)
        self._ending = True
        for task in cancelled:
            task.cancel()
        if cancelled:
            await asyncio.wait(cancelled, timeout=self.settings.force_exit_s / 4)
        given_up = [tup for task, tup in cancelled.items() if tup is not None and (not task.done() or task.cancelled())]
        if given_up:
            log.warning("abandoned %d tuples that were in progress", len(given_up))
            self.metrics.count("__cancelled-tuples", "", len(given_up))
            if not self.progress.sends_again:
                self.progress.lost += len(given_up)
            for tup in given_up:
                self.acks.fail(tup)
        self.acks.flush()
        self.emitter.flush()

    def last_word(self) -> frame_pb2.Frame:
        """Return the LEAVE frame: all started tuples count as consumed; the successor gets all other tuples."""
        for entry in self._open.values():
            waiting = len(self.current) - self._place if self.current and entry is self.entry else 0
            self.in_queue.done(entry, entry.left - waiting)
        return super().last_word()
