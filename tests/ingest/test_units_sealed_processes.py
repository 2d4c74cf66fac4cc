"""Real processes of bounded runs while a log grows and rotates all the time."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from heronpy.verify.units.logs import RotatedLogs
from tests.ingest.test_units_topology import PROGRAM, agree
from tests.ingest.units_cli import rows_of
from tests.support.command import Heron


@pytest.mark.heavy
def test_runs_end_beside_a_log_that_grows_and_rotates(heron: Heron, logs: Path, table: Path) -> None:
    stopped, chance, written = threading.Event(), random.Random(1), RotatedLogs(logs, 1, ("a.log",))
    written.append("a.log", 3_000)

    def grow() -> None:
        while not stopped.wait(0.01):
            written.append("a.log", 5)
            if chance.random() < 0.01:
                written.rename("a.log")

    writer = threading.Thread(target=grow, daemon=True)
    writer.start()
    try:
        runs = ("--logs", logs, "--table", table, "--until", "now", "--wait", "--timeout", "300")
        for _ in range(2):
            assert "FINISHED" in heron.submit(PROGRAM, *runs).out
    finally:
        stopped.set()
        writer.join()
    assert "FINISHED" in heron.submit(PROGRAM, *runs).out
    assert Counter(rows_of(table)) == Counter(written.written.all_lines())
    agree(heron, table)
