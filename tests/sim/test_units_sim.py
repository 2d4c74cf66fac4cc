"""Seeds of the simulation of work units (F39); `make sim WHAT=units N=1000` runs more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.sim.units import Cluster, run_days, run_units, units_simulator

ROOT = Path(__file__).parents[2]


def _passes(seeds: range | tuple[int, ...]) -> Counter[str]:
    stats: Counter[str] = Counter()
    with units_simulator() as folder:
        for seed in seeds:
            result = run_units(seed, folder)
            assert result.ok, result.report()
            stats.update(result.stats)
    return stats


def test_each_line_is_in_the_table_once_or_recorded_as_bad() -> None:
    stats = _passes((0, 2))
    assert stats["lines"] > 1000 and stats["units"] > 50 and stats["rebuilds"]


@pytest.mark.heavy
def test_many_seeds_come_to_the_right_end() -> None:
    stats = _passes(range(4, 60))
    for kind in ("kill", "fuse", "stop", "away", "lose"):
        assert stats[f"fault_{kind}"] > 20, stats
    assert stats["zombies"] > 20 and stats["bad"] > 20 and stats["thrown"]


@pytest.mark.heavy
def test_bytes_that_nobody_has_do_not_wait_for_a_shorter_copy() -> None:
    _passes((40014,))


def test_processes_of_a_lost_ledger_do_not_begin_anew_beside_its_table() -> None:
    _passes((3,))


@pytest.mark.heavy
def test_state_stays_flat_over_ten_days() -> None:
    with units_simulator() as folder:
        result, sizes = run_days(1, folder, days=10, pace_s=300.0)
    assert result.ok, result.report()
    assert result.stats["units"] > 200 and result.stats["removed"] > 100
    early, late = sizes[2], sizes[9]
    for what in ("File", "Copy", "Span", "Unit", "Client", "Answer", "stages"):
        assert late[what] <= 1.5 * early[what] + 4, (what, sizes)


ALONE = """
from tests.sim.units import run_units, units_simulator
with units_simulator() as folder:
    print(run_units(8, folder).digest)
"""


@pytest.mark.heavy
def test_a_seed_replays_bit_equal() -> None:
    """Also in a process with other hashes of texts."""
    with units_simulator() as folder:
        digest = run_units(8, folder).digest
        assert run_units(8, folder).digest == digest
    other = subprocess.run(
        [sys.executable, "-c", ALONE],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    assert other.stdout.strip() == digest


def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "judge", lambda self: self.world.wrong("this is wrong"))
    with units_simulator() as folder:
        result = run_units(2, folder)
    assert not result.ok
    assert "this is wrong" in result.report() and "make sim WHAT=units SEED=2" in result.report()
