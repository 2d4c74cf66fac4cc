"""Repacking: running tasks stay where they are as far as the algorithm's promise allows."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.common.errors import ConfigError, TopologyError
from heronpy.common.setting_types import PackingSettings
from heronpy.packing import ALGORITHMS, pack, repack, resize
from heronpy.packing.balanced import choose_extras
from heronpy.plan import packing_plan
from heronpy.plan.component_config import set_key
from heronpy.proto import components_of, plan_pb2, topology_pb2
from tests.packing.quality import quality_of
from tests.plan.builders import chain

RAM_LIMIT = "topology__container__max__ram__hint"
FIXED = ["round_robin", "balanced"]
names = [f"c{i}" for i in range(6)]
parallelisms = st.dictionaries(st.sampled_from(names), st.integers(1, 10), min_size=1)


def conf(algorithm: str) -> PackingSettings:
    return PackingSettings(algorithm=algorithm, container_padding_percent=0.0, moves_percent=100.0)


def total(par: dict[str, int]) -> int:
    return sum(par.values())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=80, deadline=None)
@given(first=parallelisms, steps=st.lists(parallelisms, min_size=1, max_size=4), data=st.data())
def test_a_life_of_updates(algorithm: str, first: dict[str, int], steps: list[dict[str, int]], data: Any) -> None:
    limit = {RAM_LIMIT: "20GB"} if algorithm in ALGORITHMS and algorithm not in FIXED else {}
    containers = data.draw(st.integers(1, total(first)))
    plan = pack(chain(first, topology__stmgrs=containers, **limit), conf(algorithm))
    ever = {task.task_id: task.component for task in packing_plan.tasks(plan)}
    for par in steps:
        topology = chain(par, topology__stmgrs=1, **limit)
        old = plan
        plan = repack(old, topology, conf(algorithm))
        assert not packing_plan.problems(plan, topology)
        diff = packing_plan.diff(old, plan)
        for task in diff.added:
            assert task.task_id not in ever  # never reused, even if the plan forgot it
            assert task.task_id >= packing_plan.next_task_id(old)
            ever[task.task_id] = task.component
        before, after = _counts(old), _counts(plan)
        for name in {*before, *after}:
            gone = sum(task.component == name for task in diff.removed)
            come = sum(task.component == name for task in diff.added)
            assert (gone, come) == (
                max(0, before[name] - after[name]),
                max(0, after[name] - before[name]),
            )
        for name, tasks in packing_plan.tasks_by_component(plan).items():
            placed = packing_plan.tasks_by_id(plan)
            assert len({placed[task].component_index for task in tasks}) == par[name]
        assert all(container.instances for container in plan.containers)
        assert plan.next_task_id >= packing_plan.next_task_id(old)
        if algorithm == "balanced":
            quality = quality_of(plan)
            assert quality.count_spread <= 1
            assert quality.type_spread <= 1
            assert len(plan.containers) == min(len(old.containers), total(par))
        elif total(par) >= len(old.containers):
            assert not diff.moved  # nobody asked for other containers
        assert repack(plan, topology, conf(algorithm)) is plan


def _counts(plan: Any) -> Counter[str]:
    return Counter(task.component for task in packing_plan.tasks(plan))


@pytest.mark.parametrize("algorithm", FIXED)
@settings(max_examples=80, deadline=None)
@given(par=parallelisms, data=st.data())
def test_changing_the_number_of_containers(algorithm: str, par: dict[str, int], data: Any) -> None:
    topology = chain(par)
    before = data.draw(st.integers(1, total(par)))
    after = data.draw(st.integers(1, total(par)))
    old = pack(topology, conf(algorithm), before)
    new = repack(old, topology, conf(algorithm), after)
    assert not packing_plan.problems(new, topology)
    quality = quality_of(new)
    assert quality.containers == after
    assert quality.count_spread <= 1
    moved = packing_plan.diff(old, new).moved
    # At least the tasks of closed containers move; no more than all tasks do.
    assert len(moved) <= total(par)
    if algorithm == "balanced":
        assert quality.type_spread <= 1
    else:
        assert len(moved) <= _level_bound(old, after)
    if before == after:
        assert new is old


def _level_bound(old: Any, after: int) -> int:
    """Moves that suffice to level the counts: of closed containers all, of others the excess."""
    sizes = sorted((len(container.instances) for container in old.containers), reverse=True)
    kept, closed = sizes[:after], sizes[after:]
    floor = sum(sizes) // after
    return sum(closed) + sum(max(0, size - floor) for size in kept)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.data(),
)
def test_balanced_moves_as_few_as_any_plan(kinds: int, containers: int, data: Any) -> None:
    """Against all even plans, from any placement."""
    start = [[data.draw(st.integers(0, 3), label="n") for _ in range(containers)] for _ in range(kinds)]
    wanted = [data.draw(st.integers(1, 5), label="want") for _ in range(kinds)]
    if sum(wanted) < containers:
        return
    old = plan_pb2.PackingPlan(id="t", version=1)
    ids = itertools.count(1)
    used = itertools.count()
    for c in range(containers):
        container = old.containers.add(id=c + 1)
        for k in range(kinds):
            for _ in range(start[k][c]):
                container.instances.add(component=f"c{k}", task_id=next(ids), component_index=next(used))
    topology = chain({f"c{k}": wanted[k] for k in range(kinds)})
    new = repack(old, topology, conf("balanced"), containers)
    quality = quality_of(new)
    assert quality.count_spread <= 1
    assert quality.type_spread <= 1
    assert len(packing_plan.diff(old, new).moved) == _fewest_moves(start, wanted)


def _fewest_moves(start: list[list[int]], wanted: list[int]) -> int:
    count = len(start[0])
    options = []
    for k, want in enumerate(wanted):
        base, rest = divmod(want, count)
        found = []
        for chosen in itertools.combinations(range(count), rest):
            target = [base + (c in chosen) for c in range(count)]
            # A task moves into each place that is missing, unless a new task can take it.
            missing = sum(max(0, t - n) for t, n in zip(target, start[k], strict=True))
            found.append((target, max(0, missing - max(0, want - sum(start[k])))))
        options.append(found)
    best = None
    for combination in itertools.product(*options):
        sums = [sum(target[c] for target, _ in combination) for c in range(count)]
        if max(sums) - min(sums) <= 1:
            moves = sum(cost for _, cost in combination)
            best = moves if best is None else min(best, moves)
    assert best is not None
    return best


def test_growing_adds_to_the_emptiest_container() -> None:
    old = pack(chain({"a": 3, "b": 2}), conf("round_robin"), 3)
    new = repack(old, chain({"a": 3, "b": 6}), conf("round_robin"))
    diff = packing_plan.diff(old, new)
    assert diff.added_ids == [6, 7, 8, 9]
    assert not diff.moved
    assert quality_of(new).count_spread == 0


def test_shrinking_takes_the_highest_index_of_the_fullest_container() -> None:
    plan = plan_pb2.PackingPlan(id="t", version=4, next_task_id=20)
    for number, indexes in ((1, [4]), (2, [0, 3, 1]), (3, [2, 5])):
        container = plan.containers.add(id=number)
        for index in indexes:
            container.instances.add(component="a", task_id=10 + index, component_index=index)
    new = repack(plan, chain({"a": 5}), conf("round_robin"))
    assert packing_plan.diff(plan, new).removed_ids == [13]
    newer = repack(new, chain({"a": 4}), conf("round_robin"))
    assert packing_plan.diff(new, newer).removed_ids == [15]
    again = repack(newer, chain({"a": 6}), conf("round_robin"))
    added = packing_plan.diff(newer, again).added
    assert [(task.task_id, task.component_index) for task in added] == [(20, 3), (21, 5)]
    assert again.version == 7


@pytest.mark.parametrize("algorithm", ["resource_compliant_round_robin", "first_fit_decreasing"])
@settings(max_examples=60, deadline=None)
@given(first=parallelisms, second=parallelisms, ram=st.integers(1, 6), later=st.integers(1, 6))
def test_limits_hold_after_repacking(
    algorithm: str, first: dict[str, int], second: dict[str, int], ram: int, later: int
) -> None:
    old = pack(chain(first, **{RAM_LIMIT: f"{ram}GB"}), conf(algorithm))
    topology = chain(second, **{RAM_LIMIT: f"{later}GB"})
    new = repack(old, topology, conf(algorithm))
    assert not packing_plan.problems(new, topology)
    assert all(len(container.instances) <= later for container in new.containers)
    if later >= ram:
        moved = {task.task_id for task in packing_plan.diff(old, new).moved}
        closed = {
            item.task_id
            for container in old.containers
            if len(old.containers) > total(second)
            for item in container.instances
        }
        assert moved <= closed


def test_too_many_containers_are_refused() -> None:
    for algorithm in FIXED:
        old = pack(chain({"a": 3}), conf(algorithm))
        with pytest.raises(TopologyError, match="requests 4 containers but has only 3"):
            repack(old, chain({"a": 3}), conf(algorithm), 4)
    old = pack(chain({"a": 3}), conf("first_fit_decreasing"))
    with pytest.raises(ConfigError, match="omit the number"):
        repack(old, chain({"a": 3}), conf("first_fit_decreasing"), 2)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(1, 20), st.data())
def test_extras_are_even(containers: int, kinds: int, data: Any) -> None:
    wanted = [data.draw(st.integers(0, containers - 1)) for _ in range(kinds)]
    some = st.sets(st.integers(0, containers - 1))
    free = [data.draw(some) for _ in range(kinds)]
    chosen = choose_extras(containers, wanted, free, upstream=[[] for _ in wanted], weights=[0.0] * kinds)
    assert [len(found) for found in chosen] == wanted
    sums = [sum(c in found for found in chosen) for c in range(containers)]
    assert max(sums) - min(sums) <= 1


def test_balance_over_many_containers_is_quick() -> None:
    par = {f"c{i}": 37 * (i + 1) for i in range(20)}
    old = pack(chain(par), conf("balanced"), 600)
    started = time.process_time()
    new = repack(old, chain({name: p + 17 for name, p in par.items()}), conf("balanced"), 700)
    assert time.process_time() - started < 20  # measured 1 s
    quality = quality_of(new)
    assert (quality.count_spread, quality.type_spread) <= (1, 1)


def test_two_hundred_chains_of_updates_stay_even_and_seldom_move_a_task() -> None:
    moved_at_all = steps = 0
    for seed in range(200):
        dice = random.Random(seed)
        par = {f"c{i}": dice.randint(1, 12) for i in range(dice.randint(2, 6))}
        containers = dice.randint(2, min(10, total(par)))
        plan = pack(chain(par, topology__stmgrs=containers), PackingSettings())
        for _ in range(4):
            par = {**par, dice.choice([*par]): dice.randint(1, 12)}
            old, plan = plan, repack(plan, chain(par, topology__stmgrs=containers), PackingSettings())
            quality = quality_of(plan)
            assert (quality.count_spread <= 1, quality.type_spread <= 1) == (True, True), (seed, par)
            moved_at_all += bool(packing_plan.diff(old, plan).moved)
            steps += 1
    assert moved_at_all < 0.1 * steps


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(parallelisms, min_size=2, max_size=5), percent=st.sampled_from([0.0, 10.0, 25.0]), data=st.data())
def test_an_update_moves_no_more_than_its_budget(steps: list[dict[str, int]], percent: float, data: Any) -> None:
    own = PackingSettings(container_padding_percent=0.0, moves_percent=percent)
    containers = data.draw(st.integers(1, min(map(total, steps))))
    plan = pack(chain(steps[0], topology__stmgrs=containers), own)
    for par in steps[1:]:
        topology = chain(par, topology__stmgrs=1)
        even = repack(plan, topology, conf("balanced"))
        old, plan = plan, repack(plan, topology, own)
        assert not packing_plan.problems(plan, topology)
        budget = math.ceil(len(list(packing_plan.tasks(old))) * percent / 100)
        moved = len(packing_plan.diff(old, plan).moved)
        assert moved <= budget
        # A container whose tasks have all gone stays only if another task may move there.
        assert len(plan.containers) == containers or moved == budget
        containers = len(plan.containers)
        if len(packing_plan.diff(old, even).moved) <= budget:
            assert max(quality_of(plan).count_spread, quality_of(plan).type_spread) <= 1


def test_containers_whose_tasks_have_all_gone_get_others_up_to_the_budget() -> None:
    own = PackingSettings(container_padding_percent=0.0, moves_percent=10.0)
    old = pack(chain({"a": 6, "b": 3, "c": 3}, topology__stmgrs=9), own)
    new = repack(old, chain({"b": 3, "c": 6}), own)
    assert (len(new.containers), len(packing_plan.diff(old, new).moved)) == (8, 2)


def test_limits_come_before_evenness_after_an_update() -> None:
    config = {"topology__component__rammap": "a:4GB,b:1GB", RAM_LIMIT: "4GB"}
    old = pack(chain({"a": 1, "b": 2}, topology__stmgrs=2, **config), conf("balanced"))
    new = repack(old, chain({"a": 1, "b": 4}, topology__stmgrs=2, **config), conf("balanced"))
    assert sorted(len(container.instances) for container in new.containers) == [1, 4]


# ---- other sizes ----------------------------------------------------------------------------


def sized(topology: topology_pb2.Topology, component: str, **sizes: str) -> topology_pb2.Topology:
    for kind, size in sizes.items():
        set_key(components_of(topology)[component].comp.config, f"topology.component.{kind}", size)
    return topology


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_other_sizes_move_nothing_and_are_what_the_component_says(algorithm: str) -> None:
    par = {"c0": 2, "c1": 5}
    limits: dict[str, Any] = {RAM_LIMIT: "8GB", "topology__component__rammap": "c1:1GB"}
    old = pack(chain(par, topology__stmgrs=3, **limits), conf(algorithm))
    new = resize(old, sized(chain(par, topology__stmgrs=3, **limits), "c1", ram="256MB", cpu="0.5"), conf(algorithm))
    diff = packing_plan.diff(old, new)
    assert not (diff.added or diff.removed or diff.moved) and new.version == old.version + 1
    for task in (task for container in new.containers for task in container.instances):
        mine = task.component == "c1"
        assert task.memory_limit_bytes == (256 << 20 if mine else 0)
        assert (task.resource.ram_bytes, task.resource.cpu) == (256 << 20, 0.5) if mine else task.resource.cpu == 0.0
    for container in new.containers:
        assert container.required.ram_bytes == sum(task.resource.ram_bytes for task in container.instances)
    back = sized(chain(par, topology__stmgrs=3, **limits), "c1", ram="0", cpu="0")
    assert sum(one.required.ram_bytes for one in resize(new, back, conf(algorithm)).containers) == sum(
        one.required.ram_bytes for one in old.containers
    ), "0 is what the maps say"
    assert resize(old, back, conf(algorithm)) is old
    grown = repack(new, sized(chain({"c0": 2, "c1": 7}, **limits), "c1", ram="256MB"), conf(algorithm))
    assert {
        task.memory_limit_bytes for one in grown.containers for task in one.instances if task.component == "c1"
    } == {256 << 20}, "tasks that are added later have it, too"


def test_sizes_beyond_the_limits_of_a_container_are_refused() -> None:
    par, limits = {"c0": 1, "c1": 3}, {RAM_LIMIT: "4GB", "topology__component__rammap": "c0:1GB,c1:1GB"}
    old = pack(chain(par, **limits), conf("round_robin"))
    with pytest.raises(TopologyError, match=r"the tasks of container 1 would exceed .* raise .*ram.hint"):
        resize(old, sized(chain(par, **limits), "c1", ram="2GB"), conf("round_robin"))
