"""Starts the containers of a host as an engine does, with an endpoint that the test controls."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from heronpy.plan.launch import Submitted
from tests.support.fake_endpoint import FakeEndpoint, start_bootstrap
from tests.support.launch import launch_spec
from tests.support.leaks import LeakCheck
from tests.support.waiting import eventually, wait_for


@pytest.fixture
def tmp() -> Iterator[Path]:
    """Yield a host's folder for temporary files, with a short name; wait until no process uses it."""
    folder = Path(tempfile.mkdtemp(prefix="hb", dir="/tmp"))
    check = LeakCheck()
    yield folder
    wait_for(lambda: not processes_in(folder), 10, "the end of all processes")
    assert not check.leaks()
    shutil.rmtree(folder)


def processes_in(tmp: Path) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                environ = Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if f"TMPDIR={tmp}\0".encode() in environ:
                found.append(int(name))
    return found


def left_in(tmp: Path) -> list[str]:
    """Return the remaining files and folders of containers, except packages and what all containers share."""
    own = tmp / f"heron-{os.getuid()}"
    known = {own, own / "packages", own / "containers", own / "containers" / ".lock"}
    return [str(path) for path in own.rglob("*") if path not in known and own / "packages" not in path.parents]


def submitted(**fields: Any) -> Submitted:
    return launch_spec("wc", "wc-1", Path("/nowhere"), **fields).submitted


class Host:
    """Starts containers with one folder for temporary files, and kills the processes that a failed test leaves."""

    def __init__(self, endpoint: FakeEndpoint, tmp: Path) -> None:
        self.endpoint, self.tmp = endpoint, tmp
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, container: int = 1, submission: int = 1, **options: Any) -> subprocess.Popen[bytes]:
        self.processes.append(start_bootstrap(self.endpoint, container, submission, self.tmp, **options))
        return self.processes[-1]

    async def acting(self, container: int = 1, epoch: int = 1) -> dict[str, Any]:
        """Wait for the start of the executor; return how it was started."""
        file = self.tmp / f"started-{container}-{epoch}"
        await eventually(file.exists, 20, f"the start of container {container} in epoch {epoch}")
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    async def run(self, container: int = 1, submission: int = 1, epoch: int = 1, **options: Any) -> Any:
        process = self.start(container, submission, **options)
        self.endpoint.activate(container, submission, epoch)
        return process, await self.acting(container, epoch)

    async def ended(self, process: subprocess.Popen[bytes], timeout_s: float = 15) -> int:
        await eventually(lambda: process.poll() is not None, timeout_s, "the end of the container")
        return process.wait()

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()


@asynccontextmanager
async def at_endpoint(tmp: Path, **fields: Any) -> AsyncIterator[tuple[FakeEndpoint, Host]]:
    endpoint = FakeEndpoint(**{"submitted": submitted(), **fields})
    host = Host(endpoint, tmp)
    try:
        yield endpoint, host
    finally:
        host.close()
        endpoint.close()
