"""CPU use of processes with what runs below them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from heronpy.procs.footprints import LOOK_AGAIN_S, TreeMeter
from tests.support.waiting import wait_for

TICKS = os.sysconf("SC_CLK_TCK")


def process(proc: Path, pid: int, ticks: tuple[int, int, int, int], threads: dict[int, str]) -> None:
    """A process with its times and, per thread, its children."""
    for thread, children in threads.items():
        (proc / str(pid) / "task" / str(thread)).mkdir(parents=True, exist_ok=True)
        (proc / str(pid) / "task" / str(thread) / "children").write_text(children)
    before = " ".join(["S"] + ["0"] * 10)
    (proc / str(pid) / "stat").write_text(f"{pid} (a ) b) {before} {' '.join(map(str, ticks))} 20 0 1")


def test_children_of_any_thread_and_their_children_count(tmp_path: Path) -> None:
    process(tmp_path, 1, (1, 2, 0, 0), {1: "", 7: "20 21 "})
    process(tmp_path, 20, (10, 0, 0, 5), {20: "30 "})
    process(tmp_path, 30, (100, 0, 0, 0), {30: ""})
    process(tmp_path, 99, (5000, 0, 0, 0), {99: ""})
    meter = TreeMeter(tmp_path)
    assert round(meter.seconds([1], 0.0) * TICKS) == 118, "21 has ended, 99 is somebody else's"
    assert round(meter.seconds([1, 20, 1], 0.0) * TICKS) == 118, "each once"
    assert meter.seconds([4711], 0.0) == 0.0


def test_the_children_of_a_process_without_work_are_looked_for_rarely(tmp_path: Path) -> None:
    meter = TreeMeter(tmp_path)
    process(tmp_path, 1, (1, 0, 0, 0), {1: ""})
    process(tmp_path, 2, (10, 0, 0, 0), {2: ""})
    assert round(meter.seconds([1], 0.0) * TICKS) == 1
    process(tmp_path, 1, (1, 0, 0, 0), {1: "2"})
    assert round(meter.seconds([1], LOOK_AGAIN_S - 1) * TICKS) == 1, "it has used no CPU"
    assert round(meter.seconds([1], LOOK_AGAIN_S) * TICKS) == 11
    process(tmp_path, 1, (2, 0, 0, 0), {1: "2 3"})
    process(tmp_path, 3, (100, 0, 0, 0), {3: ""})
    assert round(meter.seconds([1], LOOK_AGAIN_S + 1) * TICKS) == 112, "it has: at once"


def test_a_rate_is_of_the_time_between_two_calls(tmp_path: Path) -> None:
    meter = TreeMeter(tmp_path)
    process(tmp_path, 1, (0, 0, 0, 0), {1: "2"})
    process(tmp_path, 2, (TICKS, 0, 0, 0), {2: ""})
    assert meter.rate([1], 10.0) is None
    process(tmp_path, 2, (3 * TICKS, TICKS, 0, 0), {2: ""})
    assert meter.rate([1], 12.0) == 1.5
    # A child that has ended is in its parent's times: nothing is lost, nothing counts twice.
    process(tmp_path, 1, (0, 0, 4 * TICKS, TICKS), {1: ""})
    assert meter.rate([1], 14.0) == 0.5
    assert meter.rate([1], 14.0) is None, "no time has passed"
    meter.forget()
    assert meter.rate([1], 16.0) is None
    assert meter.rate([1, 2], 18.0) is None, "others than before"


def test_a_grandchild_that_computes_is_seen() -> None:
    burn = "while True: pass"
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {burn!r}]).wait()"
    started = subprocess.Popen([sys.executable, "-c", parent], start_new_session=True)
    try:
        meter = TreeMeter()
        wait_for(lambda: meter.seconds([started.pid], time.monotonic()) > 0.5, 60.0, "CPU time of a grandchild")
    finally:
        os.killpg(started.pid, 9)
        started.wait()
