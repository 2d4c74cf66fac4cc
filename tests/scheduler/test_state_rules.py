"""What a container may do at the scheduler's door: with its topology's nodes, and what it needs."""

from __future__ import annotations

import pytest

from heronpy.scheduler.state_rules import ContainerRules, Use
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
        assert RULES.refusal(Use.READ, path("wc")) == RULES.refusal(Use.WRITE, path("wc")) == ""
    assert RULES.refusal(Use.EPHEMERAL, paths.tmaster("wc")) == ""
    assert RULES.refusal(Use.COUNT, paths.epoch("wc", "tmaster")) == ""


@pytest.mark.parametrize("use", [Use.WRITE, Use.EPHEMERAL, Use.COUNT, Use.LOCK])
def test_nobody_touches_what_is_the_schedulers(use: Use) -> None:
    for path in OF_SCHEDULER:
        assert path("wc") in RULES.refusal(use, path("wc"))
    assert RULES.refusal(use, paths.epoch("wc", "container-1"))


@pytest.mark.parametrize("use", list(Use))
def test_other_topologies_do_not_exist(use: Use) -> None:
    for path in (*OF_MASTER, *OF_SCHEDULER):
        for name in ("wc2", "other", "w"):
            assert "topology 'wc' may not" in RULES.refusal(use, path(name))
    for path in ("", "topologies", "topologies/wc/more", "epochs", "epochs/wc", "locks/wc", "single"):
        assert RULES.refusal(use, path)
