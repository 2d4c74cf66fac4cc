"""Groupings: which tasks a tuple goes to."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.errors import TopologyError
from heronpy.common.hashing import stable_hash, stable_hash_many
from heronpy.plan.grouping import (
    All,
    Custom,
    Direct,
    Fields,
    Lowest,
    Shuffle,
    field_indices,
    make_chooser,
)
from heronpy.proto import topology_pb2

tasks = st.lists(st.integers(1, 1000), min_size=1, max_size=20, unique=True)


@given(tasks, st.integers(0, 10**6))
def test_shuffle_goes_round_from_its_start(ids: list[int], start: int) -> None:
    chooser = Shuffle(ids, start)
    found = [chooser.targets(())[0] for _ in range(3 * len(ids))]
    assert found[0] == sorted(ids)[start % len(ids)]
    assert Counter(found) == dict.fromkeys(ids, 3)


@given(tasks, st.tuples(st.text(), st.integers(), st.text()))
def test_fields_depend_on_the_grouping_fields_only(ids: list[int], values: tuple[Any, ...]) -> None:
    one = Fields([0], ids)
    assert one.targets(values) == [sorted(ids)[stable_hash(values[0]) % len(ids)]]
    assert one.target(values) == one.target((values[0], None, None))
    two = Fields([2, 0], reversed(ids))
    assert two.target(values) == sorted(ids)[stable_hash_many([values[2], values[0]]) % len(ids)]


def test_equal_keys_meet() -> None:
    chooser = Fields([0], range(1, 50))
    assert chooser.target((1,)) == chooser.target((True,)) == chooser.target((1.0,))


def test_all_and_lowest() -> None:
    assert All([3, 1, 2]).targets(("x",)) == [1, 2, 3]
    assert Lowest([3, 1, 2]).targets(("x",)) == [1]


def test_direct_needs_a_receiver_of_the_consumer() -> None:
    chooser = Direct([3, 4])
    assert chooser.target(4) == 4
    for wrong in (5, True, None):
        with pytest.raises(TopologyError, match="emit to one of 3, 4"):
            chooser.target(wrong)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="direct_task"):
        chooser.targets(("x",))


class Chooses:
    def __init__(self, result: Any) -> None:
        self.result = result

    def choose_tasks(self, values: Any) -> Any:
        return self.result


def test_custom_may_choose_any_of_its_tasks() -> None:
    numpy = pytest.importorskip("numpy")
    assert Custom(Chooses([2, 1]), [1, 2, 3]).targets(()) == [2, 1]
    assert Custom(Chooses(()), [1]).targets(()) == []
    assert Custom(Chooses([numpy.int64(2)]), [2]).targets(()) == [2]


@pytest.mark.parametrize("wrong", [[9], [True], ["1"], [1.0], [None], 1, None, "1"])
def test_custom_choices_are_checked(wrong: Any) -> None:
    with pytest.raises(TopologyError, match=r"the custom grouping Chooses (chose|returned)"):
        Custom(Chooses(wrong), [1, 2]).targets(())


def test_custom_needs_choose_tasks() -> None:
    with pytest.raises(TopologyError, match="no choose_tasks"):
        Custom(object(), [1])


def test_a_grouping_needs_tasks_and_fields() -> None:
    for make in (lambda: Shuffle([]), lambda: All([]), lambda: Fields([], [1])):
        with pytest.raises(ValueError, match="needs at least one"):
            make()


def test_field_indices() -> None:
    assert field_indices(["a", "b", "c"], ["c", "a"]) == [2, 0]
    with pytest.raises(TopologyError, match="no field 'd'"):
        field_indices(["a"], ["d"])


@pytest.mark.parametrize(
    ("kind", "chooser"),
    [
        (topology_pb2.SHUFFLE, Shuffle),
        (topology_pb2.NONE, Shuffle),
        (topology_pb2.ALL, All),
        (topology_pb2.LOWEST, Lowest),
        (topology_pb2.FIELDS, Fields),
        (topology_pb2.DIRECT, Direct),
        (topology_pb2.CUSTOM, Custom),
    ],
)
def test_make_chooser(kind: int, chooser: type) -> None:
    message = topology_pb2.InputStream(gtype=kind)
    if kind == topology_pb2.FIELDS:
        message.grouping_fields.keys.add(key="b", type=topology_pb2.OBJECT)
    made = make_chooser(message, ["a", "b"], [1, 2], custom=Chooses([1]))
    assert type(made) is chooser
    assert made.tasks == [1, 2]
    if isinstance(made, Fields):
        assert made.indices == (1,)


def test_make_chooser_prefers_local_tasks_where_told() -> None:
    message = topology_pb2.InputStream(gtype=topology_pb2.SHUFFLE, prefer_local=True)
    made = make_chooser(message, ["a"], [1, 2, 3], local_tasks=[3])
    assert made.targets(()) == [3]
