"""Runs of many seeds for tests: all come to the right end, or one finds a bug that was planted in the product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.sim.batches import batch_simulator, run_batch
from tests.sim.flow import run_flow
from tests.sim.placing import run_placement
from tests.sim.run import Result, run_seed, simulator
from tests.sim.units import run_units, units_simulator
from tests.sim.units_after import run_two
from tests.sim.units_ledgers import run_homes, run_sealed, run_sites

Run = Callable[..., Result]
Patch = Callable[[pytest.MonkeyPatch], None]
#: The worlds by the names that `make sim` takes.
WORLDS: dict[str, Run] = {
    "batch": run_batch, "cluster": run_seed, "flow": run_flow, "placement": run_placement, "units": run_units
}  # fmt: skip
#: Runs of pipelines of work units that share something with others.
BESIDE: tuple[Run, ...] = (run_two, run_sites, run_homes, run_sealed)


def machine_of(run: Run) -> AbstractContextManager[Path]:
    """What stands in for the real machine in runs of this world."""
    if run is run_placement:
        return nullcontext(Path())
    if run is run_batch:
        return batch_simulator()
    return simulator() if run in (run_seed, run_flow) else units_simulator()


def passes(run: Run, seeds: Iterable[int], **options: Any) -> Counter[str]:
    """Fail with the report of a run that is not right; what all of them have seen."""
    stats: Counter[str] = Counter()
    with machine_of(run) as folder:
        for seed in seeds:
            result = run(seed, folder, **options)
            assert result.ok, result.report()
            stats.update(result.stats)
    return stats


def found_by(run: Run, seeds: Iterable[int], **options: Any) -> int | None:
    """The first seed that finds something wrong."""
    with machine_of(run) as folder:
        return next((seed for seed in seeds if not run(seed, folder, **options).ok), None)


def each(planted: Iterable[tuple[Any, ...]], heavy_but: Iterable[Patch] | None = None) -> list[Any]:
    """The parameters of a test of planted bugs, by the bugs' names; all are heavy but those of the set, if there is one."""
    quick = None if heavy_but is None else set(heavy_but)
    return [
        pytest.param(*case, id=case[0].__name__, marks=() if quick is None or case[0] in quick else pytest.mark.heavy)
        for case in planted
    ]
