"""An event loop of asyncio on virtual time: as much of one as the product's shells use."""

from __future__ import annotations

import asyncio
import contextvars
import traceback
import warnings
from asyncio import _set_running_loop
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.sim.kernel import Dead, Process, Thread

#: Timers in a second that were due when they were set, beyond which a process goes round in circles.
LATE_MAX = 2000


class VirtualLoop(asyncio.AbstractEventLoop):
    """The loop of one simulated process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        process.loop = self
        self._ready: deque[asyncio.Handle] = deque()
        self._turning = False
        self._readers: dict[int, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        #: Timers that were due when they were set, in the second that is named first.
        self._late = [0, 0]

    # ---- time and callbacks -------------------------------------------------------------------

    def time(self) -> float:
        return self.process.world.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._turning:
            self._turning = True
            self.process.soon(self._turn)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if when <= self.time():
            self._look(callback)
        late = max(when, self.time()) + self.process.step_s()
        self.process.world.at(late, self.process, self._run, handle)
        return handle

    def _look(self, callback: Any) -> None:
        """A timer is set that is due already: now and then is well, again and again is a process that spins."""
        second = int(self.time())
        self._late = [second, self._late[1] + 1 if self._late[0] == second else 1]
        if self._late[1] > LATE_MAX and self.process.alive:
            self.process.world.wrong(f"{self.process.name} spins: its timer for {callback} is due when it is set")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are passed over when their time comes."""

    def _turn(self) -> None:
        self._turning = False
        for _ in range(len(self._ready)):
            self._run(self._ready.popleft())
            if not self.process.alive:
                return

    def _run(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        _set_running_loop(self)
        try:
            handle._run()
        finally:
            _set_running_loop(None)

    def begin(self, make: Callable[[], Any]) -> asyncio.Task[Any]:
        """Make a coroutine and run it, in this loop."""
        _set_running_loop(self)
        try:
            return self.create_task(make())
        finally:
            _set_running_loop(None)

    # ---- descriptors --------------------------------------------------------------------------

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:
        self._readers[fd] = (callback, args)
        self.edge(fd)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def edge(self, fd: int) -> None:
        """A descriptor may have become readable."""
        if fd in self._readers:
            self.process.soon(self._readable, fd)

    def _readable(self, fd: int) -> None:
        found = self._readers.get(fd)
        if found is None or not self.process.fds[fd].readable():
            return
        callback, args = found
        self._run(asyncio.Handle(callback, args, self))
        self.edge(fd)

    # ---- tasks and threads --------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:
                self.call_soon(_settle, future, None, error)
            else:
                self.call_soon(_settle, future, result, None)

        Thread(self.process, work).start()
        return future

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:
        self.process.on_sigterm = lambda: self.call_soon(callback, *args) and None

    def remove_signal_handler(self, sig: int) -> bool:
        return True

    # ---- trouble ------------------------------------------------------------------------------

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        process = self.process
        if not process.alive or process.world.closed or isinstance(error, Dead | asyncio.CancelledError):
            return
        text = "".join(traceback.format_exception(error)) if error else context.get("message", "")
        process.world.wrong(f"{process.name}: {context.get('message', '')}: {text}")

    def bury(self) -> None:
        """The world has ended: drop all tasks and callbacks."""
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        with warnings.catch_warnings():
            # Coroutines that nobody will await any more.
            warnings.simplefilter("ignore", RuntimeWarning)
            for task in self._tasks:
                if not task.done():
                    contextvars.copy_context().run(_close, task.get_coro())
            self._ready.clear()


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _close(coro: Any) -> None:
    try:
        coro.close()
    except BaseException:
        return
