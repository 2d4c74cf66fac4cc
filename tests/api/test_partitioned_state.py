"""Partitioned state: each partition has one owner, whatever the number of tasks, and errors name what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api.state.keyed_state import KeyedStates, PartitionedState, PartitionOwner, task_of_partition
from heronpy.api.topology_context import TopologyContext
from heronpy.common.errors import TopologyError
from heronpy.proto import topology_pb2

LOGS = st.text(max_size=5) | st.integers() | st.tuples(st.text(max_size=2), st.integers(0, 3))


def state_of(index: int, tasks: int) -> PartitionedState:
    return KeyedStates(partitions=PartitionOwner("source", lambda: (index, tasks))).partitioned("positions")


@given(LOGS, st.integers(0, 200), st.integers(1, 40))
def test_each_partition_has_one_owner_and_the_tasks_are_level(log: Any, count: int, tasks: int) -> None:
    states = [state_of(index, tasks) for index in range(tasks)]
    shares = [state.own(log, count) for state in states]
    assert sorted(number for share in shares for number in share) == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    for index, (state, share) in enumerate(zip(states, shares, strict=True)):
        for number in range(count):
            is_own = task_of_partition(log, number, tasks) == index
            assert (number in share, state.owns((log, number))) == (is_own, is_own)


@given(LOGS, st.integers(1, 100), st.integers(0, 100), st.integers(1, 20))
def test_a_log_that_grows_moves_nothing(log: Any, count: int, more: int, tasks: int) -> None:
    state = state_of(0, tasks)
    assert set(state.own(log, count)) == {number for number in state.own(log, count + more) if number < count}


def test_a_foreign_partition_and_a_key_that_is_none_are_refused() -> None:
    state, other = state_of(0, 2), state_of(1, 2)
    [foreign] = [number for number in range(2) if not state.owns(("log", number))]
    other["log", foreign] = 5
    with pytest.raises(TopologyError, match=r"of source\[0\] got key \('log', \d\), which belongs to source\[1\]"):
        state["log", foreign] = 5
    for key in ("log", ("log",), ("log", "1"), ("log", 1, 2), ("log", True)):
        with pytest.raises(TopologyError, match="a key is a pair \\(log, partition number\\)"):
            state[key] = 5


def test_a_name_is_of_one_kind() -> None:
    states = KeyedStates()
    states("keyed"), states.partitioned("partitioned")
    with pytest.raises(
        TopologyError, match="state 'keyed' is already a keyed state; give the partitioned state another name"
    ):
        states.partitioned("keyed")
    with pytest.raises(
        TopologyError, match="state 'partitioned' is already a partitioned state; give the keyed state another"
    ):
        states("partitioned")
    with pytest.raises(TopologyError, match="needs a string as its name, not ''"):
        states.partitioned("")


def test_without_checkpoints_ownership_follows_the_plan_and_values_stay() -> None:
    context = TopologyContext({}, topology_pb2.Topology(), {1: "source", 2: "bolt"}, 1, "source")
    state = context.partitioned_state("positions")
    assert list(state.own("log", 4)) == [0, 1, 2, 3] and context.keyed_states.has_partitions
    for number in range(4):
        state["log", number] = number
    context.update({1: "source", 3: "source", 2: "bolt"})
    assert len(state.own("log", 4)) == 2
    for number in range(4):
        state["log", number] = 10  # the rest of what it had begun
    context.update({3: "source", 2: "bolt"})
    assert not state.own("log", 4), "the plan has this task no more"
    context.update({1: "source"})
    assert len(state.own("log", 4)) == 4 and state["log", 3] == 10
