"""Child processes, descriptors, threads and log of a task, of real processes."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from heronpy.procs import footprints
from heronpy.procs.footprints import LOOK_S, FootprintMeter
from tests.support.waiting import wait_for

#: A child with a child of its own, and one without; some open files.
PROGRAM = "exec 3</dev/null 4</dev/null; sh -c 'sleep 60 & wait' & sleep 60 & echo ready; wait"


def test_a_process_with_children(tmp_path: Path) -> None:
    logged: Counter[str] = Counter()
    meter = FootprintMeter(str(tmp_path), logged.__getitem__)
    process = subprocess.Popen(["sh", "-c", PROGRAM], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"

        def look(now: float) -> footprints.control_pb2.Footprint | None:
            meter.measure({"a": process.pid}, now)
            return meter.of("a")

        def has_all() -> bool:
            meter.measure({}, 0.0)
            found = look(0.0)
            return found is not None and found.descendants == 3

        wait_for(has_all, 10.0, "a process that it has begun, and the one below that")
        first = look(0.0)
        assert first is not None and first.threads == 1 and first.descriptors_max >= first.descriptors >= 5
        assert first.descendant_bytes > 0 and first.log_per_s == 0.0
        logged["a"] = 5_000_000
        assert look(LOOK_S - 0.1) is first, "seldom"
        later = look(LOOK_S)
        assert later is not None and later.log_per_s == 500_000.0
        assert meter.disk[0] >= meter.disk[1] > 0
    finally:
        os.killpg(process.pid, 9)
        process.wait()
    meter.measure({"a": process.pid}, 2 * LOOK_S)
    assert meter.of("a") == later, "one that has just ended has its last figures"
    meter.measure({}, 2 * LOOK_S)
    assert meter.of("a") is None


def test_of_many_children_a_sample_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """18,581 of them would take a second for each look."""
    asked = []

    def children(pid: int, proc: object) -> list[int]:
        asked.append(pid)
        return list(range(1_000_000, 1_018_581)) if pid == os.getpid() else []

    monkeypatch.setattr(footprints, "children_of", children)
    monkeypatch.setattr(FootprintMeter, "_pss", lambda self, pid: asked.append(pid) or 1000)
    meter = FootprintMeter(str(tmp_path), lambda name: 0)
    meter.measure({"a": os.getpid()}, 0.0)
    found = meter.of("a")
    assert found is not None and (found.descendants, found.descendant_bytes) == (18_581, 18_581_000)
    assert len(asked) == 1 + 2 * footprints.SAMPLED
