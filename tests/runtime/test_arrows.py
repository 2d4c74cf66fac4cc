"""Streams with an Arrow schema in real processes: exact in each mode, also with pickle forbidden, and killed."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.runtime.programs.arrows import PER_CALL
from tests.runtime.test_batched import busy, expected
from tests.support.command import Heron
from tests.support.inside import inside
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "arrows.py"
SETTINGS = (
    "heron.executor.restart_backoff_s=0.01",
    "heron.executor.restart_backoff_max_s=0.1",
    "heron.checkpoint.interval_s=0.3",
    "heron.instance.allow_pickle=false",
)


def submit(heron: Heron, out: Path, mode: str, count: int, *words: object) -> None:
    settings = [word for setting in SETTINGS for word in ("--config-property", setting)]
    heron.submit(PROGRAM, "batched", "--out", out, "--mode", mode, "--count", count, *settings, *words)


def tallied(out: Path) -> Counter[int]:
    """How often each number was counted; a key is counted by one task only."""
    counts: Counter[int] = Counter()
    keys: list[set[int]] = []
    for path in out.glob("tally.*.json"):
        found = json.loads(path.read_text())
        keys.append({key for key, _, _ in found})
        for _, number, count in found:
            counts[number] += count
    assert sum(map(len, keys)) == len(set().union(*keys)) == 11
    return counts


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
def test_record_batches_are_exact_in_each_mode(heron: Heron, out: Path, mode: str) -> None:
    submit(heron, out, mode, 20_000)
    heron.when_state("batched", "FINISHED", 60)
    assert tallied(out) == expected(20_000)
    executed: Counter[str] = Counter()
    for task in inside(heron, "batched").tasks:
        executed[task.component] += task.executed
    assert executed == {"source": 0, "relay": 20_000, "tally": sum(expected(20_000).values())}


def test_kills_in_the_middle_of_record_batches_change_no_count_effectively_once(heron: Heron, out: Path) -> None:
    count = 600 * PER_CALL
    submit(heron, out, "EFFECTIVELY_ONCE", count, "--pause-ms", 3)
    killed: set[int] = set()
    for victim in ("relay", "tally", "source", "tally"):
        pid = wait_for(lambda victim=victim: busy(heron, victim, killed), 60, f"a busy {victim}")
        os.kill(pid, signal.SIGKILL)
        killed.add(pid)
    heron.when_state("batched", "FINISHED", 120)
    assert tallied(out) == expected(count)
