"""The loop of an asynchronous bolt: `async def process`, many tuples in progress, a bound on them.

The same frames, acks and flushes as in bolt_loop.py, on an asyncio loop. At most
`heron.instance.async_concurrency` coroutines run at once; while that many do, no further tuple is
taken, so credit is withheld and backpressure works as for any bolt. A coroutine that raises fails its
tuple and restarts the task, as a synchronous `process` does.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import zmq

from heronpy.proto import control_pb2 as control

from .bolt_loop import IDLE_WAIT_S, BoltTask
from .task import UserError
from .tuples import HeronTuple

#: How often progress is published and the socket is looked at again, whatever its descriptor says.
HOUSEKEEPING_S = 0.05


class AsyncBoltTask(BoltTask):
    """One task of an AsyncBolt."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._running: set[asyncio.Task[None]] = set()
        #: Tuples of a frame that are not done yet, by identity of the frame.
        self._open_frames: dict[int, tuple[Any, int, int]] = {}
        self._failure: BaseException | None = None
        self._awake: asyncio.Event

    def run_loop(self) -> None:
        """Run the asyncio loop until asked to stop."""
        self._tick_s = self.user.tick_interval_s()
        self._next_tick = time.monotonic() + (self._tick_s or 0)
        self.set_state(control.TASK_RUNNING)
        asyncio.run(self._main())
        if self._failure is not None:
            raise UserError from self._failure

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        self._awake = asyncio.Event()
        loop.add_reader(self.control.wake_fd, self._awake.set)
        watched = -1
        while not self.stopping and self._failure is None:
            self._awake.clear()
            if self.control.inbox:
                self.serve_inbox()
            if self.link.fd != watched:
                if watched >= 0:
                    loop.remove_reader(watched)
                watched = self.link.fd
                loop.add_reader(watched, self._awake.set)
            self.link.receive(self.take_frame)
            now = time.monotonic()
            self.turn(now)
            if self._tick_s is not None and now >= self._next_tick:
                self._next_tick = max(self._next_tick + self._tick_s, now)
                self._start(self._tick_tuple(now), tick=True)
            self._take_tuples(now)
            self.acks.flush()
            self.progress.acked, self.progress.failed = self.acks.ack_count, self.acks.fail_count
            self.emitter.flush()
            if self._idle() and self.finish_requested and not self._finished:
                await self._finish_async()
            await self._sleep(now)
        await self._end()

    def _idle(self) -> bool:
        return not self.queue and not self.current and not self._running

    def _take_tuples(self, now: float) -> None:
        """Start coroutines up to the bound."""
        bound = self.settings.async_concurrency
        while len(self._running) < bound and not self.link.outbox and (self.current or self.queue):
            if not self.current:
                frame, size = self.queue.popleft()
                self.current = self.open_frame(frame, now)
                self._place = frame.skip and 0
                self._open_frames[id(self.current[0].frame)] = (self.current[0].frame, size, len(self.current))
            tup = self.current[self._place]
            self._place += 1
            if self._place >= len(self.current):
                self.current, self._place = [], 0
            self._start(tup)

    def _tick_tuple(self, now: float) -> HeronTuple:
        from .bolt_loop import TICK_COMPONENT, TICK_STREAM
        from .tuples import InFrame

        return HeronTuple([], InFrame(TICK_COMPONENT, TICK_STREAM, 0, 1, now), 0)

    def _start(self, tup: HeronTuple, tick: bool = False) -> None:
        task = asyncio.get_running_loop().create_task(self._run_one(tup, tick))
        self._running.add(task)
        task.add_done_callback(self._done)

    async def _run_one(self, tup: HeronTuple, tick: bool) -> None:
        start = time.monotonic()
        try:
            await (self.user.object.process_tick(tup) if tick else self.user.object.process(tup))
        except Exception as error:
            if not tick:
                self.acks.failed.append(tup)
            if self._failure is None:
                self._failure = error
        if tick:
            return
        frame = tup.frame
        self._account(frame, 1, time.monotonic() - start)
        _, size, left = self._open_frames[id(frame)]
        if left > 1:
            self._open_frames[id(frame)] = (frame, size, left - 1)
        else:
            del self._open_frames[id(frame)]
            self._frame_done(size, frame.count)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._awake.set()

    async def _finish_async(self) -> None:
        self._finished = True
        try:
            result = self.user.object.finish()
            if asyncio.iscoroutine(result):
                await result
        except Exception as error:
            self._failure = error
            return
        self.acks.flush()
        self.emitter.flush()
        self.set_state(control.TASK_FINISHED)

    async def _sleep(self, now: float) -> None:
        """Wait for a frame, a message, the end of a coroutine or a tick."""
        sock = self.link.sock
        if sock is not None and sock.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            await asyncio.sleep(0)
            return
        deadline = IDLE_WAIT_S if self._idle() else HOUSEKEEPING_S
        if self._idle():
            if self.link.unreported():
                self.link.grant()
            self.publish_progress(now, resting=True)
        if self._tick_s is not None:
            deadline = min(deadline, max(0.0, self._next_tick - now))
        try:
            await asyncio.wait_for(self._awake.wait(), deadline)
        except TimeoutError:
            pass

    async def _end(self) -> None:
        """Give running coroutines a moment, then cancel them; their tuples are not acked."""
        if self._running and self._failure is None:
            await asyncio.wait(self._running, timeout=self.settings.force_exit_s)
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.gather(*self._running, return_exceptions=True)
        self.acks.flush()
        self.emitter.flush()

    def last_word(self) -> Any:
        """Frames with tuples in progress count as not consumed: at least once, not at most once."""
        frame = super().last_word()
        frame.skip = 0
        return frame
