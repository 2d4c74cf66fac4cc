"""`heron doctor` about troubles of real topologies: it names each first, and no more once it is over."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import REPO, Heron
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.timeout(600)]

PATIENCE_S = 240.0
#: By kind of `troubled.py`: the verdict, and words of its sentence and of its advice.
SAID = {
    "hung": ("hung", "container_1_work_2 has been in one call for", "heron stacks local Troubled container_1_work_2"),
    "limit": ("limit", "topology.max.spout.pending (20) limits the rate", "raise topology.max.spout.pending"),
    "checkpoints": ("checkpoints", "OSError: the disk is full", "heron checkpoints list local Troubled"),
    "no input": ("no input", "source emitted nothing in the last", ""),
}


def start(heron: Heron, what: str, ill: Path, *flags: str) -> None:
    program = REPO / "tests" / "support" / "troubled.py"
    heron("submit", "local", program, "Troubled", "--what", what, "--ill", ill, *flags).ok()


def findings(heron: Heron) -> list[dict[str, Any]]:
    asked = heron("doctor", "local", "Troubled", "--window", "10", "--json")
    assert asked.code in (0, 1), asked
    found: dict[str, Any] = json.loads(asked.out)
    assert found["healthy"] == (asked.code == 0)
    said: list[dict[str, Any]] = found["findings"]
    return said


def when_first(heron: Heron, verdict: str) -> dict[str, Any]:
    def first() -> dict[str, Any] | None:
        said = findings(heron)[0]
        return said if said["verdict"] == verdict else None

    return wait_for(first, PATIENCE_S, f"the doctor saying {verdict} first")


def when_gone(heron: Heron, verdict: str) -> None:
    def gone() -> bool:
        return verdict not in [one["verdict"] for one in findings(heron)]

    wait_for(gone, PATIENCE_S, f"the doctor not saying {verdict} any more")


@pytest.mark.parametrize("what", SAID)
def test_a_trouble_is_named_while_it_lasts(heron: Heron, tmp_path: Path, what: str) -> None:
    verdict, words, todo = SAID[what]
    ill = tmp_path / "ill"
    ill.touch()
    start(heron, what, ill, "--config-property", "heron.checkpoint.interval_s=1")
    said = when_first(heron, verdict)
    assert words in said["sentence"] and todo in said["next"] and bool(todo) == bool(said["next"])
    ill.unlink()
    when_gone(heron, verdict)


def test_a_failed_topology_runs_again_as_advised(heron: Heron, tmp_path: Path) -> None:
    ill = tmp_path / "ill"
    ill.touch()
    start(heron, "raises", ill, "--config-property", "heron.executor.restart_exception_budget_s=5")
    said = when_first(heron, "failed")
    assert "is unlucky" in said["sentence"] and "heron restart local Troubled" in said["next"]
    ill.unlink()
    heron("restart", "local", "Troubled").ok()
    when_gone(heron, "failed")


def _stopped(heron: Heron) -> Callable[[], None]:
    """Stop the stream manager; what is returned lets it go on."""
    pid = heron.pid("Troubled", "stmgr-1")
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


def test_tasks_behind_a_silent_stream_manager_are_down(heron: Heron, tmp_path: Path) -> None:
    start(heron, "hung", tmp_path / "never")
    go_on = _stopped(heron)
    try:
        said = when_first(heron, "down")
        assert said["sentence"].startswith(
            "the only task of source is down (container_1_source_1): stmgr-1 has been silent"
        )
    finally:
        go_on()
    when_gone(heron, "down")
