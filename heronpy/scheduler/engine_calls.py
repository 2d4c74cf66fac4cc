"""Calls to an engine, one at a time, in a thread of their own: an engine that hangs stops nothing but further calls.

A call that is not back in time raises EngineAwayError; the thread stays with it, and calls meanwhile raise the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from heronpy.engines.contract import EngineAwayError

T = TypeVar("T")


class EngineCalls:
    """`deadline_s` is longer than the engine's own deadlines, which are the rule."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        #: When the call that runs now was begun.
        self._since: float | None = None
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    async def call(self, work: Callable[[], T]) -> T:
        """What the call returns or raises. Only one may be waited for at a time."""
        if self._since is not None:
            raise EngineAwayError(f"a call to the engine has hung for {time.monotonic() - self._since:.0f} s")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._since = time.monotonic()

        def done(result: Any, error: BaseException | None) -> None:
            self._since = None
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        def run() -> None:
            result, failure = None, None
            try:
                result = work()
            except BaseException as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(done, result, failure)

        self._work.put(run)
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.shield(answer)
        except TimeoutError:
            answer.cancel()
            raise EngineAwayError(f"the engine has not answered within {self._deadline_s:g} s") from None

    def close(self) -> None:
        """No further calls; one that hangs is left alone."""
        self._work.put(None)
