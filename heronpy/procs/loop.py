"""Runs a process's main coroutine on the fastest installed event loop, and waits for changes on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any


def run_loop(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run `main` to its end and return the exit code."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None
    try:
        import uvloop
    except ImportError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main())


async def wait_until(holds: Callable[[], bool], changed: asyncio.Event, deadline: Callable[[], float]) -> bool:
    """Wait until `holds` is true; `changed` is set whenever that may have changed.

    False when the monotonic time `deadline()`, which may move, comes first.
    """
    while not holds():
        left_s = deadline() - time.monotonic()
        if left_s <= 0:
            return False
        changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await changed.wait()
    return True
