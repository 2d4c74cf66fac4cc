"""The asyncio tasks of a process: every failure is reported, and all tasks end with the process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from heronpy.common.clock import shared_moment

log = logging.getLogger("heronpy.procs")


class Jobs:
    """Runs jobs and logs every failure; `on_failure` is for processes that cannot continue after a failure."""

    def __init__(self, on_failure: Callable[[], None] = lambda: None, group: int = 0) -> None:
        """`every` makes its calls at moments that all processes of `group` share (see `shared_moment`)."""
        self._on_failure = on_failure
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, job: Coroutine[Any, Any, None]) -> None:
        """Run a job until it ends or the process ends."""
        task = asyncio.create_task(self._guard(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, job: Coroutine[Any, Any, None]) -> None:
        try:
            await job
        except Exception:
            log.exception("%r failed", job)
            self._on_failure()

    def every(self, interval_s: float, call: Callable[[], None]) -> None:
        """Repeat a call every `interval_s` seconds, even if it fails."""

        async def repeat() -> None:
            while True:
                now = time.monotonic()
                await asyncio.sleep(shared_moment(now, interval_s, self._group) - now if interval_s else 0.0)
                self.call(call)

        self.start(repeat())

    def call(self, call: Callable[[], None]) -> None:
        """Run a callback, for example of a timer, and log its failure."""
        try:
            call()
        except Exception:
            log.exception("%r failed", call)
            self._on_failure()

    async def close(self) -> None:
        """Cancel all jobs and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
