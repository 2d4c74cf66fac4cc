"""Waits until a condition on a scheduler's data holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress


async def wait_until(holds: Callable[[], bool], changed: asyncio.Event, deadline: Callable[[], float]) -> bool:
    """Wait until `holds` returns True; `changed` is set whenever its result may have changed.

    Returns False at the monotonic time `deadline()`, which may change while waiting.
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
