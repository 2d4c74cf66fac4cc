"""Memory, cores and concurrency of a running topology change, and no process ends for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heronpy.net.answers import read
from heronpy.proto import control_pb2
from heronpy.statemgr import open_state, paths
from heronpy.views.load import ComponentLoad, LoadAnswer
from tests.support.command import USAGE, Heron
from tests.support.inside import ask_master
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "resizing.py"
KEY = "heron.instance.async_concurrency"


def pids(heron: Heron) -> dict[str, int]:
    """Of all processes of the topology."""
    found = heron.status("sizes")["containers"]
    return {one["name"]: one["pid"] for container in found for one in container["processes"]}


def load(heron: Heron, component: str) -> ComponentLoad:
    answer = read(ask_master(heron, "sizes", control_pb2.GetLoad()), LoadAnswer)
    return next(row for row in answer.load.components if row.name == component)


def packed(heron: Heron) -> dict[str, Any]:
    state = open_state("local", str(heron.home / "state" / "local"))
    try:
        found = state.get(paths.packing_plan("sizes"))
    finally:
        state.close()
    assert found is not None
    plan = type(control_pb2.UpdateTopology().packing_plan).FromString(found[0])
    return {task.component: task for container in plan.containers for task in container.instances}


@pytest.mark.heavy
def test_sizes_and_concurrency_change_and_no_process_ends(heron: Heron, out: Path) -> None:
    heron.submit(PROGRAM, "sizes", "--out", out)
    heron.when_state("sizes", "RUNNING")
    before = pids(heron)
    assert len(before) == 6 and load(heron, "work").memory_limit_bytes is None

    update = ("update", "local", "sizes")
    for words, said in (
        (("--component-ram", "work:1KB"), "is not NAME:SIZE with 1MB or more"),
        (("--component-cpu", "work:much"), "is not NAME:CORES"),
        (("--component-ram", "wrk:256MB"), "no component 'wrk'; did you mean 'work'?"),
        (("--component-ram", "work:256MB", "--component-ram", "work:1GB"), "is given both 256MB and 1GB"),
        (("--runtime-config", f"work:{KEY}:8"), "only for a single asynchronous bolt"),
        (("--runtime-config", f"call:{KEY}:513"), "a whole number from 1 to 512"),
    ):
        heron(*update, *words).refused(USAGE, said)
    assert "  = work" in heron(*update, "--component-ram", "work:256MB", "--dry-run").ok().out
    assert packed(heron)["work"].memory_limit_bytes == 0

    done = heron(*update, "--component-ram", "work:256MB", "--component-cpu", "work:0.5").ok()
    assert "  = work\n" in done.out and "the tasks of 1 component resized" in done.out
    size = packed(heron)["work"]
    assert (size.memory_limit_bytes, size.resource.ram_bytes, size.resource.cpu) == (256 << 20, 256 << 20, 0.5)
    wait_for(lambda: load(heron, "work").memory_limit_bytes == 256 << 20, 10, "the limit being told")
    assert "already as requested" in heron(*update, "--component-ram", "work:256MB").ok().out

    def in_progress(number: int) -> None:
        wait_for(lambda: (out / "calls").read_text() == str(number), 30, f"{number} calls in progress")

    in_progress(3)
    assert load(heron, "call").concurrency == 3
    heron(*update, "--runtime-config", f"call:{KEY}:40").ok()
    in_progress(40)
    wait_for(lambda: load(heron, "call").concurrency == 40, 10, "the concurrency being told")
    assert load(heron, "work").concurrency is None
    heron(*update, "--runtime-config", f"call:{KEY}:0").ok()
    (out / "go").touch()
    wait_for(lambda: (out / "calls").read_text() == "1", 30, "those in progress being done")
    (out / "go").unlink()
    in_progress(3)
    assert pids(heron) == before, "no process has ended"

    # What the executor was told is what it acts on.
    heron(*update, "--component-ram", "work:16MB").ok()
    [event, *_] = heron.when_events("sizes", "oom", 1)
    assert "above the limit of 16MB" in str(event)
    heron(*update, "--component-ram", "work:0", "--component-cpu", "work:0").ok()
    wait_for(lambda: load(heron, "work").memory_limit_bytes is None, 10, "no limit being told")
    assert packed(heron)["work"].resource.cpu == 0.0
    heron.when_state("sizes", "RUNNING")
    changed = {name for name, pid in pids(heron).items() if before.get(name) != pid}
    assert changed and all("_work_" in name for name in changed)
    heron.kill("sizes")
