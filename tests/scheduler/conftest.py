"""Fixtures of the tests of schedulers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from heronpy.scheduler import reconciler, reconciler_setup
from tests.scheduler.reconciler_world import World


@pytest.fixture
def play(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run a story with a world of its own."""
    monkeypatch.setattr(reconciler, "PROVE_S", 0.1)

    def run(story: Callable[[World], Awaitable[None]], shared: str = "", **submitted: Any) -> None:
        async def tell() -> None:
            world = World(home, shared, **submitted)
            monkeypatch.setattr(reconciler_setup, "open_engine", lambda *_: world.engine)
            try:
                await story(world)
            finally:
                world.close()

        asyncio.run(tell())

    return run
