"""The engine `local` with containers on hosts made of namespaces. The end of containers on a lost host is not
confirmed.

The engine's kind is "hosts"; `offer` registers it like an installed package. HERON_TEST_ENGINE names the folder with
the list of hosts, which `on_hosts` writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from heronpy.engines.contract import Ended, EnginePhase, Request, Seen, Traits
from heronpy.engines.local.engine import LocalEngine
from tests.support.hosts import SimHost
from tests.support.local_engine import shell_of
from tests.support.waiting import alive

KIND = "hosts"


def offer(folder: Path) -> dict[str, str]:
    """Write the engine's package to `folder`; return the environment variables that register the engine."""
    info = folder / "offered" / "heron_test_engine-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: heron-test-engine\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[heronpy.engines]\n{KIND} = tests.support.host_engine:open_engine\n")
    root = Path(__file__).parents[2]
    return {
        "PYTHONPATH": os.pathsep.join((str(info.parent), str(root), os.environ.get("PYTHONPATH", ""))),
        "HERON_TEST_ENGINE": str(folder),
    }


def on_hosts(folder: Path, address: str, hosts: Sequence[SimHost]) -> None:
    """Make the engine of a folder place its containers on these hosts, which reach this machine at this address."""
    content = {"address": address, "hosts": {host.name: host.pid for host in hosts}}
    (folder / "hosts").write_text(json.dumps(content))


def open_engine(settings: object, topology_id: str, command: Sequence[str]) -> HostEngine:
    return HostEngine(topology_id, command, poll_s=0.2)


class HostEngine(LocalEngine):
    traits = Traits()

    def __init__(self, topology_id: str, command: Sequence[str], poll_s: float) -> None:
        super().__init__(topology_id, command, poll_s)
        found = json.loads((Path(os.environ["HERON_TEST_ENGINE"]) / "hosts").read_text())
        self._address: str = found["address"]
        self._hosts: dict[str, int] = found["hosts"]

    def _placed(self, request: Request) -> tuple[str, Sequence[str]]:
        living = [name for name, pid in self._hosts.items() if alive(pid)]
        free = [name for name in living if name not in request.avoid] or living
        host, through = "here", list[str]()
        if free:
            host = free[request.container % len(free)]
            through = ["nsenter", "-t", str(self._hosts[host]), "-m", "-p", "-n", "-u", "--"]
        (self._folder / f"{request.container}-{request.submission}.host").write_text(host)
        return host, [*through, *self._command]

    def _terminate(self, file: Path) -> None:
        """End the container itself, because a signal would end only the process that has entered the host."""
        with suppress(psutil.Error):
            for child in psutil.Process(shell_of(file)).children():
                for one in child.children() if child.name() == "nsenter" else [child]:
                    one.terminate()

    def _seen(self, file: Path) -> Seen:
        seen = replace(super()._seen(file), host=file.with_suffix(".host").read_text())
        if seen.host in self._hosts and not alive(self._hosts[seen.host]):
            words = f"host {seen.host} is gone"
            return replace(
                seen, phase=EnginePhase.ENDED, ended=Ended.UNCONFIRMED, reason=None, exit_code=None, words=words
            )
        return seen

    def reach(self) -> tuple[str, ...]:
        return (self._address,)

    def ready(self, hosts: Collection[str]) -> set[str]:
        return {*hosts}
