"""What trees of processes use: both dimensions, of all their processes, and only once it was measured for long enough."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from heronpy.executor.slot_load import SAMPLE_S, SAMPLES, TreeLoads

MB = 1 << 20
CHILD = "import time; kept = bytearray(40 << 20); print(1, flush=True); time.sleep(60)"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


@pytest.fixture
def tree() -> Iterator[int]:
    """A process whose child has 40 MB."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == b"1\n"
        yield process.pid
        os.killpg(process.pid, signal.SIGKILL)


def test_a_tree_counts_with_all_its_processes_once_it_was_measured_for_ten_minutes(tree: int) -> None:
    loads = TreeLoads()
    for turn in range(SAMPLES):
        loads.sample({"T/1": tree}, turn * SAMPLE_S)
        assert loads.known(turn * SAMPLE_S) == {}
    loads.sample({"T/1": tree}, SAMPLES * SAMPLE_S)
    known = loads.known(SAMPLES * SAMPLE_S)["T/1"]
    assert 40 * MB < known.ram_bytes < 200 * MB and 0 <= known.cpu < 1
    loads.forget("T/1")
    assert loads.known(SAMPLES * SAMPLE_S) == {}


def test_a_restarted_tree_does_not_count_as_less_than_nothing(tree: int) -> None:
    loads = TreeLoads()
    for turn in range(SAMPLES + 2):
        loads.sample({"T/1": tree if turn % 2 else 999_999_999}, turn * SAMPLE_S)
    assert loads.known(1e9) == {}
