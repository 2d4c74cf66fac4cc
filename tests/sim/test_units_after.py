"""Seeds of two pipelines of which one waits for the other, and bugs that they must find."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pytest

from heronpy.ingest.ledger.store import SiteLook
from heronpy.ingest.ledger.types import Look
from tests.sim.units import units_simulator
from tests.sim.units_after import run_two
from tests.support.memory_ledger import Tables

SEEDS = 60


def _passes(seeds: range) -> Counter[str]:
    stats: Counter[str] = Counter()
    with units_simulator() as folder:
        for seed in seeds:
            result = run_two(seed, folder)
            assert result.ok, result.report()
            stats.update(result.stats)
    return stats


def test_nothing_is_processed_before_the_pipeline_that_goes_ahead() -> None:
    assert _passes(range(1))["second_units"] > 5


@pytest.mark.heavy
def test_many_seeds_of_two_pipelines() -> None:
    stats = _passes(range(1, 40))
    assert stats["after"] > 8 and stats["after_all"] > 8 and stats["zombies"] > 5, stats


def _forget_open_bytes(patch: pytest.MonkeyPatch) -> None:
    """What the other has seen and not published is not waited for."""
    patch.setattr(Tables, "oldest_open", lambda self, pipeline: None)


def _forget_looks(patch: pytest.MonkeyPatch) -> None:
    """What the other has not seen yet is not waited for."""
    always = SiteLook(Look("", 0.0, math.inf, True), True, math.inf)
    patch.setattr(Tables, "looks", lambda self, pipeline: [always])


@pytest.mark.heavy
@pytest.mark.parametrize("plant", [_forget_open_bytes, _forget_looks])
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with units_simulator() as folder:
        found = any(not run_two(seed, folder).ok for seed in range(SEEDS))
    assert found, f"{plant.__name__} was found by none of {SEEDS} seeds"
