"""Seeds of schedulers over an engine and of work units (F39); `make sim WHAT=placement N=10000` and so on run more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heronpy.api import global_metrics
from heronpy.engines.lease import Fencing
from tests.sim.batches import run_batch
from tests.sim.flow import run_flow
from tests.sim.placing import run_placement
from tests.sim.planted import BESIDE, WORLDS, Run, machine_of, passes
from tests.sim.units import Cluster, run_days, run_units
from tests.sim.units_after import run_two
from tests.sim.units_ledgers import run_homes, run_sealed, run_sites

ROOT = Path(__file__).parents[2]


# ---- placement ------------------------------------------------------------------------------
@pytest.mark.parametrize("fencing", list(Fencing), ids=lambda fencing: fencing.value)
def test_never_two_may_act_and_in_the_end_all_run(fencing: Fencing) -> None:
    stats = passes(run_placement, range(50 if fencing is Fencing.LEASE else 25), fencing=fencing)
    # They have seen what they are for.
    assert stats["activated"] > 100
    assert (stats["no_scheduler"] > 10) == (fencing is Fencing.LEASE)
    assert min(stats[f"fault_{kind}"] for kind in ("endpoint", "swap", "cut", "hide", "preempt", "restart")) > 5
    assert bool(stats["fenced_by_epoch"]) == (fencing is Fencing.EPOCH)


# ---- slow tasks -----------------------------------------------------------------------------
def test_queues_stay_bounded_and_who_has_recovered_gets_tuples() -> None:
    assert passes(run_flow, range(2))["judged"]


# ---- work units -----------------------------------------------------------------------------
def test_each_line_is_in_the_table_once_or_recorded_as_bad() -> None:
    stats = passes(run_units, (0, 2))
    assert stats["lines"] > 1000 and stats["units"] > 50 and stats["rebuilds"]


@pytest.mark.parametrize("seed", [3, pytest.param(40014, marks=pytest.mark.heavy)])
def test_seeds_that_found_a_bug_pass(seed: int) -> None:
    """Processes of a lost ledger started again over its table; bytes that no site had waited for a shorter copy."""
    passes(run_units, (seed,))


@pytest.mark.parametrize(("kind", "seed"), [("worker", 10), ("worker", 31), ("keeper", 5)])
def test_who_sleeps_at_a_step_while_the_ledger_is_lost_does_not_count(kind: str, seed: int) -> None:
    """Seeds that find planted bugs, and one that was judged before anybody had looked at the logs after a rebuild."""
    assert passes(run_units, (seed,), among=(f"{kind}_sleeps",))["zombies"]


@pytest.mark.parametrize(
    ("run", "count", "seen"), [(run_two, 1, ("second_units",)), (run_sites, 2, ("changes", "several")),
                               (run_homes, 2, ("refused",)), (run_sealed, 2, ("runs",))]
)  # fmt: skip
def test_pipelines_beside_others_come_to_the_right_end(run: Run, count: int, seen: tuple[str, ...]) -> None:
    """One that waits for another; sites whose map changes; the same program from another home; runs that are sealed."""
    stats = passes(run, range(count))
    assert all(stats[what] for what in seen), stats


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("run", "seeds", "often"),
    [
        (run_units, range(4, 60), {
            **{f"fault_{kind}": 20 for kind in ("kill", "fuse", "stop", "away", "lose")}, "zombies": 20, "bad": 20, "thrown": 0,
        }),
        (run_flow, range(2, 50), {"judged_with_frozen": 5, "stops_seen": 10, "strike_kill": 10, "strike_reset": 10}),
        (run_two, range(1, 40), {"after": 8, "after_all": 8, "zombies": 5}),
        (run_sites, range(2, 40), {"changes": 20, "changes_refused": 5, "several": 15, "bad": 5}),
        (run_homes, range(2, 40), {"refused": 100, "rebuilds": 10, "zombies": 5}),
        (run_sealed, range(2, 40), {"runs": 100, "zombies": 5, "bad": 5}),
    ],
)  # fmt: skip
def test_many_seeds_come_to_the_right_end(run: Run, seeds: range, often: dict[str, int]) -> None:
    stats = passes(run, seeds)
    assert all(stats[what] > count for what, count in often.items()), stats


@pytest.mark.heavy
def test_state_stays_flat_over_ten_days() -> None:
    with machine_of(run_units) as folder:
        result, sizes = run_days(1, folder, days=10, pace_s=300.0)
    assert result.ok, result.report()
    assert result.stats["units"] > 200 and result.stats["removed"] > 100
    early, late = sizes[2], sizes[9]
    for what in ("File", "Copy", "Span", "Unit", "Client", "Answer", "stages"):
        assert late[what] <= 1.5 * early[what] + 4, (what, sizes)


# ---- batch runs -----------------------------------------------------------------------------
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 100), marks=pytest.mark.heavy)])
def test_a_batch_run_gives_what_one_without_faults_gives(seeds: range) -> None:
    stats = passes(run_batch, seeds)
    assert stats["lines"] > 100 and stats["units"] > 10
    if len(seeds) > 1:
        assert all(stats[what] > 20 for what in ("zombies", "same_order", "backups", "in_vain", "preempted")), stats
        assert all(stats[f"fault_{kind}"] > 20 for kind in ("kill", "fuse", "stop", "away", "preempt")), stats


@pytest.mark.parametrize("seed", [1, 14, 36])
def test_keepers_that_end_a_run_at_once_do_not_fail_it(seed: int) -> None:
    """Two hosts write the savepoint; one reads files that the other has removed with the end of the run."""
    passes(run_batch, (seed,))


# ---- all worlds -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=() if what == "placement" else pytest.mark.heavy) for what in WORLDS]
)
def test_a_seed_replays_bit_equal(what: str) -> None:
    """Two runs here, and one in a process with other hashes of texts: no order of a set or dict shows.

    Nor does what this process has done before.
    """
    global_metrics.incr("counted_before")
    runs = [WORLDS[what], *(BESIDE[:2] if what == "units" else ())]
    digests = []
    for _ in range(2):
        with machine_of(runs[0]) as folder:
            results = [run(8, folder) for run in runs]
        digests.append(results[-1].digest)
    assert digests[0] == digests[1] and results[0].events > 1000
    other = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--what", what, "--seed", "8"],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    assert f"trace {digests[0]}" in other.stdout


@pytest.mark.parametrize(("run", "again"), [(run_placement, "placement"), (run_units, "units")])
def test_a_failure_says_how_to_see_it_again(run: Run, again: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.sim.placing.Cluster.is_well", lambda self: False)
    monkeypatch.setattr(Cluster, "judge", lambda self: self.world.wrong("this is not well"))
    with machine_of(run) as folder:
        result = run(3, folder)
    assert not result.ok
    assert "not well" in result.report() and f"make sim WHAT={again} SEED=3" in result.report()
