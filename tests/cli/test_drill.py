"""`heron drill` signals processes of a topology, and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator

import psutil
import pytest

from heronpy.clusters.session import Session
from heronpy.plan.launch import LAUNCH_VARIABLE
from heronpy.proto import control_pb2
from tests.cli.conftest import FakeTopology, Heron
from tests.support.waiting import wait_for

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(wordy: FakeTopology) -> Iterator[Start]:
    """Starts a process that the topology's status names; `ours`: and that is of the topology."""
    started: list[subprocess.Popen[bytes]] = []
    executor = wordy.status.executors.add(container=1, file_service="ipc:///x")

    def run(name: str, ours: bool = True) -> subprocess.Popen[bytes]:
        environment = {**os.environ, LAUNCH_VARIABLE: wordy.record.launch_file if ours else "other"}
        process = subprocess.Popen(["sleep", "60"], env=environment, start_new_session=True)
        started.append(process)
        if name.startswith("executor"):
            executor.pid = process.pid
        else:
            executor.processes.add(name=name, pid=process.pid, state=control_pb2.PROC_RUNNING)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait(5)


def killed(*processes: subprocess.Popen[bytes]) -> list[bool]:
    return [process.wait(5) == -signal.SIGKILL for process in processes]


def test_it_kills_a_task_a_component_a_process_or_a_container(heron: Heron, wordy: FakeTopology, start: Start) -> None:
    word, first = start("container_1_word_1"), start("container_1_count_2")
    second, stmgr, executor = start("container_1_count_3"), start("stmgr-1"), start("executor-1")
    result = heron("drill", "local", "wordy", "word-1")
    assert result.out == f"Killed container_1_word_1 (process {word.pid}) of topology 'wordy'\n", result
    assert killed(word) and first.poll() is None
    del wordy.status.executors[0].processes[0]
    assert heron("drill", "local", "wordy", "count").code == 0
    assert killed(first, second) == [True, True] and stmgr.poll() is None
    del wordy.status.executors[0].processes[:2]
    assert heron("drill", "local", "wordy", "1").code == 0
    assert killed(stmgr, executor) == [True, True]


def test_it_stops_and_continues(heron: Heron, wordy: FakeTopology, start: Start) -> None:
    stmgr = psutil.Process(start("stmgr-1").pid)
    command = threading.Thread(
        target=heron, args=("drill", "local", "wordy", "stmgr", "--signal", "stop", "--for", "1s")
    )
    command.start()
    wait_for(lambda: stmgr.status() == psutil.STATUS_STOPPED, 10, "its stop")
    command.join(20)
    assert stmgr.status() != psutil.STATUS_STOPPED


def test_a_process_that_is_not_of_the_topology_is_left_alone(heron: Heron, wordy: FakeTopology, start: Start) -> None:
    """The system may have given its number to another one."""
    other = start("stmgr-1", ours=False)
    result = heron("drill", "local", "wordy", "stmgr-1")
    assert result.code == 1 and "stmgr-1 is not running; see 'heron status local wordy'" in result.err
    assert other.poll() is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nobody",), "topology 'wordy' has no task or process 'nobody'"),
        (("7",), "topology 'wordy' has no container 7; it has 1"),
        (("master",), "topology 'wordy' has no task or process 'tmaster'"),
        (("stmgr-1", "--for", "3s"), "--for sets how long STOP halts processes; add --signal STOP"),
    ],
)
def test_what_it_refuses(heron: Heron, start: Start, words: tuple[str, ...], told: str) -> None:
    start("stmgr-1")
    result = heron("drill", "local", "wordy", *words)
    assert result.code != 0 and told in result.err


def test_it_refuses_a_topology_on_an_engine(heron: Heron, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start("stmgr-1")
    monkeypatch.setattr(Session, "engine_of", lambda *_: "slurm")
    result = heron("drill", "local", "wordy", "stmgr-1")
    assert result.code != 0 and "runs on slurm, and a drill signals only processes on this machine" in result.err
    assert process.poll() is None
