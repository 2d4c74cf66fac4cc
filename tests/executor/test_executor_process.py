"""The executor as a process, with fake children and a fake topology master in the test."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from heronpy.common import exit_codes
from heronpy.executor.shell import HEARTBEAT_S
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlServer
from heronpy.procs.handed_plans import handed, plan_file, topology_file
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths
from tests.support.topologies import Deployed, deploy, packing_plan
from tests.support.waiting import alive, eventually, wait_for
from tests.support.wires import new_endpoint

#: An idle machine is far faster.
PATIENCE_S = 30.0
TASK = "container_1_word_1"
PLAN = packing_plan({1: [("word", 1), ("count", 2)]})


@contextmanager
def executor(deployed: Deployed, container: int = 1, epoch: int = 1) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.support.fake_executor",
            *("--launch", deployed.launch_file, "--container", str(container), "--epoch", str(epoch)),
        ],
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
        deployed.clean_up()


class Master:
    """A topology master that only listens."""

    def __init__(self, deployed: Deployed, epoch: int = 1, fence: str = "") -> None:
        self.registrations: list[control_pb2.RegisterExecutor] = []
        self.beats: list[control_pb2.ExecutorHeartbeat] = []
        self.batches: list[control_pb2.MetricsBatch] = []
        #: When each heartbeat came.
        self.beaten: list[float] = []
        self.peer = b""
        self._fence = fence
        self._deployed = deployed
        self._server = ControlServer([new_endpoint()], self._on_request)
        location = plan_pb2.TmasterLocation(topology="word-count", endpoint=self._server.endpoints[0], epoch=epoch)
        deployed.state.set(paths.tmaster("word-count"), location.SerializeToString())

    def _on_request(self, peer: bytes, envelope: control_pb2.Envelope) -> control_pb2.Ok | None:
        field, body = body_of(envelope)
        self.peer = peer
        if field == "register_executor":
            if self._fence:
                from heronpy.common.errors import FencedError

                raise FencedError(self._fence)
            self.registrations.append(body)
            return control_pb2.Ok()
        kept = {
            "executor_heartbeat": self.beats,
            "metrics_batch": self.batches,
        }
        if field == "executor_heartbeat":
            self.beaten.append(time.monotonic())
        kept[field].append(body)
        return None

    def send(self, body: control_pb2.RestartProcesses) -> None:
        assert self._server.send(self.peer, body)

    def record(self, name: str) -> control_pb2.ProcessRecord | None:
        latest = self.beats[-1].processes if self.beats else []
        return next((record for record in latest if record.name == name), None)

    def state_of(self, name: str) -> int:
        record = self.record(name)
        return record.state if record else -1

    async def __aenter__(self) -> Master:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.close()


async def test_starts_registers_and_stops_cleanly(home: Path) -> None:
    deployed = deploy(home, PLAN)

    with executor(deployed) as process:
        async with Master(deployed) as master:
            await eventually(lambda: master.state_of(TASK) == control_pb2.PROC_RUNNING)
            registration = master.registrations[0]
            assert (registration.container, registration.epoch) == (1, 1)
            assert registration.metrics_port > 0
            record = master.record(TASK)
            assert record is not None
            assert record.epoch == (1 << 16) | 1
            assert record.task_id == 1
            assert {r.name for r in master.beats[-1].processes} == {"stmgr-1", TASK, "container_1_count_2"}
        pid, _ = wait_for(lambda: deployed.starts(TASK))[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == exit_codes.OK
        assert not alive(pid)
        assert f"{TASK} starts with epoch 65537" in deployed.log(TASK)


def test_killed_task_is_back_at_once_with_a_higher_epoch(home: Path) -> None:
    deployed = deploy(home, PLAN)
    with executor(deployed):
        pid, _ = wait_for(lambda: deployed.starts(TASK))[0]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: len(deployed.starts(TASK)) == 2, PATIENCE_S)
        assert deployed.starts(TASK)[1][1] == (1 << 16) | 2
        assert len(wait_for(lambda: deployed.starts("container_1_count_2"), PATIENCE_S)) == 1


def test_a_task_may_be_killed_as_often_as_anybody_likes(home: Path) -> None:
    """No budget is charged, however small it is."""
    deployed = deploy(home, PLAN, {"executor": {"restart_budget": 1, "restart_backoff_s": 0.01}})
    with executor(deployed):
        for number in range(1, 6):
            wait_for(lambda n=number: len(deployed.starts(TASK)) == n, PATIENCE_S)  # type: ignore[misc]
            os.kill(deployed.starts(TASK)[-1][0], signal.SIGKILL)
        wait_for(lambda: len(deployed.starts(TASK)) == 6, PATIENCE_S)


async def test_budget_spent_fails_the_task_and_the_rest_goes_on(home: Path) -> None:
    settings = {"executor": {"restart_budgets": {"user_exception": 2}, "restart_backoff_s": 0.01}}
    deployed = deploy(home, PLAN, settings)
    deployed.behave(**{TASK: {"do": "raise"}})

    with executor(deployed) as process:
        async with Master(deployed) as master:
            await eventually(lambda: master.state_of(TASK) == control_pb2.PROC_FAILED)
            record = master.record(TASK)
            assert record is not None
            assert record.exit_reason == "user_exception"
            assert "ValueError: bad tuple" in record.exit_detail
            assert "3 times within 300 s" in record.exit_detail
            assert master.state_of("container_1_count_2") == control_pb2.PROC_RUNNING
            await eventually(lambda: sum(len(batch.exceptions) for batch in master.batches) == 3)
        assert process.poll() is None
    assert len(deployed.starts(TASK)) == 3


async def test_exceptions_have_a_budget_of_time_and_tell_how_it_stands(home: Path) -> None:
    settings = {"executor": {"restart_exception_budget_s": 2.0, "restart_backoff_s": 0.5, "restart_budget": 1}}
    deployed = deploy(home, PLAN, settings)
    deployed.behave(**{TASK: {"do": "raise"}})

    with executor(deployed):
        async with Master(deployed) as master:
            await eventually(lambda: master.state_of(TASK) == control_pb2.PROC_BACKOFF)
            record = master.record(TASK)
            assert record is not None and record.restarts_charged >= 1 and not record.restart_budget
            assert record.failing_max_s == 2.0 and 0 < record.next_restart_s <= 2.0
            await eventually(lambda: master.state_of(TASK) == control_pb2.PROC_FAILED)
            record = master.record(TASK)
            assert record is not None and record.restarts > 1, "more often than other reasons may"
            assert "without a healthy run in between" in record.exit_detail and not record.next_restart_s


async def test_startup_failure_is_never_restarted(home: Path) -> None:
    deployed = deploy(home, PLAN)
    deployed.behave(**{TASK: {"do": "exit", "code": 3, "says": "no module named foo"}})

    with executor(deployed):
        async with Master(deployed) as master:
            await eventually(lambda: master.state_of(TASK) == control_pb2.PROC_FAILED)
            record = master.record(TASK)
            assert record is not None
            assert record.exit_reason == "startup_failure"
            assert "no module named foo" in record.exit_detail
    assert len(deployed.starts(TASK)) == 1


@pytest.mark.parametrize(("code", "preload"), [(3, True), (7, False), pytest.param(9, True, marks=pytest.mark.heavy)])
async def test_a_code_that_a_task_did_not_announce_is_a_crash(home: Path, code: int, preload: bool) -> None:
    """Whether it is forked or a new interpreter."""
    deployed = deploy(home, PLAN, {"executor": {"restart_backoff_s": 0.01, "preload": preload}})
    deployed.behave(**{TASK: {"do": "leave", "code": code, "times": 1}})

    with executor(deployed):
        async with Master(deployed) as master:
            await eventually(
                lambda: master.state_of(TASK) == control_pb2.PROC_RUNNING and len(deployed.starts(TASK)) == 2
            )
            record = await eventually(lambda: (now := master.record(TASK)) and now.restarts == 1 and now)
            assert record.exit_reason == "crashed"
            assert record.exit_detail.startswith(f"user code ended the process with exit code {code}")


def test_stmgr_that_fails_for_good_ends_the_executor(home: Path) -> None:
    deployed = deploy(home, PLAN, {"executor": {"restart_budget": 1, "restart_backoff_s": 0.01}})
    deployed.behave(**{"stmgr-1": {"do": "exit", "code": 1}})
    with executor(deployed) as process:
        assert process.wait(10) == exit_codes.FAILURE
        assert "stmgr-1 has failed permanently" in deployed.log("executor-1")


def test_hung_task_dumps_its_stacks_and_is_restarted(home: Path) -> None:
    deployed = deploy(home, PLAN, {"instance": {"hang_timeout_s": 5.0}})
    deployed.behave(**{TASK: {"do": "hang", "loop_age_s": 6.0, "times": 1}})
    with executor(deployed):
        wait_for(lambda: len(deployed.starts(TASK)) == 2)
        assert "hangs: its loop has been blocked for 6.0 s" in deployed.log("executor-1")
        assert "hung" in deployed.log("executor-1")
        assert "most recent call first" in deployed.log(TASK)


def test_silent_task_is_restarted(home: Path) -> None:
    deployed = deploy(home, PLAN, {"instance": {"hang_timeout_s": 0.5}})
    deployed.behave(**{TASK: {"do": "hang", "loop_age_s": 0.0, "times": 1}})
    with executor(deployed):
        wait_for(lambda: len(deployed.starts(TASK)) == 2)
        assert "silent" in deployed.log("executor-1")


async def test_heartbeats_of_a_container_without_work_are_rare_and_a_change_is_told_at_once(home: Path) -> None:
    deployed = deploy(home, PLAN)

    with executor(deployed):
        async with Master(deployed) as master:
            await eventually(
                lambda: any(after - before > 1.6 * HEARTBEAT_S for before, after in pairwise(master.beaten)), 60.0
            )
            record = master.record(TASK)
            assert record is not None
            beats = len(master.beaten)
            os.kill(record.pid, signal.SIGKILL)
            await eventually(lambda: (now := master.record(TASK)) is not None and now.restarts == 1, PATIENCE_S)
            await eventually(lambda: len(master.beaten) > beats + 1, PATIENCE_S)


async def test_the_state_manager_gets_few_requests_of_a_container(home: Path) -> None:
    """However many tasks it has: the executor reads for all of them, and hands over what they need."""
    tasks = [("word", number) for number in range(1, 41)]
    deployed = deploy(home, packing_plan({1: tasks}))

    with executor(deployed):
        async with Master(deployed) as master:
            await eventually(lambda: all(deployed.starts(f"container_1_word_{task}") for _, task in tasks), PATIENCE_S)
            await eventually(lambda: master.registrations, PATIENCE_S)
        requests = (deployed.working_dir / "requests").read_text().splitlines()
        definition = deployed.state.get(paths.topology("word-count"))
        assert definition is not None
        assert handed(topology_file(deployed.launch.sockets_dir, 1)) == definition[0]
        plan = plan_pb2.PackingPlan.FromString(handed(plan_file(deployed.launch.sockets_dir, 1)))
        assert len(plan.containers[0].instances) == 40
    assert len(requests) <= 10, requests


def test_plan_change_starts_and_stops_tasks(home: Path) -> None:
    deployed = deploy(home, PLAN)
    with executor(deployed):
        pid, _ = wait_for(lambda: deployed.starts(TASK))[0]
        wait_for(lambda: deployed.starts("container_1_count_2"))
        deployed.publish(packing_plan({1: [("count", 2), ("count", 3)]}, version=2))
        wait_for(lambda: deployed.starts("container_1_count_3"))
        wait_for(lambda: not alive(pid))
        assert len(deployed.starts("container_1_count_2")) == 1
        assert len(deployed.starts("stmgr-1")) == 1


def test_kill_9_of_the_executor_leaves_nobody(home: Path) -> None:
    deployed = deploy(home, PLAN)
    deployed.behave(**{TASK: {"do": "daemon"}})
    with executor(deployed) as process:
        wait_for(lambda: (deployed.working_dir / "escaped").exists() and (deployed.working_dir / "escaped").read_text())
        wait_for(lambda: deployed.starts("stmgr-1") and deployed.starts("container_1_count_2"))
        pids = [deployed.starts(name)[0][0] for name in (TASK, "stmgr-1", "container_1_count_2")]
        pids.append(int((deployed.working_dir / "escaped").read_text()))
        process.kill()
        wait_for(lambda: not any(alive(pid) for pid in pids))


def test_kill_9_of_the_fork_server_ends_the_executor(home: Path) -> None:
    deployed = deploy(home, PLAN)
    deployed.behave(**{TASK: {"do": "daemon"}})
    with executor(deployed) as process:
        wait_for(lambda: (deployed.working_dir / "escaped").exists() and (deployed.working_dir / "escaped").read_text())
        (server,) = psutil.Process(process.pid).children()
        pids = [child.pid for child in server.children()]
        server.kill()
        assert process.wait(PATIENCE_S) == exit_codes.FAILURE
        wait_for(lambda: not any(alive(pid) for pid in pids))
        # The executor has nobody above it here; below a scheduler, that one's fork server does this.
        os.kill(int((deployed.working_dir / "escaped").read_text()), signal.SIGKILL)


def test_stop_does_not_wait_for_a_stubborn_task_and_kills_its_subprocesses(home: Path) -> None:
    deployed = deploy(home, PLAN, {"executor": {"stop_grace_s": 0.2}})
    deployed.behave(**{TASK: {"do": "stubborn"}, "container_1_count_2": {"do": "daemon"}})
    with executor(deployed) as process:
        wait_for(lambda: (deployed.working_dir / "escaped").exists() and (deployed.working_dir / "escaped").read_text())
        wait_for(lambda: deployed.starts(TASK))
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == exit_codes.OK
        assert time.monotonic() - began < 1.5
        assert not alive(int((deployed.working_dir / "escaped").read_text()))
        assert not alive(deployed.starts(TASK)[0][0])


async def test_restart_on_the_masters_request(home: Path) -> None:
    deployed = deploy(home, PLAN)

    with executor(deployed):
        async with Master(deployed) as master:
            await eventually(lambda: master.state_of(TASK) == control_pb2.PROC_RUNNING)
            # One that is killed before it has noted its start would not count.
            await eventually(lambda: deployed.starts(TASK) and deployed.starts("stmgr-1"))
            master.send(control_pb2.RestartProcesses(names=[TASK], reason="a user asked"))
            await eventually(lambda: len(deployed.starts(TASK)) == 2)
            master.send(control_pb2.RestartProcesses())
            await eventually(lambda: len(deployed.starts("stmgr-1")) == 2)


async def test_works_on_without_master_and_follows_the_new_one(home: Path) -> None:
    deployed = deploy(home, PLAN)

    with executor(deployed):
        async with Master(deployed) as first:
            await eventually(lambda: first.state_of(TASK) == control_pb2.PROC_RUNNING)
            await eventually(lambda: deployed.starts(TASK))
            first.close()
            os.kill(deployed.starts(TASK)[0][0], signal.SIGKILL)
            await eventually(lambda: len(deployed.starts(TASK)) == 2)
            second = Master(deployed, epoch=2)
            await eventually(lambda: second.state_of(TASK) == control_pb2.PROC_RUNNING)
            second.close()


def test_fenced_executor_stops_everything(home: Path) -> None:
    deployed = deploy(home, PLAN)
    with executor(deployed) as process:
        pid, _ = wait_for(lambda: deployed.starts(TASK))[0]

        async def go() -> None:
            master = Master(deployed, fence="the executor of container 1 with epoch 1 was replaced by epoch 2; stop it")
            await eventually(lambda: process.poll() is not None)
            master.close()

        asyncio.run(go())
        assert process.returncode == exit_codes.FENCED
        assert not alive(pid)


async def test_metrics_page(home: Path) -> None:
    deployed = deploy(home, PLAN)
    deployed.behave(**{TASK: {"do": "hang", "loop_age_s": 0.0}})
    port = 0

    with executor(deployed):
        async with Master(deployed) as master:
            await eventually(lambda: any(batch.reports for batch in master.batches))
            assert master.batches[0].reports[0].samples[0].name == "__emit-count"
            port = master.registrations[0].metrics_port
        page = _get(port, "/metrics")
        assert (
            'heron_emit_count_total{component="word",container="1",instance_id="container_1_word_1",'
            'process="container_1_word_1",stream="default",task="1",topology="word-count"} 7.0' in page
        )
        assert 'heron_process_up{container="1",process="stmgr-1",topology="word-count"} 1.0' in page
        assert " instance=" not in page
        assert '"healthy": true' in _get(port, "/health")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            _get(port, "/nothing")
        with pytest.raises(urllib.error.HTTPError, match="403"):
            _get(port, "/metrics", {"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="405"):
            _get(port, "/metrics", method="POST")
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n")
            assert b"431" in raw.recv(100)


def _get(port: int, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers or {}, method=method)
    with urllib.request.urlopen(request, timeout=5) as reply:
        text: str = reply.read().decode()
        return text


def test_taken_metrics_port_costs_the_page_its_port_only(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        deployed = deploy(home, PLAN, {"executor": {"metrics_port": port - 1}})
        with executor(deployed):
            wait_for(lambda: "executor-1 is running; metrics on 127.0.0.1 port" in deployed.log("executor-1"))
    assert f"port {port} of 127.0.0.1 for the metrics page is taken" in deployed.log("executor-1")


def test_metrics_are_not_shown_to_the_network_by_accident(home: Path) -> None:
    deployed = deploy(home, PLAN, {"executor": {"metrics_host": "0.0.0.0"}})
    with executor(deployed) as process:
        assert process.wait(10) == exit_codes.STARTUP_FAILURE
    assert "heron.executor.metrics_host" in deployed.log("executor-1")


def test_container_0_runs_master_and_gateway(home: Path) -> None:
    deployed = deploy(home, PLAN, needs_spark=True)
    with executor(deployed, container=0):
        # The gateway's fake has the master's arguments, so it calls itself tmaster too.
        wait_for(lambda: len(deployed.starts("tmaster")) == 2)
        first = min(deployed.starts("tmaster"))[0]
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: len(deployed.starts("tmaster")) == 3, 2.0)


def test_log_is_bounded(home: Path) -> None:
    settings = {"logging": {"file_max_bytes": 100_000, "files_max": 2}}
    deployed = deploy(home, PLAN, settings)
    deployed.behave(**{TASK: {"do": "chat", "lines": 10_000}})
    with executor(deployed):
        wait_for(lambda: "line 9999" in deployed.log(TASK))
        files = sorted(deployed.launch.log_dir.glob(f"{TASK}.log*"))
        assert len(files) == 2
        assert all(path.stat().st_size <= 110_000 for path in files)
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)


def test_metrics_socket_is_private(home: Path) -> None:
    deployed = deploy(home, PLAN)
    with executor(deployed):
        path = Path(deployed.launch.sockets_dir) / "executor-1.metrics"
        wait_for(path.exists)
        wait_for(lambda: path.stat().st_mode & 0o777 == 0o600)
        assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_the_file_sink_gets_the_metrics_of_the_container(home: Path) -> None:
    deployed = deploy(home, PLAN, settings={"metrics": {"file_sink": True, "sink_interval_s": 0.5}})
    path = Path(deployed.launch.working_dir) / "metrics" / "executor-1.jsonl"

    with executor(deployed):
        async with Master(deployed) as master:
            await eventually(lambda: master.state_of(TASK) == control_pb2.PROC_RUNNING)
            await eventually(lambda: path.exists() and TASK in path.read_text())
            page = f"http://127.0.0.1:{master.registrations[0].metrics_port}/metrics"
            written = 'heron_executor_sink_samples_written_total{container="1",process="executor-1",sink="file"'
            await eventually(lambda: written in urllib.request.urlopen(page, timeout=5).read().decode())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    ups = [line["metrics"]["__process/__up"] for line in lines if line["process"] == TASK]
    assert ups and set(ups) <= {0.0, 1.0}
