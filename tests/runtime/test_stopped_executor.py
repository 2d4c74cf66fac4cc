"""An executor that is stopped and goes on, or that was replaced meanwhile (F10)."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from heronpy.proto import control_pb2
from tests.support.command import Heron
from tests.support.inside import ask_master, inside
from tests.support.waiting import alive, wait_for

PROGRAM = Path(__file__).parent / "programs" / "exits.py"
TASK = "container_1_victim_2"
PATIENCE_S = 60.0


def seen(out: Path) -> int:
    return (out / "seen").stat().st_size


@pytest.mark.heavy
def test_a_stopped_executor_goes_on_where_it_was(heron: Heron, out: Path) -> None:
    """Its tasks flow on meanwhile; what died in that time is restarted when it can look again."""
    heron.submit(PROGRAM, "exits", "--out", out)
    pids = {name: heron.pid("exits", name) for name in ("executor-1", "stmgr-1", "container_1_sibling_3", TASK)}
    os.kill(pids["executor-1"], signal.SIGSTOP)
    try:
        os.kill(pids[TASK], signal.SIGKILL)
        before = seen(out)
        wait_for(lambda: seen(out) > before + 50, PATIENCE_S, "tuples without an executor")
    finally:
        os.kill(pids["executor-1"], signal.SIGCONT)
    wait_for(lambda: heron.pid("exits", TASK) not in (0, pids[TASK]), PATIENCE_S, "the task that died being back")
    heron.when_state("exits", "RUNNING")
    for name in ("executor-1", "stmgr-1", "container_1_sibling_3"):
        assert heron.pid("exits", name) == pids[name], name


@pytest.mark.heavy
def test_an_executor_that_was_replaced_is_a_zombie(heron: Heron, out: Path) -> None:
    """A newer one of its container has registered: it ends, and all its processes with it."""
    heron.submit(PROGRAM, "exits", "--out", out)
    zombie = heron.pid("exits", "executor-1")
    children = [heron.pid("exits", name) for name in ("stmgr-1", "container_1_sibling_3", TASK)]
    epoch = next(one.epoch for one in inside(heron, "exits").executors if one.container == 1)
    os.kill(zombie, signal.SIGSTOP)
    try:
        # As the scheduler of another machine would start it.
        newer = control_pb2.RegisterExecutor(container=1, epoch=epoch + 1, pid=1, host="another")
        ask_master(heron, "exits", newer)
    finally:
        with suppress(ProcessLookupError):
            os.kill(zombie, signal.SIGCONT)
    heron.when_logged("exits", r"was replaced by epoch", "executor-1")
    wait_for(lambda: not any(map(alive, [zombie, *children])), PATIENCE_S, "the end of the zombie and all it ran")
