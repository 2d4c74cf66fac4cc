"""Updates of adjacent components to more tasks, one after the other, under load: nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.support.command import Heron
from tests.support.inside import inside
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "growing.py"
UPDATES = int(os.environ.get("HERON_UPDATES", "2"))


@pytest.mark.parametrize(
    "mode",
    ["ATMOST_ONCE", *(pytest.param(mode, marks=pytest.mark.heavy) for mode in ("ATLEAST_ONCE", "EFFECTIVELY_ONCE"))],
)
def test_updates_of_adjacent_components_lose_nothing(heron: Heron, out: Path, mode: str) -> None:
    heron.submit(PROGRAM, "growing", "--out", out, "--mode", mode)

    def processed() -> int:
        return sum(task.executed for task in inside(heron, "growing").tasks if task.component == "store")

    for tasks in range(2, 2 + UPDATES):
        wait_for(lambda: processed() > 100, 60, "tuples on their way")
        words = [word for name in ("pass", "store") for word in ("--component-parallelism", f"{name}:{tasks}")]
        heron("update", "local", "growing", *words).ok()
    (out / "stop").touch()
    heron.when_state("growing", "FINISHED")
    status = inside(heron, "growing")
    counted = {
        "discarded": status.discarded_tuples,
        "lost": sum(task.lost_tuples for task in status.tasks),
        "dead letters": sum(task.dead_letters for task in status.tasks),
    }
    files = sorted(out.glob("exact.*")) if mode == "EFFECTIVELY_ONCE" else [out / "stored"]
    found = Counter(int(line) for file in files for line in file.read_text().split())
    wanted = range(int((out / "total").read_text()))
    missing = [number for number in wanted if not found[number]]
    assert not missing, f"{len(missing)} of {len(wanted)} are missing, {counted}: {missing[:20]}"
    assert set(found) == set(wanted)
    if mode != "ATLEAST_ONCE":
        assert max(found.values()) == 1, "nothing comes twice"
    assert not any(counted.values()), counted
