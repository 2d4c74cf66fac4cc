"""Runs a process's main coroutine on the fastest installed event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def run_loop(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run `main` until it ends; returns its exit code."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None
    try:
        import uvloop
    except ImportError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main())
