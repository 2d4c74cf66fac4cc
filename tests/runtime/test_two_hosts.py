"""Real executors on two hosts, each with its own network, processes and /tmp: nothing but the endpoint connects them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from msgspec.structs import replace

from heronpy.plan.launch import Submitted
from heronpy.proto import plan_pb2
from heronpy.scheduler.state_endpoint import StateEndpoint
from heronpy.statemgr import open_state, paths
from heronpy.statemgr.base import StateManager
from tests.runtime.programs.shapes import WORDS
from tests.runtime.test_exact import COUNT, PROGRAMS, tally
from tests.support import hosts as sim_hosts
from tests.support.command import Heron
from tests.support.fake_endpoint import PIECE_BYTES, FakeEndpoint, start_bootstrap
from tests.support.hosts import SimHost, made_hosts, needs_hosts
from tests.support.waiting import eventually

NAME = "shapes"
#: Container to host.
PLACES = {0: 0, 1: 0, 2: 1}
NODES = (paths.topology(NAME), paths.packing_plan(NAME), paths.launch(NAME))


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that all hosts reach."""
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/var/tmp") as folder:
        yield Path(folder)


def submitted_here(heron: Heron, shared: Path) -> tuple[Submitted, bytes, Path]:
    """What a submit makes, taken from one on this machine: the launch, the package as a tar file, the state."""
    out = shared / "out"
    out.mkdir()
    flags = ("--out", out, "--count", COUNT, "--guarantee", "ATLEAST_ONCE", "--containers", 2)
    heron.submit(PROGRAMS / "shapes.py", NAME, *flags)
    with closing(open_state("local", str(heron.home / "state" / "local"))) as state:
        taken = {path: node[0] for path in NODES if (node := state.get(path)) is not None}
    heron.kill(NAME)
    shutil.rmtree(out)
    out.mkdir()
    assert taken.keys() == set(NODES)
    submitted = Submitted.from_bytes(taken[paths.launch(NAME)], "test")
    archive = BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(heron.home / "packages" / (submitted.package or ""), ".")
    with closing(open_state("local", str(shared / "state"))) as state:
        record = plan_pb2.ExecutionState(topology=NAME, topology_id=submitted.topology_id, cluster="local")
        state.create(paths.execution_state(NAME), record.SerializeToString())
        for path, data in taken.items():
            state.create(path, data)
    security = {**submitted.settings["security"], "transport": "tcp", "port_range": "20000-20999"}
    return replace(submitted, settings={**submitted.settings, "security": security}), archive.getvalue(), out


class EndpointWithState(FakeEndpoint):
    """The control endpoint of the test, which serves the state as well."""

    def serve(self, state: StateManager) -> None:
        self._state_endpoint = StateEndpoint(state, NAME, time.monotonic)
        self._ticks = asyncio.ensure_future(self._tick())

    async def _tick(self) -> None:
        while True:
            self._state_endpoint.tick(time.monotonic())
            await asyncio.sleep(0.25)

    async def more(self, identity: bytes, kind: str, body: Any) -> Message | None:
        assert kind == "state_call", kind
        return await self._state_endpoint.call(
            body, body.credential.container, 0, lambda changed: self.send(identity, changed)
        )

    def close(self) -> None:
        self._ticks.cancel()
        super().close()
        self._state_endpoint.close()


@needs_hosts
@pytest.mark.heavy
def test_words_are_counted_over_two_hosts(heron: Heron, shared: Path) -> None:
    submitted, archive, out = submitted_here(heron, shared)

    async def main(address: str, hosts: list[SimHost], state: StateManager) -> None:
        endpoint = EndpointWithState(
            submitted, address, str(submitted.package), archive, renew_s=1.0, fence_s=10.0, stop_grace_s=5.0
        )
        endpoint.serve(state)
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for container, host in PLACES.items():
                endpoint.activate(container, 1, state.counter(paths.epoch(NAME, f"container-{container}")))
                start = partial(start_bootstrap, endpoint, container, 1, Path("/tmp"), "heronpy.executor.bootstrap")
                processes.append(start(through=hosts[host].command()))
            await eventually(lambda: len(endpoint.all("start_spans")) == len(PLACES), 60, "the start of all executors")
            expected = Counter(WORDS[n % len(WORDS)] for n in range(COUNT))
            await eventually(lambda: tally(out, "word_count")[0] == expected, 60, "the exact counts")
            for host in hosts:
                (own,) = (host.tmp / f"heron-{os.getuid()}" / "containers").glob("*.[12].1@*")
                here = json.loads((own / "here.json").read_text())
                assert here["address"] == host.address and here["state_root"] == ""
                packages = os.listdir(host.tmp / f"heron-{os.getuid()}" / "packages")
                assert [name for name in packages if not name.startswith(".")] == [submitted.package]
            pieces = len(archive) // PIECE_BYTES + 2
            assert endpoint.reads == pieces * len(hosts), "one transfer for each host"
            # The first process of a container is killed: all of it dies, and its successor cleans up.
            home = hosts[1].tmp / f"heron-{os.getuid()}"
            (first,) = [one for one in hosts[1].processes() if "heronpy.executor.bootstrap" in one]
            hosts[1].run("kill", "-KILL", first.partition(":")[0])
            await eventually(lambda: not hosts[1].processes(), 10, "the end of what was below the killed process")
            [left] = (home / "containers").glob("*.2.1@*")
            assert left.name.startswith(f"{submitted.topology_id}.2.1@")
            endpoint.activate(2, 2, state.counter(paths.epoch(NAME, "container-2")))
            start = partial(start_bootstrap, endpoint, 2, 2, Path("/tmp"), "heronpy.executor.bootstrap")
            processes.append(start(through=hosts[1].command()))
            await eventually(
                lambda: len(endpoint.all("start_spans")) == len(PLACES) + 1, 60, "the start of the successor"
            )
            assert not list((home / "containers").glob("*.2.1@*")) and endpoint.reads == pieces * len(hosts)
            for process in processes:
                process.terminate()
            await eventually(lambda: len(endpoint.all("leave")) == len(PLACES), 10, "the leave of all containers")
            for host in hosts:
                await eventually(lambda host=host: not host.processes(), 30, f"the end of what runs on {host.name}")
                home = host.tmp / f"heron-{os.getuid()}"
                assert sorted(os.listdir(home)) == ["containers", "packages"]
                assert os.listdir(home / "containers") == [".lock"]
                assert sorted(os.listdir(host.tmp)) == [".up", home.name]
        except BaseException:
            for host in hosts:
                for log in sorted(host.tmp.rglob("*.log")):
                    print(f"==== {host.name} {log.name}", log.read_text()[-3000:], sep="\n")
            for process in processes:
                process.kill()
            raise
        finally:
            endpoint.close()
            for process in processes:
                assert process.stderr is not None
                process.stderr.close()

    with made_hosts(2) as (address, hosts), closing(open_state("local", str(shared / "state"))) as state:
        asyncio.run(main(address, hosts, state))


def test_where_hosts_are_required_tests_fail_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim_hosts, "can_make_hosts", lambda: False)
    with pytest.raises(pytest.fail.Exception, match="namespaces"), made_hosts(1):
        pass
