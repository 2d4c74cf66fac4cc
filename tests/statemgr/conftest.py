"""The kinds of state manager that the contract tests run over."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.common.setting_types import StatemgrSettings
from heronpy.statemgr import open_state
from heronpy.statemgr.base import StateManager
from heronpy.statemgr.localfs import LocalStateManager
from tests.support.endpoints import Endpoint
from tests.support.memory_state import MemoryStateManager, MemoryStore
from tests.support.zookeeper import ZooKeeperEnsemble, ZooKeeperServer, classpath

Open = Callable[[], StateManager]
_roots = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def shared_zookeeper() -> Iterator[ZooKeeperServer | str]:
    """One server for all tests here, or the reason why it cannot run.

    It starts before the first test, which else would be blamed for leaving it behind.
    """
    jars, reason = classpath()
    if reason:
        yield reason
        return
    server = ZooKeeperServer(jars)
    yield server
    server.close()


@pytest.fixture
def zookeeper(shared_zookeeper: ZooKeeperServer | str) -> ZooKeeperServer:
    if isinstance(shared_zookeeper, str):
        if os.environ.get("HERON_TEST_ZOOKEEPER") == "required":
            pytest.fail(shared_zookeeper, pytrace=False)
        pytest.skip(shared_zookeeper)
    return shared_zookeeper


@pytest.fixture
def zookeeper_root(zookeeper: ZooKeeperServer) -> str:
    """A part of ZooKeeper that no other test uses."""
    return f"{zookeeper.hosts}/tests/{next(_roots)}"


@pytest.fixture
def any_endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    """A control endpoint of a scheduler that refuses no node."""
    endpoint = Endpoint(tmp_path / "endpoint", rules="any")
    endpoint.start()
    yield endpoint
    endpoint.kill()


@pytest.fixture(params=["local", "local-polling", "memory", "zookeeper", "endpoint"])
def open_manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens managers that share one state, each in the part of a process of its own."""
    opened: list[StateManager] = []
    store = MemoryStore()
    root = request.getfixturevalue("zookeeper_root") if request.param == "zookeeper" else ""
    endpoint: Endpoint | None = request.getfixturevalue("any_endpoint") if request.param == "endpoint" else None
    if request.param == "local-polling":

        def unavailable(self: object) -> None:
            raise OSError(24, "inotify is exhausted")

        monkeypatch.setattr("heronpy.statemgr.watcher._Inotify.__init__", unavailable)

    def open_one() -> StateManager:
        manager: StateManager
        if request.param == "memory":
            manager = MemoryStateManager(store)
        elif request.param == "zookeeper":
            manager = open_state("zookeeper", root)
        elif endpoint is not None:
            manager = endpoint.open(len(opened))
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


@pytest.fixture
def make(zookeeper_root: str) -> Iterator[Callable[..., StateManager]]:
    """Opens managers on one root; settings may be given."""
    from heronpy.statemgr.zookeeper import ZooKeeperStateManager  # needs kazoo

    opened: list[ZooKeeperStateManager] = []

    def make_one(root: str = zookeeper_root, **settings: Any) -> ZooKeeperStateManager:
        manager = ZooKeeperStateManager(root, StatemgrSettings(**settings))
        opened.append(manager)
        return manager

    yield make_one
    for manager in opened:
        manager.close()


@pytest.fixture
def raw(zookeeper: ZooKeeperServer) -> Iterator[Any]:
    """A client that sees the znodes themselves."""
    from kazoo.client import KazooClient

    client = KazooClient(zookeeper.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def own_server(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperServer]:
    """A server that a test may stop."""
    server = ZooKeeperServer(classpath()[0])
    yield server
    server.close()


@pytest.fixture
def ensemble(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperEnsemble]:
    """Three servers that a test may stop."""
    made = ZooKeeperEnsemble(classpath()[0])
    yield made
    made.close()
