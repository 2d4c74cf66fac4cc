"""What the processes of a topology take stays flat: over restores from checkpoints, and over time.

HERON_TEST_RESTORES and HERON_TEST_SOAK_S are the length: 100 restores, and two minutes; an hour is 3600.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.command import Heron
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "stateful.py"
RESTORES = int(os.environ.get("HERON_TEST_RESTORES", "100"))
SOAK_S = float(os.environ.get("HERON_TEST_SOAK_S", "120"))
PATIENCE_S = 60.0
#: Queues and histories have reached their size.
WARM_S = 240.0
#: A measurement is the least of this many samples, because a garbage collection may be due.
LOOKS = 10
FLAT = 1.05

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(max(3600, SOAK_S * 2))]


def taken(heron: Heron) -> int:
    """Bytes that all processes take together, shared pages counted once."""
    found = []
    for _ in range(LOOKS):
        total = 0
        for process in heron.processes():
            with suppress(psutil.Error):
                total += process.memory_full_info().pss
        found.append(total)
        time.sleep(0.2)  # between two looks
    return min(found)


def restores(heron: Heron) -> int:
    return int(heron.status("flat")["totals"]["restores"])


def submitted(heron: Heron, out: Path) -> None:
    # The state of user code does not grow either.
    heron.submit(PROGRAM, "flat", "--out", out, "--keys", 1000, "--source-pause-ms", 1)
    heron.when_state("flat", "RUNNING")


def test_memory_is_flat_over_restores(heron: Heron, out: Path) -> None:
    submitted(heron, out)
    warm = max(10, RESTORES // 5)
    before = 0
    for number in range(warm + RESTORES):
        if number == warm:
            before = taken(heron)
        known = restores(heron)
        heron("drill", "local", "flat", "work").ok()
        wait_for(lambda known=known: restores(heron) > known, PATIENCE_S, "a restore")  # type: ignore[misc]
        heron.when_state("flat", "RUNNING")
    after = taken(heron)
    print(f"after {warm} restores {before:,} bytes, after {RESTORES} more {after:,}")
    assert after <= before * FLAT
    heron.kill("flat")


def test_memory_is_flat_over_time(heron: Heron, out: Path) -> None:
    submitted(heron, out)
    begun = time.monotonic()
    warm_s = max(WARM_S, SOAK_S / 5)
    wait_for(lambda: time.monotonic() - begun > warm_s, warm_s + 10, "the end of the warm-up")
    before = taken(heron)
    wait_for(lambda: time.monotonic() - begun > warm_s + SOAK_S, SOAK_S + 10, "the end of the soak")
    after = taken(heron)
    print(f"after {warm_s:g} s {before:,} bytes, after {SOAK_S:g} s more {after:,}")
    assert after <= before * FLAT
    heron.kill("flat")
