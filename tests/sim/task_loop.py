"""The asyncio loop of a simulated task whose user code is coroutines: asyncio's own loop, on virtual time."""

from __future__ import annotations

import asyncio
import selectors
import traceback
from collections.abc import Callable
from typing import Any

from tests.sim.kernel import Dead, active_world, current_process, spend, wait_readable
from tests.sim.modules import Stand


class TaskLoop(asyncio.SelectorEventLoop):
    """`asyncio.SelectorEventLoop` of a simulated process."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._process = current_process()
        super().__init__(selector)

    def time(self) -> float:
        return active_world().now

    def _make_self_pipe(self) -> None:
        """Nothing wakes it from outside but the descriptors that it watches."""

    def _close_self_pipe(self) -> None:
        """There is no pipe."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error, process = context.get("exception"), self._process
        if not process.alive or process.world.closed or isinstance(error, Dead | asyncio.CancelledError):
            return
        text = "".join(traceback.format_exception(error)) if error else ""
        process.world.wrong(f"{process.name}: {context.get('message', '')}: {text}")


class TaskSelector(selectors._BaseSelectorImpl):  # noqa: SLF001
    """Stands in for instance.awake.WatchedSelector."""

    def __init__(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        super().__init__()
        self._before, self._after = before, after

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        process = current_process()
        if timeout is None or timeout > 0:
            self._before()
        else:
            # Callbacks are ready, so it does not wait, but a turn of the loop takes time.
            spend(process.step_s())
            timeout = 0.0
        watched = {id(process.fds[fd]): key for fd, key in self.get_map().items()}
        ready = wait_readable([process.fds[fd] for fd in self.get_map()], timeout)
        self._after()
        return [(watched[id(thing)], selectors.EVENT_READ) for thing in ready]


class Asyncio(Stand):
    real = asyncio
    SelectorEventLoop = TaskLoop
