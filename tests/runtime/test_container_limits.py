"""The room that a topology asks for limits its containers, where control groups can be written."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from heronpy.loadtest.errors import LabError
from heronpy.procs import container_group
from heronpy.verify.disk import SmallDisk
from tests.support.command import Heron
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "limited.py"
PATIENCE_S = 60.0


def can_write() -> bool:
    """Whether a group can be made here, and removed."""
    with suppress(OSError):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        try:
            container_group.enter("heron.test.1", child, 1.0, 1 << 30)
            return True
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
            container_group.remove("heron.test.")
    return False


def groups_of(pid: int) -> list[str]:
    return [line for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if "/heron." in line]


@pytest.mark.heavy
def test_a_container_has_no_more_than_it_asks_for(heron: Heron, out: Path) -> None:
    if not can_write():
        pytest.skip("control groups cannot be written here")
    heron.submit(PROGRAM, "limited", "--out", out)
    heron.when_logged("limited", r"a control group limits container 1 to 0.25 cores and 400MB of memory", "executor-1")
    name = "container_1_takes_1"
    task = heron.pid("limited", name)
    [path] = {line.rpartition("/")[2] for line in groups_of(task)}
    assert path.startswith("heron.limited") and path.endswith(".1")
    assert not groups_of(heron.pid("limited", "tmaster")), "container 0 asks for nothing"
    (out / "cpu").touch()
    process = psutil.Process(task)
    begun, before = time.monotonic(), process.cpu_times().user
    wait_for(lambda: time.monotonic() - begun > 4.0, 10, "some seconds of work")
    assert process.cpu_times().user - before < 0.35 * (time.monotonic() - begun)
    (out / "cpu").unlink()
    (out / "memory").touch()
    wait_for(lambda: heron.pid("limited", name) not in (0, task), PATIENCE_S, "the end of the task that takes too much")
    (out / "memory").unlink()
    heron.when_logged("limited", r"takes_1 .*ran out of memory|takes_1 ended \(oom", "executor-1")
    heron.kill("limited")
    left = [one for one in Path("/sys/fs/cgroup").glob(f"*/**/{path}") if one.is_dir()]
    assert left == []


@pytest.mark.heavy
def test_a_setting_leaves_containers_without_limits(heron: Heron, out: Path) -> None:
    heron.submit("--config-property", "heron.executor.control_groups=false", PROGRAM, "limited", "--out", out)
    assert not groups_of(heron.pid("limited", "executor-1"))
    heron.kill("limited")


def test_status_says_why_a_container_has_no_limits(heron: Heron, out: Path) -> None:
    groups = SmallDisk(Path("/sys/fs/cgroup"), 1 << 20)  # without any control group
    try:
        groups.__enter__()
    except LabError as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    try:
        heron.submit(PROGRAM, "limited", "--out", out)
        said = "Container 1 is not limited to the requested CPU and memory, because no control group"
        shown = " ".join(heron("status", "local", "limited").ok().out.split())
        assert f"{said} can be created (no control group of this process has the controller 'memory')" in shown
        heron.kill("limited")
    finally:
        groups.__exit__(None, None, None)
