"""What a topology that drops tuples keeps for a full task, and where the key is refused."""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.topology_keys import TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE as KEY
from heronpy.plan.component_config import config_of, drop_policy, runtime_key_problem, unsupported_problems
from heronpy.plan.dropping import DropPolicy
from heronpy.plan.logical import LogicalPlan
from heronpy.plan.validation import problems
from tests.plan.builders import TopologyMessage


@given(st.floats(0, 3), st.integers(1, 300))
def test_a_sample_is_spread_evenly_over_what_comes(fill: float, count: int) -> None:
    policy, newest = DropPolicy("sample"), DropPolicy("drop_newest")
    kept = [number for number in range(count) if policy.keeps(1, fill)]
    share = min(1.0, max(0.0, 2.0 - fill))
    assert len(kept) == pytest.approx(count * share, abs=1.01)
    if len(kept) > 1:
        gaps = [after - before for before, after in pairwise(kept)]
        assert max(gaps) <= ceil(1 / share + 1e-6) and min(gaps) >= int(1 / share - 1e-6)
    assert newest.keeps(1, fill) == (fill <= 1.0)


def test_each_task_has_its_own_sample() -> None:
    policy = DropPolicy("sample")
    assert [policy.keeps(task, 1.5) for task in (1, 2, 1, 2)] == [False, False, True, True]


def found(value: Any, mode: str = "ATMOST_ONCE", **more: Any) -> list[str]:
    config = {"topology__reliability__mode": mode, KEY.replace(".", "__"): value}
    made = TopologyMessage("wc", **config).spout("s", outputs={"default": ["w"]}).bolt("b", ["s"], **more)
    return problems(LogicalPlan.from_topology(made.message))


@pytest.mark.parametrize(
    ("value", "policy"),
    [(False, ""), ("", ""), (True, "drop_newest"), ("True", "drop_newest"), ("drop_newest", "drop_newest"),
     ("sample", "sample")],
)  # fmt: skip
def test_the_values_of_the_key(value: object, policy: str) -> None:
    config = config_of(TopologyMessage(**{KEY.replace(".", "__"): value}).message)
    assert drop_policy(config) == policy and not unsupported_problems(config, "")
    assert value == "" or not found(value)
    assert found(False, "ATLEAST_ONCE") == found(False, "EFFECTIVELY_ONCE") == []


@pytest.mark.parametrize("value", ["newest", 1, 0, 2.5, b"\x80"])
def test_another_value_is_refused(value: object) -> None:
    [problem] = found(value)
    assert [problem] == found(value, "ATLEAST_ONCE")
    assert problem.startswith(f"topology 'wc' sets '{KEY}' to ")
    assert problem.endswith("; it must be false, true, drop_newest or sample")


@pytest.mark.parametrize("mode", ["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
@pytest.mark.parametrize("value", [True, "sample"])
def test_where_no_tuple_may_be_lost_it_is_refused_with_the_fix(mode: str, value: object) -> None:
    assert found(value, mode) == [
        f"topology 'wc' sets '{KEY}', but under {mode} no tuple may be dropped; remove that key, or set"
        " topology.reliability.mode to ATMOST_ONCE"
    ]


def test_it_is_for_a_whole_topology_and_does_not_change_while_that_runs() -> None:
    [problem] = found(False, **{KEY: True})
    assert problem == f"bolt 'b' sets '{KEY}', which is for the whole topology; set it in the topology's config"
    assert runtime_key_problem(KEY, "sample") == (
        f"'{KEY}' cannot be changed in a running topology; kill the topology and submit it again"
    )
