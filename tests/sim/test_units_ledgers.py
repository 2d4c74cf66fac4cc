"""Seeds of several ledgers on one table, and of sealed runs, and bugs that they must find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from heronpy.ingest.ledger import tracking
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.reaching import Reached
from heronpy.ingest.outputs.stages import Stages
from tests.sim.run import Result
from tests.sim.units import units_simulator
from tests.sim.units_ledgers import run_homes, run_sealed, run_sites

SEEDS = 60
Play = Callable[..., Result]


def _passes(run: Play, seeds: Iterable[int]) -> Counter[str]:
    stats: Counter[str] = Counter()
    with units_simulator() as folder:
        for seed in seeds:
            result = run(seed, folder)
            assert result.ok, result.report()
            stats.update(result.stats)
    return stats


def test_sites_follow_a_partition_map_that_changes() -> None:
    stats = _passes(run_sites, range(2))
    assert stats["changes"] and stats["several"], stats


def test_the_same_program_from_another_home_is_refused() -> None:
    assert _passes(run_homes, range(2))["refused"]


def test_sealed_runs_end_beside_logs_that_grow() -> None:
    assert _passes(run_sealed, range(2))["runs"] > 2


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("run", "often"),
    [
        (run_sites, {"changes": 20, "changes_refused": 5, "several": 15, "bad": 5}),
        (run_homes, {"refused": 100, "rebuilds": 10, "zombies": 5}),
        (run_sealed, {"runs": 100, "zombies": 5, "bad": 5}),
    ],
)
def test_many_seeds_come_to_the_right_end(run: Play, often: dict[str, int]) -> None:
    stats = _passes(run, range(2, 40))
    assert all(stats[what] > count for what, count in often.items()), stats


# ---- planted bugs ---------------------------------------------------------------------------
def _work_by_any_map(patch: pytest.MonkeyPatch) -> None:
    """Nobody is refused who works by an older map."""
    patch.setattr(Ledger, "follow", lambda self, version: None)


def _take_what_others_refuse(patch: pytest.MonkeyPatch) -> None:
    """A map is changed although a ledger of it is somebody else's."""
    patch.setattr(Reached, "_refuse_change", lambda self, changed: None)


def _share_the_table(patch: pytest.MonkeyPatch) -> None:
    """Any ledger may write it."""
    patch.setattr(Stages, "refuse", lambda self, pipeline, ledger="": None)
    patch.setattr(Stages, "refuse_other_ledger", lambda self, ledger: None)


def _grow_what_is_sealed(patch: pytest.MonkeyPatch) -> None:
    """Looks after the first one add and grow files."""
    for name in ("_file_of", "_grow"):
        real = getattr(tracking, name)
        patch.setattr(tracking, name, lambda *about, real=real: real(*about[:-1], False))


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("plant", "run"),
    [
        (_work_by_any_map, run_sites),
        (_take_what_others_refuse, run_sites),
        (_share_the_table, run_homes),
        (_grow_what_is_sealed, run_sealed),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], run: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with units_simulator() as folder:
        found = any(not run(seed, folder).ok for seed in range(SEEDS))
    assert found, f"{plant.__name__} was found by none of {SEEDS} seeds"
