"""EFFECTIVELY_ONCE with real processes: only what is lost goes back, whoever is master, and rescaling is exact."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.programs.counted import KEYS
from tests.support.command import Heron
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "counted.py"
QUICK = ("--config-property", "heron.checkpoint.interval_s=0.5")


def submit(heron: Heron, out: Path, *words: object) -> None:
    heron.submit(PROGRAM, "counted", "--out", out, *QUICK, *words)


def known(heron: Heron) -> dict[str, Any]:
    """What the topology master says of checkpoints."""
    return heron("checkpoints", "list", "local", "counted", "--json").json()


def newest(heron: Heron) -> int:
    return max((row["checkpoint"] for row in known(heron)["checkpoints"]), default=0)


def when_newer(heron: Heron, timeout_s: float = 60.0) -> int:
    """The next checkpoint that completes."""
    before = newest(heron)
    wait_for(lambda: newest(heron) > before, timeout_s, f"a checkpoint after {before}")
    return newest(heron)


def attempts(heron: Heron) -> dict[str, int]:
    regions = heron.status("counted")["checkpoints"]["regions"]
    return {sorted(region["components"])[0][-1]: region["attempt"] for region in regions}


def pids(heron: Heron, letter: str) -> dict[str, int]:
    tasks = heron.status("counted")["tasks"]
    return {t["instance_id"]: t["pid"] for t in tasks if t["component"].endswith(letter)}


def progress(out: Path, letter: str) -> int:
    path = out / f"progress.source-{letter}"
    return int(path.read_text()) if path.exists() else 0


def moves(out: Path, letter: str) -> None:
    before = progress(out, letter)
    wait_for(lambda: progress(out, letter) > before + 100, 60, f"progress in region {letter}")


def finished_exactly(heron: Heron, out: Path, *letters: str) -> None:
    (out / "stop").touch()
    heron.when_state("counted", "FINISHED", 120.0)
    for letter in letters:
        rows = [
            json.loads(line) for file in (out / letter).glob("part-*.jsonl") for line in file.read_text().splitlines()
        ]
        total = int((out / f"total.source-{letter}").read_text())
        assert total > 0 and len(rows) == min(KEYS, total), "a key is missing, or there twice"
        assert {r["key"]: r["count"] for r in rows} == Counter(f"k{n % KEYS}" for n in range(total))


@pytest.mark.heavy
def test_only_the_connected_region_goes_back_and_the_data_path_needs_no_master(heron: Heron, out: Path) -> None:
    """F01, F03, F10."""
    submit(heron, out, "--regions", 2, "--config-property", "heron.tmaster.stmgr_lost_s=2")
    when_newer(heron)
    before, untouched = attempts(heron), pids(heron, "b")
    [victim] = [task for task in pids(heron, "a") if "count" in task]
    os.kill(heron.pid("counted", victim), signal.SIGKILL)
    heron.when("counted", lambda now: now["checkpoints"]["restores"] == 1, "a restore")
    when_newer(heron)
    after = attempts(heron)
    assert after["a"] > before["a"] and after["b"] == before["b"] and pids(heron, "b") == untouched

    master = heron.pid("counted", "tmaster")
    everybody = pids(heron, "a") | untouched
    os.kill(master, signal.SIGSTOP)
    try:
        # Longer than any silence that it would bear from others.
        until = time.monotonic() + 4.0
        wait_for(lambda: time.monotonic() > until, 10, "a long silence")
        moves(out, "a")
        moves(out, "b")
    finally:
        os.kill(master, signal.SIGCONT)
    last = when_newer(heron, 10.0)
    assert attempts(heron) == after and pids(heron, "a") | pids(heron, "b") == everybody

    os.kill(master, signal.SIGKILL)
    heron.when("counted", lambda now: heron.pid("counted", "tmaster") != master, "another master")
    assert when_newer(heron, 10.0) > last
    assert attempts(heron) == after and pids(heron, "a") | pids(heron, "b") == everybody
    finished_exactly(heron, out, "a", "b")


@pytest.mark.heavy
def test_verbs_leave_the_result_exact(heron: Heron, out: Path) -> None:
    """Savepoint, restore and delete while it runs and while it rests; restart; more containers; settings."""
    submit(heron, out, "--counters", 2)
    when_newer(heron)
    heron("deactivate", "local", "counted").ok()
    saved = heron("checkpoints", "savepoint", "local", "counted", "--json").json()["checkpoint"]
    rested = progress(out, "a")
    heron("activate", "local", "counted").ok()
    moves(out, "a")
    heron("checkpoints", "restore", "local", "counted", "--checkpoint", saved).ok()
    wait_for(lambda: progress(out, "a") > rested, 60, "progress after the restore")
    heron("deactivate", "local", "counted").ok()
    heron("checkpoints", "restore", "local", "counted", "--checkpoint", saved).ok()
    assert heron.status("counted")["lifecycle"] == "PAUSED"
    heron("activate", "local", "counted").ok()
    moves(out, "a")
    when_newer(heron)
    heron("checkpoints", "delete", "local", "counted", saved).ok()
    assert saved not in [row["checkpoint"] for row in known(heron)["checkpoints"]]
    heron("restart", "local", "counted", "1").ok()
    heron("update", "local", "counted", "--container-number", 2).ok()
    moves(out, "a")
    heron("update", "local", "counted", "--runtime-config", "some.key:7").ok()
    moves(out, "a")
    finished_exactly(heron, out, "a")
