"""Reads state from an event loop without blocking the loop while the state manager is slow or unreachable."""

from __future__ import annotations

import asyncio
import logging

from heronpy.common.errors import RetryableError
from heronpy.statemgr.base import StateManager

log = logging.getLogger("heronpy.statemgr")


async def get_off_loop(state: StateManager, path: str) -> tuple[bytes, int] | None:
    """Data and version of a node; None if it does not exist or cannot be read now."""
    try:
        return await asyncio.to_thread(state.get, path)
    except RetryableError as error:
        log.warning("%s", error)
        return None
