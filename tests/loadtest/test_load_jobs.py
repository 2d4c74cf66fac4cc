"""`heron load-test jobs`: its parts measure what they say, and a missed goal fails it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.common.errors import ConfigError
from heronpy.loadtest import page
from heronpy.loadtest.cluster import cluster
from heronpy.loadtest.jobs import run
from heronpy.loadtest.jobs.live import Changes, Pooled, Side, changes_cost, pooled_cost
from heronpy.loadtest.jobs.run import ManagersCost, Sizes, managers_cost, pool_cost, rounds_cost, run_jobs
from heronpy.pools.keeping import Keeper

SMALL = Sizes(changed=5, jobs=20, idle=3, slots=40, scenarios=3, days=1)


def test_changed_jobs_are_updated_and_jobs_at_rest_are_hardly_read(tmp_path: Path) -> None:
    changed_s, idle_s, updates = rounds_cost(tmp_path, 5, 20)
    assert updates == 5 and 0 < idle_s / 20 < changed_s / 5


def test_shards_of_lost_slots_go_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pool_cost(40, 400, 2)
    assert found.moved == 128 and found.left == 0 and found.map_s > 0

    monkeypatch.setattr(Keeper, "_settle", lambda *_: None)
    assert pool_cost(40, 400, 2).left == 40 * 64


def test_a_missed_goal_fails_the_load_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "managers_cost", lambda *_: ManagersCost(0.5, 60 << 20, 3))
    monkeypatch.setattr(run, "changes_cost", lambda *_: Changes(0.5, 1.0, 2.0))
    monkeypatch.setattr(run, "pooled_cost", lambda *_: Pooled(Side(5.0, 5 << 20), Side(10.0, 10 << 20), 3.0))
    where: Any = SimpleNamespace(scratch=tmp_path, temporary=True)
    told = list[str]()
    result = run_jobs(where, SMALL, 1, told.append)
    assert result["ok"] and len(told) == 7 and "jobs" in page.render(result)
    assert {"changed_round_s", "loss_s", "wrong_causes", "changes_a_day", "managers_bytes"} <= result["summary"].keys()

    monkeypatch.setattr(run, "MAP_MAX_S", 0.0)
    assert not run_jobs(where, SMALL, 1, told.append)["ok"]


def test_it_makes_its_jobs_in_no_cluster_of_others() -> None:
    with pytest.raises(ConfigError, match="leave out --cluster"):
        run_jobs(SimpleNamespace(temporary=False), SMALL, 1, lambda text: None)  # type: ignore[arg-type]


@pytest.mark.heavy
def test_a_real_manager_looks_at_jobs_that_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MEASURED_S", 10.0)
    with cluster() as where:
        found = managers_cost(where, 3)
    # A manager looks every 30 s, so the kernel may have counted no tick of its CPU.
    assert found.in_sync == 3 and 0 <= found.percent < 50 and found.uss_bytes > 10 << 20


@pytest.mark.heavy
def test_changes_of_a_real_job_and_a_real_pool_are_measured() -> None:
    with cluster() as where:
        changes = changes_cost(where, 2)
        pooled = pooled_cost(where, 3)
    assert min(changes.simple_s, changes.rescale_s, changes.deploy_s, pooled.lost_s) > 0
    assert min(pooled.pool.cpu_s, pooled.alone.cpu_s) > 0 and pooled.pool.pss_bytes > 10 << 20 < pooled.alone.pss_bytes
