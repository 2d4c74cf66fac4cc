"""The local scheduler as a process, with real executors and fake children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from heronpy.common import exit_codes
from heronpy.common.errors import RpcError
from heronpy.net.rpc import RpcClient
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths
from tests.support.topologies import Deployed, deploy, packing_plan
from tests.support.waiting import alive, wait_for

NAME = "word-count"
PLAN = packing_plan({1: [("word", 1)], 2: [("count", 2)]})
EVERYBODY = ("tmaster", "stmgr-1", "stmgr-2", "container_1_word_1", "container_2_count_2")


@contextmanager
def scheduler(deployed: Deployed) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.fake_scheduler", "--launch", deployed.launch_file],
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        deployed.clean_up()


@contextmanager
def client(deployed: Deployed) -> Iterator[RpcClient]:
    found = wait_for(lambda: deployed.state.get(paths.scheduler(NAME)), what="the scheduler's location")
    made = RpcClient(plan_pb2.SchedulerLocation.FromString(found[0]).endpoint)
    try:
        yield made
    finally:
        made.close()


def everybody_runs(deployed: Deployed) -> bool:
    return all(deployed.starts(name) for name in EVERYBODY)


def below(process: subprocess.Popen[bytes]) -> list[int]:
    """What the scheduler started; itself it is the guardian's child."""
    (itself,) = psutil.Process(process.pid).children()
    return [child.pid for child in itself.children(recursive=True)]


def test_kill_leaves_nothing(home: Path) -> None:
    deployed = deploy(home, PLAN)
    deployed.behave(container_1_word_1={"do": "daemon"})
    with scheduler(deployed) as process, client(deployed) as rpc:
        wait_for(lambda: everybody_runs(deployed), 30.0)
        wait_for((deployed.working_dir / "escaped").exists)
        pids = [*below(process), int((deployed.working_dir / "escaped").read_text())]
        began = time.monotonic()
        reply = rpc.call(control_pb2.KillTopology(), timeout_s=10)
        took = time.monotonic() - began
        assert "killed" in reply.text
        assert not any(alive(pid) for pid in pids)
        assert took < 1.0
        assert process.wait(2) == exit_codes.OK
        assert not os.path.exists(deployed.launch.sockets_dir)
        for path in (paths.execution_state, paths.packing_plan, paths.scheduler, paths.tmaster):
            assert deployed.state.get(path(NAME)) is None
        assert deployed.state.children(paths.epochs(NAME)) == []


def test_kill_9_of_the_scheduler_starts_everything_anew(home: Path) -> None:
    deployed = deploy(home, PLAN)
    with scheduler(deployed) as process:
        wait_for(lambda: everybody_runs(deployed), 30.0)
        (itself,) = psutil.Process(process.pid).children()
        pids = below(process)
        itself.kill()
        wait_for(lambda: not any(alive(pid) for pid in pids), 2.0)
        wait_for(lambda: all(len(deployed.starts(name)) == 2 for name in EVERYBODY), 30.0)
        assert process.poll() is None
        assert deployed.causes(1) == [("", ""), ("lost_host", "its scheduler had ended")]
        assert "the scheduler ended by signal SIGKILL; restarting it" in deployed.log("scheduler")
        with client(deployed) as rpc:
            assert len(rpc.call(control_pb2.GetContainers()).containers) == 3
            rpc.call(control_pb2.KillTopology(), timeout_s=10)
        assert process.wait(2) == exit_codes.OK


def test_kill_9_of_the_guardian_ends_everything(home: Path) -> None:
    deployed = deploy(home, PLAN)
    deployed.behave(container_1_word_1={"do": "daemon"})
    with scheduler(deployed) as process:
        wait_for(lambda: everybody_runs(deployed), 30.0)
        wait_for((deployed.working_dir / "escaped").exists)
        pids = [*below(process), int((deployed.working_dir / "escaped").read_text())]
        assert len(pids) >= 5 + 3 + 4
        process.kill()
        wait_for(lambda: not any(alive(pid) for pid in pids), 2.0)
        wait_for(lambda: deployed.state.get(paths.scheduler(NAME)) is None, 2.0)


def test_killed_executor_is_replaced_with_a_higher_epoch(home: Path) -> None:
    deployed = deploy(home, PLAN)
    with scheduler(deployed), client(deployed) as rpc:
        wait_for(lambda: everybody_runs(deployed), 30.0)
        records = {r.name: r for r in rpc.call(control_pb2.GetContainers()).containers}
        assert set(records) == {"executor-0", "executor-1", "executor-2"}
        before = records["executor-1"]
        os.kill(before.pid, signal.SIGKILL)
        wait_for(lambda: len(deployed.starts("container_1_word_1")) == 2, 3.0)
        after = {r.name: r for r in rpc.call(control_pb2.GetContainers()).containers}["executor-1"]
        assert after.epoch > before.epoch
        assert (after.restarts, after.exit_reason) == (1, "killed")
        assert deployed.starts("container_1_word_1")[1][1] == (after.epoch << 16) | 1
        assert len(deployed.starts("container_2_count_2")) == 1
        assert deployed.causes(1) == [("", ""), ("killed", "killed: signal SIGKILL")]


def test_dead_fork_server_of_the_scheduler_is_survived(home: Path) -> None:
    deployed = deploy(home, PLAN)
    with scheduler(deployed) as process:
        wait_for(lambda: everybody_runs(deployed), 30.0)
        (itself,) = psutil.Process(process.pid).children()
        (server,) = itself.children()
        server.kill()
        wait_for(lambda: all(len(deployed.starts(name)) == 2 for name in EVERYBODY), 30.0)
        assert process.poll() is None


def test_restart_container_waits_for_the_new_one(home: Path) -> None:
    deployed = deploy(home, PLAN)
    with scheduler(deployed), client(deployed) as rpc:
        wait_for(lambda: everybody_runs(deployed), 30.0)
        pid = next(r.pid for r in rpc.call(control_pb2.GetContainers()).containers if r.name == "executor-2")
        reply = rpc.call(control_pb2.RestartContainer(container=2), timeout_s=10)
        assert reply.text == "restarted executor-2"
        assert not alive(pid)
        wait_for(lambda: len(deployed.starts("container_2_count_2")) == 2, 30.0)
        rpc.call(control_pb2.RestartContainer(container=-1), timeout_s=10)
        wait_for(lambda: len(deployed.starts("tmaster")) == 2, 30.0)
        assert deployed.causes(2)[:2] == [("", ""), ("restarted", "a user requested it")]
        with pytest.raises(RpcError, match="no container 7; its containers are 0, 1, 2"):
            rpc.call(control_pb2.RestartContainer(container=7))


def test_follows_the_packing_plan(home: Path) -> None:
    deployed = deploy(home, PLAN)
    with scheduler(deployed), client(deployed) as rpc:
        wait_for(lambda: everybody_runs(deployed), 30.0)
        removed = deployed.starts("container_2_count_2")[0][0]
        deployed.publish(packing_plan({1: [("word", 1)], 3: [("count", 3)]}, version=2))
        wait_for(lambda: deployed.starts("container_3_count_3"))
        wait_for(lambda: not alive(removed))
        names = lambda: {r.name for r in rpc.call(control_pb2.GetContainers()).containers}  # noqa: E731
        wait_for(lambda: names() == {"executor-0", "executor-1", "executor-3"})
        assert len(deployed.starts("container_1_word_1")) == 1


def test_second_scheduler_is_refused(home: Path) -> None:
    deployed = deploy(home, PLAN)
    with scheduler(deployed) as first, client(deployed) as rpc:
        wait_for(lambda: everybody_runs(deployed), 30.0)
        second = subprocess.run(
            [sys.executable, "-m", "tests.support.fake_scheduler", "--launch", deployed.launch_file], timeout=20
        )
        assert second.returncode == exit_codes.FENCED
        assert "another scheduler is running topology 'word-count'" in deployed.log("scheduler")
        assert first.poll() is None
        assert rpc.call(control_pb2.GetContainers()) is not None


def test_failed_container_is_reported_with_its_cause(home: Path) -> None:
    settings = {
        "executor": {"restart_budget": 0},
        "scheduler": {"container_restart_budget": 1, "container_restart_backoff_s": 0.01},
    }
    deployed = deploy(home, PLAN, settings)
    deployed.behave(**{"stmgr-1": {"do": "exit", "code": 1, "says": "no route"}})
    with scheduler(deployed), client(deployed) as rpc:

        def failed() -> control_pb2.ProcessRecord | None:
            records = {r.name: r for r in rpc.call(control_pb2.GetContainers()).containers}
            found = records.get("executor-1")
            return found if found is not None and found.state == control_pb2.PROC_FAILED else None

        record = wait_for(failed)
        assert "stmgr-1 has failed permanently" in record.exit_detail
        assert "no route" in record.exit_detail
        assert deployed.starts("container_2_count_2")


def test_sigterm_stops_the_processes_and_keeps_the_state(home: Path) -> None:
    deployed = deploy(home, PLAN)
    with scheduler(deployed) as process:
        wait_for(lambda: everybody_runs(deployed), 30.0)
        pids = below(process)
        process.terminate()
        assert process.wait(5) == exit_codes.OK
        assert not any(alive(pid) for pid in pids)
        assert deployed.state.exists(paths.execution_state(NAME))
