"""The kinds of state manager that the contract tests run over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heronpy.statemgr.base import StateManager
from heronpy.statemgr.localfs import LocalStateManager
from heronpy.statemgr.memory import MemoryStateManager, MemoryStore

Open = Callable[[], StateManager]


@pytest.fixture(params=["local", "local-polling", "memory"])
def open_manager(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Open]:
    """Opens managers that share one state, each in the part of a process of its own."""
    opened: list[StateManager] = []
    store = MemoryStore()
    if request.param == "local-polling":

        def unavailable(self: object) -> None:
            raise OSError(24, "inotify is exhausted")

        monkeypatch.setattr("heronpy.statemgr.watcher._Inotify.__init__", unavailable)

    def open_one() -> StateManager:
        manager: StateManager
        if request.param == "memory":
            manager = MemoryStateManager(store)
        else:
            manager = LocalStateManager(tmp_path / "state")
        opened.append(manager)
        return manager

    yield open_one
    for manager in opened:
        manager.close()


@pytest.fixture
def state(open_manager: Open) -> StateManager:
    return open_manager()
