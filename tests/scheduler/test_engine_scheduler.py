"""The scheduler of an engine as a process below its guardian, with containers that are processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from heronpy.common import exit_codes
from heronpy.common.version import VERSION
from heronpy.net.rpc import RpcClient
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths
from tests.support.local_engine import containers, kill_containers
from tests.support.topologies import Deployed, deploy, packing_plan
from tests.support.waiting import alive, wait_for

ROOT = Path(__file__).parents[2]
NAME = "word-count"
PLAN = packing_plan({1: [("word", 1)], 2: [("count", 2)]})


class World:
    def __init__(self, home: Path, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self.home = home
        python = folder / "python"
        # The command of a container, with another module.
        python.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} -Pm tests.support.small_container "$@"\n')
        python.chmod(0o700)
        settings = {
            "engine": {
                "kind": "local", "python": str(python),
                "renew_s": 0.5, "fence_s": 3.0, "lost_s": 6.0, "permit_s": 10.0, "poll_s": 0.3,
                "home": str(folder / "host"),
            },
            "security": {"transport": "tcp"},
            "scheduler": {"kill_grace_s": 1.0},
        }  # fmt: skip
        self.deployed: Deployed = deploy(home, PLAN, settings, engine="local", release=VERSION)
        # Short: with a longer path sockets are in a folder of /tmp by their topology's id, which all these tests share.
        self.tmp = home.parent / "e"
        self.tmp.mkdir(mode=0o700)
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.tmp)}
        self.guardian = subprocess.Popen(
            [sys.executable, "-m", "heronpy.scheduler", "--launch", self.deployed.launch_file],
            env=env,
            start_new_session=True,
        )

    @property
    def itself(self) -> psutil.Process:
        """The scheduler, below its guardian."""
        return wait_for(lambda: psutil.Process(self.guardian.pid).children(), what="the scheduler")[0]

    def location(self) -> plan_pb2.SchedulerLocation:
        found = wait_for(lambda: self.deployed.state.get(paths.scheduler(NAME)), what="the scheduler's location")
        return plan_pb2.SchedulerLocation.FromString(found[0])

    def ask(self, body: object, timeout_s: float = 20.0) -> object:
        endpoint = self.location().endpoint
        assert endpoint.startswith(f"ipc://{self.tmp}/"), f"another test may listen at {endpoint}"
        with RpcClient(endpoint) as client:
            return client.call(body, timeout_s)  # type: ignore[arg-type]

    def records(self) -> dict[str, control_pb2.ProcessRecord]:
        reply = self.ask(control_pb2.GetContainers())
        assert isinstance(reply, control_pb2.ContainersReply)
        return {one.name: one for one in reply.containers}

    def all_run(self) -> dict[str, control_pb2.ProcessRecord]:
        def running() -> dict[str, control_pb2.ProcessRecord]:
            found = self.records()
            return found if len(found) == 3 and all(one.phase == "RUNNING" for one in found.values()) else {}

        return wait_for(running, 30, "all containers running")

    def starts(self) -> set[str]:
        """Of executors: container and epoch."""
        return {path.name.removeprefix("started-") for path in self.tmp.glob("started-*")}

    def containers(self) -> dict[str, list[psutil.Process]]:
        return containers(self.home)

    def close(self) -> None:
        self.guardian.kill()
        self.guardian.wait()
        kill_containers(self.home)
        self.deployed.clean_up()


@pytest.fixture
def world(home: Path, tmp_path: Path) -> Iterator[World]:
    found = World(home, tmp_path / "engine")
    try:
        yield found
    finally:
        found.close()


def test_containers_run_and_the_lost_one_alone_is_submitted_again(world: World) -> None:
    before = world.all_run()
    wait_for(lambda: world.starts() == {"0-1", "1-1", "2-1"}, 20, "three executors")
    for process in world.containers()["1-1"]:
        with suppress(psutil.Error):
            process.kill()
    wait_for(lambda: world.records()["executor-1"].submission == 2, 20, "another submission")
    after = world.all_run()
    wait_for(lambda: world.starts() == {"0-1", "1-1", "2-1", "1-2"}, 20, "its executor")
    for name in ("executor-0", "executor-2"):
        assert (after[name].submission, after[name].epoch) == (before[name].submission, before[name].epoch)
    reply = world.ask(control_pb2.KillTopology(grace_s=1.0))
    assert isinstance(reply, control_pb2.Ok) and reply.text == "killed topology word-count"
    assert world.guardian.wait(10) == exit_codes.OK
    wait_for(lambda: not world.containers(), 10, "no container being left")
    assert world.deployed.state.get(paths.execution_state(NAME)) is None
    ends = (world.deployed.launch.log_dir / "bootstrap-2.log").read_text()
    assert "the small executor runs" in ends


def test_kill_9_of_the_scheduler_restarts_nothing(world: World) -> None:
    before = world.all_run()
    wait_for(lambda: len(world.starts()) == 3, 20, "three executors")
    first, endpoints = world.itself, list(world.location().control_endpoints)
    alive = {name: {one.pid for one in processes} for name, processes in world.containers().items()}
    # Its successor begins with what the guardian has imported: that is most of the time until all is adopted.
    assert any("zmq" in one.path for one in psutil.Process(world.guardian.pid).memory_maps())
    first.kill()
    wait_for(lambda: world.itself.pid != first.pid, 10, "another scheduler")
    wait_for(lambda: world.location().pid == world.itself.pid, 10, "its permit")
    after = world.all_run()
    assert list(world.location().control_endpoints) == endpoints
    key = [(one.name, one.engine_id, one.submission, one.epoch) for one in before.values()]
    assert [(one.name, one.engine_id, one.submission, one.epoch) for one in after.values()] == key
    assert {name: {one.pid for one in found} for name, found in world.containers().items()} == alive
    assert world.starts() == {"0-1", "1-1", "2-1"}
    log = world.deployed.log("scheduler")
    assert "the scheduler ended by signal SIGKILL; restarting it" in log


def test_a_scheduler_that_ends_leaves_its_containers(world: World) -> None:
    world.all_run()
    world.guardian.send_signal(signal.SIGTERM)
    assert world.guardian.wait(10) == exit_codes.OK
    assert sorted(world.containers()) == ["0-1", "1-1", "2-1"]
    assert world.deployed.state.get(paths.scheduler(NAME)) is None


@pytest.mark.heavy
def test_a_scheduler_that_hangs_is_replaced(world: World) -> None:
    before = world.all_run()
    first = world.itself
    first.suspend()
    wait_for(lambda: not alive(first.pid), 20, "its end")
    after = world.all_run()
    assert world.itself.pid != first.pid
    key = [(one.name, one.submission, one.epoch) for one in before.values()]
    assert [(one.name, one.submission, one.epoch) for one in after.values()] == key
    assert "the scheduler did not answer for 10 s and was killed; restarting it" in world.deployed.log("scheduler")
