"""Seeds of the simulation of placement over an engine (F39); `make sim WHAT=placement N=10000` runs more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from heronpy.engines.lease import Fencing
from tests.sim.placing import run_placement

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("fencing", list(Fencing), ids=lambda fencing: fencing.value)
def test_never_two_may_act_and_in_the_end_all_run(fencing: Fencing) -> None:
    stats: Counter[str] = Counter()
    for seed in range(50 if fencing is Fencing.LEASE else 25):
        result = run_placement(seed, fencing)
        assert result.ok, result.report()
        stats.update(result.stats)
    # They have seen what they are for.
    assert stats["activated"] > 100
    assert (stats["no_scheduler"] > 10) == (fencing is Fencing.LEASE)
    assert min(stats[f"fault_{kind}"] for kind in ("door", "swap", "cut", "hide", "preempt", "restart")) > 5
    assert bool(stats["fenced_by_epoch"]) == (fencing is Fencing.EPOCH)


def test_a_seed_replays_bit_equal() -> None:
    """Also in a process with other hashes of texts."""
    digest = run_placement(8).digest
    assert run_placement(8).digest == digest
    other = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--what", "placement", "--seed", "8"],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    assert f"trace {digest}" in other.stdout


def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.sim.placing.Cluster.is_well", lambda self: False)
    result = run_placement(3)
    assert not result.ok
    assert "not well" in result.report() and "make sim WHAT=placement SEED=3" in result.report()
