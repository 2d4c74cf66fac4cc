"""What a container may do at the scheduler's control endpoint: with its topology's nodes, and what it needs."""

from __future__ import annotations

import pytest

from heronpy.scheduler.containers import with_standby
from heronpy.scheduler.state_rules import ContainerRules, PoolRules, Use
from heronpy.statemgr import paths

RULES = ContainerRules("wc")
OF_MASTER = (
    paths.physical_plan,
    paths.packing_plan,
    paths.topology,
    paths.update_intent,
    paths.totals,
    paths.events,
    paths.minutes,
    paths.counts,
    paths.checkpoints,
    paths.tmaster,
)
OF_SCHEDULER = (
    paths.scheduler,
    paths.placement,
    paths.ephemerals,
    paths.execution_state,
    paths.launch,
    paths.submission,
    paths.operation,
)


def test_a_topology_master_may_write_what_it_keeps() -> None:
    for path in OF_MASTER:
        assert RULES.refusal(Use.READ, path("wc"), 0) == RULES.refusal(Use.WRITE, path("wc"), 0) == ""
    assert RULES.refusal(Use.EPHEMERAL, paths.tmaster("wc"), 0) == ""
    assert RULES.refusal(Use.COUNT, paths.epoch("wc", "tmaster"), 0) == ""


@pytest.mark.parametrize("use", [Use.WRITE, Use.EPHEMERAL, Use.COUNT, Use.LOCK])
def test_nobody_touches_what_is_the_schedulers(use: Use) -> None:
    for path in OF_SCHEDULER:
        assert path("wc") in RULES.refusal(use, path("wc"), 0)
    assert RULES.refusal(use, paths.epoch("wc", "container-1"), 0)


@pytest.mark.parametrize("use", list(Use))
def test_other_topologies_do_not_exist(use: Use) -> None:
    for path in (*OF_MASTER, *OF_SCHEDULER):
        for name in ("wc2", "other", "w"):
            assert "topology 'wc' may not" in RULES.refusal(use, path(name), 0)
    for path in ("", "topologies", "topologies/wc/more", "epochs", "epochs/wc", "locks/wc", "single"):
        assert RULES.refusal(use, path, 0)


@pytest.mark.parametrize("use", [Use.WRITE, Use.EPHEMERAL, Use.COUNT])
def test_only_containers_with_a_topology_master_write(use: Use) -> None:
    rules = ContainerRules("wc")
    path = paths.epoch("wc", "tmaster") if use is Use.COUNT else paths.tmaster("wc")
    assert rules.refusal(Use.READ, paths.tmaster("wc"), 2) == ""
    assert rules.refusal(use, path, 2).startswith("container 2 has no topology master, so it may not ")
    rules.masters = frozenset((0, *with_standby([3, 0, 2, 5], 2)))
    assert [rules.refusal(use, path, container) == "" for container in (0, 2, 3, 5)] == [True, True, True, False]


def test_a_slot_of_a_pool_may_do_what_containers_of_its_topologies_may_and_answers_for_itself() -> None:
    rules = PoolRules("small")
    rules.members = {"T": ContainerRules("T")}
    allowed = [
        (Use.READ, paths.pool_map("small")),
        (Use.READ, paths.pool_specs("small", 3)),
        (Use.WRITE, paths.pool_slot("small", 2)),
        (Use.WRITE, paths.physical_plan("T")),
        (Use.EPHEMERAL, paths.tmaster("T")),
    ]
    assert [rules.refusal(use, path, 2) for use, path in allowed] == [""] * len(allowed)
    refused = [
        (Use.WRITE, paths.pool_map("small")),
        (Use.WRITE, paths.pool_slot("small", 1)),
        (Use.READ, paths.pool_map("other")),
        (Use.READ, paths.physical_plan("U")),
        (Use.WRITE, paths.execution_state("T")),
        (Use.READ, "nothing"),
    ]
    assert all("may not" in rules.refusal(use, path, 2) for use, path in refused)
