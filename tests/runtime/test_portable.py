"""What was submitted on one host runs on another one, which has other folders and never saw the first one's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from heronpy.plan.launch import Submitted, save_submitted
from heronpy.proto import plan_pb2
from heronpy.statemgr import open_state, paths
from tests.support.command import EXAMPLES, Heron
from tests.support.waiting import wait_for

NAME = "counts"
#: What another host gets: the nodes by which a scheduler starts.
NODES = (paths.topology(NAME), paths.packing_plan(NAME), paths.launch(NAME))


@pytest.fixture
def other(home: Path) -> Iterator[Heron]:
    """The command on a host whose folders are elsewhere."""
    folder = home.parent / "elsewhere"
    (folder / "t").mkdir(parents=True, mode=0o700)
    command = Heron(folder / "data")
    command.env["TMPDIR"] = str(folder / "t")
    command.home.mkdir(mode=0o700)
    yield command
    for name in command.names():
        command.kill(name)
    assert not command.processes()


def nodes_of(heron: Heron) -> dict[str, bytes]:
    state = open_state("local", str(heron.home / "state" / "local"))
    found = {path: node[0] for path in NODES if (node := state.get(path)) is not None}
    state.close()
    return found


@pytest.mark.heavy
def test_a_launch_runs_where_nothing_of_its_host_is(heron: Heron, other: Heron, out: Path) -> None:
    (words := out / "words").write_text("one fish two fish\n")
    flags = ("--file", words, "--out", out / "counts", "--times", 1_000_000, "--rate", 50)
    options = ("--config-property", "heron.checkpoint.interval_s=0.5")
    heron.submit(*options, EXAMPLES / "stateful_word_count.py", NAME, *flags)
    taken = nodes_of(heron)
    assert taken.keys() == set(NODES)
    heron.kill(NAME)
    submitted = Submitted.from_bytes(taken[paths.launch(NAME)], "test")
    (other.home / "packages").mkdir(mode=0o700)
    assert submitted.package is not None
    os.rename(heron.home / "packages" / submitted.package, other.home / "packages" / submitted.package)
    # Whoever opens a path of the first host fails from now on.
    for folder in ("topologies", "packages", "checkpoints"):
        os.rename(heron.home / folder, heron.home / f"{folder}.gone")

    working = other.home / "topologies" / "local" / submitted.role / NAME
    launch_file = working / "launch.json"
    save_submitted(submitted, launch_file)
    state = open_state("local", str(other.home / "state" / "local"))
    record = plan_pb2.ExecutionState(
        topology=NAME, topology_id=submitted.topology_id, cluster="local", role=submitted.role,
        environ=submitted.environ, working_dir=str(working), launch_file=str(launch_file),
    )  # fmt: skip
    state.create(paths.execution_state(NAME), record.SerializeToString())
    for path, data in taken.items():
        state.create(path, data)
    command = [sys.executable, "-P", "-m", "heronpy.scheduler", "--launch", str(launch_file)]
    scheduler = subprocess.Popen(command, env={**other.env, "HERON_LAUNCH": str(launch_file)}, cwd=working)
    try:
        other.when_state(NAME, "RUNNING")
        # Its checkpoints are in the folder of the host that takes them.
        taken_here = other.home / "checkpoints" / "local" / submitted.topology_id
        wait_for(lambda: list(taken_here.glob("chk-*")), 30, "a checkpoint")
        left = str(heron.home)
        for process in other.processes():
            with process.oneshot():
                named = [*process.cmdline(), process.cwd(), *(one.path for one in process.open_files())]
            assert not [one for one in named if one.startswith(left)], process
    finally:
        state.close()
        if psutil.pid_exists(scheduler.pid):
            other.kill(NAME)
        scheduler.wait(20)
