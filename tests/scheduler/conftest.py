"""Fixtures of the tests of schedulers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from heronpy.scheduler import reconciler, reconciler_setup
from tests.scheduler.reconciler_world import World

MakeWorld = Callable[..., AbstractAsyncContextManager[World]]


@pytest.fixture
def make_world(home: Path, monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    monkeypatch.setattr(reconciler, "PROVE_S", 0.1)

    @asynccontextmanager
    async def make(shared: str = "", **submitted: Any) -> AsyncIterator[World]:
        world = World(home, shared, **submitted)
        monkeypatch.setattr(reconciler_setup, "open_engine", lambda *_: world.engine)
        try:
            yield world
        finally:
            world.close()

    return make


@pytest.fixture
def world(make_world: MakeWorld) -> AbstractAsyncContextManager[World]:
    """A world of the test's own."""
    return make_world()
