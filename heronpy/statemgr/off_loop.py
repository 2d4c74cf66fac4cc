"""Reading state from an event loop without stopping the loop while the state manager is slow or away."""

from __future__ import annotations

import asyncio
import logging

from heronpy.common.errors import RetryableError
from heronpy.statemgr.base import StateManager

log = logging.getLogger("heronpy.statemgr")


async def get_off_loop(state: StateManager, path: str) -> tuple[bytes, int] | None:
    """Data and version of a node; None when it does not exist or cannot be read at the moment."""
    try:
        return await asyncio.to_thread(state.get, path)
    except RetryableError as error:
        log.warning("%s", error)
        return None
