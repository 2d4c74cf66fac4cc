"""A whole topology on ZooKeeper, through real processes: found by the command, undisturbed by outages."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from heronpy.proto import plan_pb2
from heronpy.statemgr import open_state, paths
from heronpy.statemgr.base import StateManager
from heronpy.tmaster.recorder import GROWTH_PAUSE_S
from tests.support.command import REPO, Heron
from tests.support.pages import DOCS, PageRun
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeperServer, classpath

PATIENCE_S = 60.0
#: The data path does not notice an outage; a busy machine may hold it up this long.
STALL_MAX_S = 3.0
SESSION_S = 3
PROGRAM = REPO / "tests" / "acceptance" / "programs" / "counting.py"


class Progress:
    """Follows what the sink writes down, and how long it wrote nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stop = threading.Event()
        self.longest_stall_s = 0.0
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def size(self) -> int:
        return sum(path.stat().st_size for path in self._folder.iterdir())

    def advance(self, size: int) -> None:
        """Wait until more has been written."""
        goal = self.size() + size
        wait_for(lambda: self.size() >= goal, PATIENCE_S, "progress of the data")

    def end(self) -> None:
        """Stop following; again is allowed."""
        self._stop.set()
        self._thread.join(PATIENCE_S)

    def _follow(self) -> None:
        last, since = self.size(), time.monotonic()
        while not self._stop.wait(0.01):
            size, now = self.size(), time.monotonic()
            if size != last:
                last, since = size, now
            self.longest_stall_s = max(self.longest_stall_s, now - since)


@pytest.fixture
def server(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(classpath()[0])
    yield server
    server.close()


@pytest.fixture
def heron(server: ZooKeeperServer, home: Path) -> Iterator[Heron]:
    """`heron` whose cluster "local" is configured to keep its state in ZooKeeper."""
    command = Heron(home)
    folder = home / "conf" / "local"
    folder.mkdir(parents=True)
    text = f"type: zookeeper\nroot: {server.hosts}/heron\nsession_timeout_s: {SESSION_S}s\n"
    (folder / "statemgr.yaml").write_text(text)
    command.env["HERON_CONF"] = str(home / "conf")
    yield command
    for name in command.names():
        command.kill(name)
    command.check_clean()


@pytest.fixture
def state(server: ZooKeeperServer) -> Iterator[StateManager]:
    manager = open_state("zookeeper", f"{server.hosts}/heron")
    yield manager
    manager.close()


def pids(heron: Heron, state: StateManager) -> dict[str, int]:
    """Process to pid, of all but the topology master."""
    scheduler = state.get(paths.scheduler("numbers"))
    assert scheduler is not None
    found = {"scheduler": plan_pb2.SchedulerLocation.FromString(scheduler[0]).pid}
    for container in heron.status("numbers")["containers"]:
        found[f"executor-{container['container']}"] = container["pid"]
        found.update({item["name"]: item["pid"] for item in container["processes"]})
    del found["tmaster"]
    return found


def location(state: StateManager) -> plan_pb2.TmasterLocation | None:
    found = state.get(paths.tmaster("numbers"))
    return plan_pb2.TmasterLocation.FromString(found[0]) if found else None


def connections(pid: int, port: int) -> int:
    return sum(1 for found in psutil.Process(pid).net_connections("tcp") if found.raddr and found.raddr.port == port)


def check_connections(heron: Heron, running: dict[str, int], tmaster: int, port: int) -> None:
    """Each process that needs a session has one of its own, also those that were forked."""
    expected = {"tmaster": 1, "scheduler": 1, **dict.fromkeys(("executor-0", "executor-1", "executor-2"), 1)}
    expected |= {"stmgr-1": 1, "stmgr-2": 1}
    for name, pid in {**running, "tmaster": tmaster}.items():
        assert connections(pid, port) == expected.get(name, 0), name
    known = {*running.values(), tmaster}
    for process in heron.processes():  # fork servers and the scheduler's guardian
        if process.pid not in known:
            assert connections(process.pid, port) == 0, process


def check_few_writes(state: StateManager, server: ZooKeeperServer, progress: Progress) -> None:
    """What is written does not follow the tuples: once in `GROWTH_PAUSE_S` each of four ledgers, at most."""
    # A first write makes the node and what is around it: several changes.
    for made in (paths.totals, paths.counts, paths.events):
        wait_for(partial(state.get, made("numbers")), PATIENCE_S, made.__name__)
    writes, begun = server.writes(), time.monotonic()
    progress.advance(3000)
    pauses = 1 + int((time.monotonic() - begun) / GROWTH_PAUSE_S)
    # The minutes may be written for the first time.
    assert server.writes() <= writes + 4 * pauses + 2, "a topology that just runs writes more than its counts"


def check_outage(state: StateManager, server: ZooKeeperServer, progress: Progress) -> None:
    before = state.get(paths.tmaster("numbers"))
    server.stop()
    progress.advance(500)
    server.start()
    kept = "the topology master keeping its role"
    wait_for(lambda: state.get(paths.tmaster("numbers")) == before, PATIENCE_S, kept)
    progress.advance(500)
    wait_for(lambda: state.get(paths.tmaster("numbers")) == before, PATIENCE_S, kept)


def check_expiry(state: StateManager, heron: Heron, progress: Progress) -> None:
    """A topology master that its session has left behind comes back, or its successor does."""
    before = location(state)
    assert before is not None
    os.kill(before.pid, signal.SIGSTOP)
    wait_for(lambda: location(state) is None, PATIENCE_S, "the session expiring")
    progress.advance(100)
    os.kill(before.pid, signal.SIGCONT)
    after = wait_for(lambda: location(state), PATIENCE_S, "a topology master")
    assert after.pid == before.pid or after.epoch > before.epoch
    heron.when_state("numbers", "RUNNING")


def check_death(state: StateManager, heron: Heron) -> None:
    before = location(state)
    assert before is not None
    os.kill(before.pid, signal.SIGKILL)

    def replaced() -> Any:
        now = location(state)
        return now if now is not None and now.epoch > before.epoch else None

    wait_for(replaced, PATIENCE_S, "a new topology master")
    heron.when_state("numbers", "RUNNING")


@pytest.mark.heavy
def test_a_topology_on_zookeeper(heron: Heron, home: Path, server: ZooKeeperServer, state: StateManager) -> None:
    out = home / "out"
    out.mkdir()
    # Once by options alone; from here on by the configuration of the cluster.
    settings = {"type": "zookeeper", "root": f"{server.hosts}/heron", "session_timeout_s": f"{SESSION_S}s"}
    options = [
        word for key, value in settings.items() for word in ("--config-property", f"heron.statemgr.{key}={value}")
    ]
    plain = {name: value for name, value in heron.env.items() if name != "HERON_CONF"}
    program = [PROGRAM, "numbers", "--out", out, "--containers", 2, "--spout-pause-ms", 2]
    heron("submit", "local", *options, *program, env=plain).ok()
    assert "numbers" in heron("list", "local", *options, env=plain).ok().out
    assert "numbers" not in heron("list", "local", env=plain).ok().out
    heron.when_state("numbers", "RUNNING")

    running = pids(heron, state)
    where = location(state)
    assert where is not None
    check_connections(heron, running, where.pid, server.port)
    progress = Progress(out)
    progress.advance(100)
    check_few_writes(state, server, progress)

    check_outage(state, server, progress)
    assert pids(heron, state) == running, "something was restarted"
    check_expiry(state, heron, progress)
    check_death(state, heron)
    assert pids(heron, state) == running, "something was restarted"
    progress.end()
    assert progress.longest_stall_s < STALL_MAX_S

    heron("deactivate", "local", "numbers").ok()
    heron.kill("numbers")
    assert heron.names() == []
    assert state.children("") == []
    [file] = out.iterdir()
    numbers = sorted(int(line) for line in file.read_bytes().split())
    assert numbers == list(range(len(numbers))), "tuples were lost"


@pytest.mark.slow
@pytest.mark.heavy
def test_the_how_to_does_what_it_says(server: ZooKeeperServer, home: Path, tmp_path: Path) -> None:
    """Its own server runs on another port than the page's, and what the machine has is not installed again."""
    pytest.importorskip("pyspark", reason="pyspark, whose jars the page uses, is not installed")
    server.stop()
    text = (DOCS / "howto" / "zookeeper.md").read_text().replace("2181", str(server.port))
    page = tmp_path / "zookeeper.md"
    page.write_text(text.replace("$ pip install", "$ echo"))
    folder = home.parent / "work"
    try:
        PageRun(page, folder, home).run()
    finally:
        pid = int((folder / "zookeeper.pid").read_text())
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
