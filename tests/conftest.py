"""Fixtures of all tests: a private HERON_HOME, the command in it, and a check that nothing is left behind."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from heronpy.storage.objects import remote
from tests.support import warm
from tests.support.azure_server import AzureServer
from tests.support.azure_server import why_not as azure_server_missing
from tests.support.command import Heron
from tests.support.leaks import LeakCheck
from tests.support.object_server import ObjectServer
from tests.support.object_server import why_not as object_server_missing

# How long an example takes is a matter of the machine, and of no test.
settings.register_profile("heronpy", deadline=None)
settings.load_profile("heronpy")

# An environment that forbids Python to keep bytecode makes every process that a test starts compile the runtime again, and every
# worker of pytest rewrite the asserts of all tests again: more than half of the time of both.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Whoever runs the tests in the background may ignore it, and so would all processes that the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on a loop of its own; fixtures that are asynchronous contexts are entered there."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None

    async def run() -> None:
        async with AsyncExitStack() as stack:
            given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
            for name, value in given.items():
                if isinstance(value, AbstractAsyncContextManager):
                    given[name] = await stack.enter_async_context(value)
            await test(**given)

    asyncio.run(run())
    return True


@pytest.fixture(autouse=True)
def leak_check() -> Iterator[None]:
    """Fail the test that leaves child processes or open files, pipes and sockets."""
    check = LeakCheck()
    yield
    leaks = check.leaks()
    if leaks:
        pytest.fail("left behind: " + "; ".join(leaks), pytrace=False)


@pytest.fixture
def home(leak_check: None, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A temporary HERON_HOME, and a temporary folder of its own so that sockets are private too.

    When the test is over no process may run under it and no socket may be left in it.
    """
    # Else the first tmp_path of the session would be made in the temporary folder of a single test.
    tmp_path_factory.getbasetemp()
    # Not tmp_path: paths of ipc sockets are limited to 107 bytes.
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as folder:
        root = Path(folder) / "home"
        sockets = Path(folder) / "t"
        for path in (root, sockets):
            path.mkdir(mode=0o700)
        monkeypatch.setenv("HERON_HOME", str(root))
        # What the user of this machine has configured is of no test.
        monkeypatch.setenv("XDG_CONFIG_HOME", str(Path(folder) / "config"))
        monkeypatch.setenv("TMPDIR", str(sockets))
        monkeypatch.setattr(tempfile, "tempdir", str(sockets))
        yield root
        check = LeakCheck(home=str(root), sockets=sockets)
        leaks = check.leaks_of_home()
        if leaks:
            check.kill_home()
            pytest.fail("left behind: " + "; ".join(leaks), pytrace=False)
    assert os.environ.get("HERON_HOME") is not None


@pytest.fixture(scope="session")
def warm_commands() -> Iterator[None]:
    """The process that runs what `Heron` reads."""
    warm.here = warm.Warm()
    yield
    warm.here.close()
    warm.here = None


@pytest.fixture
def heron(warm_commands: None, home: Path) -> Iterator[Heron]:
    """`heron` with a home of its own; whatever the test leaves running is killed."""
    command = Heron(home)
    yield command
    for name in command.names():
        command.kill(name)
    command.check_clean()


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectServer]:
    """An S3 server for all tests of this process."""
    if reason := object_server_missing():
        pytest.skip(reason)
    server = ObjectServer()
    yield server
    server.kill()


@pytest.fixture
def bucket(object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a new bucket, which this process and those that it starts can use; no faults."""
    object_server.set()
    for name, value in object_server.environment.items():
        monkeypatch.setenv(name, value)
    yield object_server.make_bucket(f"test-{uuid.uuid4().hex[:12]}")
    object_server.set()
    remote.open_client.cache_clear()


@pytest.fixture(scope="session")
def azure_server() -> Iterator[AzureServer]:
    """Azurite for all tests of this process."""
    if reason := azure_server_missing():
        pytest.skip(reason)
    server = AzureServer()
    yield server
    server.close()


@pytest.fixture
def azure_container(azure_server: AzureServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a new container of Azure, which this process and those that it starts can use."""
    for name, value in azure_server.environment.items():
        monkeypatch.setenv(name, value)
    yield azure_server.make_container(f"test-{uuid.uuid4().hex[:12]}")
    remote.open_client.cache_clear()
