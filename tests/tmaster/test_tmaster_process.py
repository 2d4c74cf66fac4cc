"""The topology master as a process, and what it answers when it stops."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from heronpy.common.errors import RetryableRpcError
from heronpy.common.exit_codes import OK
from heronpy.net.rpc import RpcClient
from heronpy.proto import control_pb2
from heronpy.statemgr import open_state, paths
from heronpy.tmaster.shell import Shell
from tests.support.launch import launch_spec
from tests.support.memory_state import MemoryStateManager
from tests.support.waiting import eventually, wait_for
from tests.support.wires import new_endpoint
from tests.tmaster.test_tmaster_shell import DEADLINE_S, SETTINGS, Cluster, in_loop, location, stored
from tests.tmaster.tmaster_world import make_topology


class Slow(MemoryStateManager):
    """A write of the topology takes until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()
        self.writing = threading.Event()

    def set(self, path: str, data: bytes, version: int | None = None) -> int:
        if path == paths.topology("wc"):
            self.writing.set()
            assert self.let_go.wait(DEADLINE_S)
        return super().set(path, data, version)


@in_loop
async def test_whoever_asks_a_master_that_stops_is_told_so() -> None:
    """Those who wait for an operation hear of its end, and what comes during the last writes is not begun."""
    state = stored(Slow(), make_topology({"word": 2}, {"count": 2}))
    c = Cluster(Shell("wc", SETTINGS, state, epoch=7, endpoint=new_endpoint()), state)
    await c.start()
    await c.join()
    early = asyncio.ensure_future(c.cli.call(control_pb2.SetState(active=False), DEADLINE_S))
    await eventually(state.writing.is_set)
    c.shell.stop()
    late = await asyncio.gather(c.cli.call(control_pb2.RestartTarget(task_id=1)), return_exceptions=True)
    assert not early.done(), "its outcome is known when what was begun is written"
    state.let_go.set()
    for told in (*late, *await asyncio.gather(early, return_exceptions=True)):
        assert isinstance(told, RetryableRpcError) and "is stopping; try again" in str(told), told
    await c.close()


def test_process_starts_and_stops_with_its_signal(tmp_path: Path) -> None:
    root = tmp_path / "state"
    state = stored(open_state("local", str(root)), make_topology({"word": 1}, {"count": 1}))
    launch = launch_spec("wc", "wc-1", tmp_path)
    launch.save(tmp_path / "launch.json")
    command = [sys.executable, "-m", "heronpy.tmaster", "--launch", str(tmp_path / "launch.json")]
    process = subprocess.Popen([*command, "--epoch", "5"], stdout=subprocess.PIPE, env=dict(os.environ))
    try:
        found = wait_for(lambda: location(state), 20)
        assert (found.epoch, found.pid) == (5, process.pid)
        with RpcClient(found.endpoint) as client:
            status = client.call(control_pb2.GetStatus())
        assert status.lifecycle == control_pb2.LIFE_STARTING and "stmgr-1" in status.cause
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == OK
        assert location(state) is None
    finally:
        process.kill()
        process.communicate()
        state.close()


def test_wrong_launch_file_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "heronpy.tmaster", "--launch", str(tmp_path / "none.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert "cannot read launch file" in done.stderr and "Traceback" not in done.stderr
