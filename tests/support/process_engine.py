"""An engine that starts containers as processes of this machine, for a scheduler that is a process of its own.

Its kind is "processes"; `offer` lets installed packages offer it. What it has started is in files, so that the next
scheduler's engine sees it as well. `HERON_TEST_ENGINE` names their folder, `HERON_TEST_CONTAINER` the module that runs.

With a file `hosts` in that folder, as `on_hosts` makes it, they run on hosts made of namespaces. The end of what ran on
a host that is gone is not confirmed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from heronpy.engines.contract import Ended, EnginePhase, Explained, Found, NodeSize, Request, Seen
from heronpy.procs.exit_reason import ExitHints, classify
from tests.support.hosts import SimHost
from tests.support.waiting import alive

KIND = "processes"
#: The first process of a container dies with its parent, which must not be the scheduler.
_WRAPPER = '"$@"; echo $? > "$STATUS"'


def offer(folder: Path) -> dict[str, str]:
    """Environment in which the engine is offered; `folder` gets what it needs."""
    info = folder / "offered" / "heron_test_engine-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: heron-test-engine\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[heronpy.engines]\n{KIND} = tests.support.process_engine:open_engine\n")
    (folder / "objects").mkdir()
    root = Path(__file__).parents[2]
    return {
        "PYTHONPATH": os.pathsep.join((str(info.parent), str(root), os.environ.get("PYTHONPATH", ""))),
        "HERON_TEST_ENGINE": str(folder / "objects"),
        "HERON_TEST_CONTAINER": "heronpy.executor.bootstrap",
    }


def on_hosts(folder: Path, address: str, hosts: Sequence[SimHost]) -> None:
    """Let the engine of a folder place its containers on hosts, which reach this machine at an address."""
    content = {"address": address, "hosts": {host.name: host.pid for host in hosts}}
    (folder / "objects" / "hosts").write_text(json.dumps(content))


def open_engine(settings: object, topology_id: str, command: Sequence[str]) -> ProcessEngine:
    return ProcessEngine(topology_id, Path(os.environ["HERON_TEST_ENGINE"]))


class ProcessEngine:
    def __init__(self, topology_id: str, folder: Path) -> None:
        self._topology_id = topology_id
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        given = folder / "hosts"
        found = json.loads(given.read_text()) if given.exists() else {"address": "127.0.0.1", "hosts": {}}
        self._address: str = found["address"]
        self._hosts: dict[str, int] = found["hosts"]

    def _place(self, request: Request) -> tuple[str, list[str]]:
        """The host of a container, with the words that run a command there."""
        free = [name for name, pid in self._hosts.items() if name not in request.avoid and alive(pid)]
        if not free:
            return "here", []
        host = free[request.container % len(free)]
        return host, ["nsenter", "-t", str(self._hosts[host]), "-m", "-p", "-n", "-u", "--"]

    def check(self) -> Sequence[Found]:
        return []

    def node_sizes(self) -> Sequence[NodeSize]:
        return []

    def submit(self, requests: Sequence[Request]) -> dict[tuple[int, int], str]:
        ids = {}
        for one in requests:
            name = f"{one.container}.{one.submission}"
            env = {
                **os.environ,
                "HERON_TOPOLOGY_ID": self._topology_id,
                "HERON_CONTAINER": str(one.container),
                "HERON_SUBMISSION": str(one.submission),
                "STATUS": str(self._folder / f"{name}.status"),
            }
            host, through = self._place(one)
            with open(self._folder / f"{name}.out", "wb") as out:
                process = subprocess.Popen(
                    ["sh", "-c", _WRAPPER, "sh", *through, sys.executable, "-Pm", os.environ["HERON_TEST_CONTAINER"]],
                    env=env,
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            assert process.stdin is not None
            process.stdin.write(one.token.encode())
            process.stdin.close()
            self._started.append(process)
            (self._folder / f"{name}.json").write_text(json.dumps({"pid": process.pid, "host": host}))
            ids[one.container, one.submission] = name
        return ids

    def list(self) -> Sequence[Seen]:
        for process in self._started:
            process.poll()
        return [self._seen(file) for file in sorted(self._folder.glob("*.json"))]

    def _seen(self, file: Path) -> Seen:
        container, submission = map(int, file.stem.split("."))
        host = json.loads(file.read_text())["host"]
        if host in self._hosts and not alive(self._hosts[host]):
            words = f"host {host} is gone"
            return Seen(file.stem, container, submission, EnginePhase.ENDED, host, Ended.UNCONFIRMED, words=words)
        if alive(pid_of(file)):
            return Seen(file.stem, container, submission, EnginePhase.RUNNING, host)
        try:
            code = int(file.with_suffix(".status").read_text())
        except (OSError, ValueError):
            code = 128 + signal.SIGKILL
        reason = classify(code - 128 if code > 128 else code << 8, ExitHints())
        words = f"exit code {code}"
        return Seen(
            file.stem, container, submission, EnginePhase.ENDED, host, Ended.CONFIRMED, reason, code, words=words
        )

    def cancel(self, engine_ids: Sequence[str], grace_s: float) -> None:
        for engine_id in engine_ids:
            with contextlib.suppress(psutil.Error):
                for child in psutil.Process(pid_of(self._folder / f"{engine_id}.json")).children():
                    # What enters a host ends at a signal, and would leave the container there running, taken for ended.
                    for one in child.children() if child.name() == "nsenter" else [child]:
                        one.terminate()

    @contextmanager
    def watch(self, changed: Callable[[], None]) -> Iterator[None]:
        over = threading.Event()

        def poll() -> None:
            while not over.wait(0.2):
                changed()

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        yield
        over.set()
        thread.join()

    def reach(self) -> tuple[str, ...]:
        return (self._address,)

    def ready(self, hosts: Collection[str]) -> set[str]:
        return {*hosts}

    def explain(self, engine_id: str) -> Explained:
        return Explained("")

    def termination_report(self, engine_id: str) -> str:
        return ""

    def look_command(self) -> str:
        return f"ls {self._folder}"

    def topologies(self) -> dict[str, int]:
        return {}


def pid_of(file: Path) -> int:
    """The wrapper of a container."""
    found: int = json.loads(file.read_text())["pid"]
    return found


def containers(folder: Path) -> dict[str, list[psutil.Process]]:
    """The processes of each container that lives, its wrapper first."""
    found = {}
    for file in (folder / "objects").glob("*.json"):
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            wrapper = psutil.Process(pid_of(file))
            if wrapper.status() != psutil.STATUS_ZOMBIE:
                found[file.stem] = [wrapper, *wrapper.children(recursive=True)]
    return found
