"""Keyed state is a mapping: against a plain dict, with times to live, and with other tasks' keys refused."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from heronpy.api.state import keyed_state
from heronpy.api.state.keyed_state import KeyedState, KeyedStates, KeyOwner
from heronpy.api.state.state import State
from heronpy.common.errors import TopologyError
from heronpy.common.hashing import stable_hash
from heronpy.plan.grouping import group_range, key_group_of_hash, task_index

KEYS = st.integers(0, 12)
VALUES = st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=3)


class Wall:
    """The wall clock of keyed states."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    clock = Wall()
    monkeypatch.setattr(keyed_state, "time", clock)
    return clock


class AgainstADict(RuleBasedStateMachine):
    """Every way to use a mapping does to it what it does to a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.state = KeyedState("s", None, KeyOwner("c", 0, 1, 16))
        self.model: dict[Any, Any] = {}

    def same(self, act: Any) -> None:
        results = []
        for mapping in (self.state, self.model):
            try:
                results.append(("gave", act(mapping)))
            except KeyError as error:
                results.append(("raised", error.args[0]))
        assert results[0] == results[1]

    @rule(key=KEYS, value=VALUES)
    def put(self, key: int, value: Any) -> None:
        self.state.put(key, value)
        self.model[key] = value

    @rule(key=KEYS, value=VALUES)
    def set_item(self, key: int, value: Any) -> None:
        self.same(lambda mapping: mapping.__setitem__(key, value))

    @rule(key=KEYS)
    def read(self, key: int) -> None:
        self.same(lambda mapping: mapping[key])
        self.same(lambda mapping: mapping.get(key))
        self.same(lambda mapping: mapping.get(key, "nothing"))
        self.same(lambda mapping: key in mapping)

    @rule(key=KEYS)
    def delete(self, key: int) -> None:
        self.same(lambda mapping: mapping.__delitem__(key))

    @rule(key=KEYS, default=VALUES)
    def pop(self, key: int, default: Any) -> None:
        self.same(lambda mapping: mapping.pop(key, default))
        self.same(lambda mapping: mapping.pop(key, None))

    @rule(key=KEYS, value=VALUES)
    def setdefault(self, key: int, value: Any) -> None:
        self.same(lambda mapping: mapping.setdefault(key, value))

    @rule(pairs=st.dictionaries(KEYS, VALUES, max_size=4))
    def update(self, pairs: dict[int, Any]) -> None:
        self.same(lambda mapping: mapping.update(pairs))

    @rule()
    def clear(self) -> None:
        self.same(lambda mapping: mapping.clear())

    @invariant()
    def the_same(self) -> None:
        assert self.state == self.model and dict(self.state) == self.model
        assert len(self.state) == len(self.model)
        assert list(self.state) == list(self.model)
        assert list(self.state.items()) == list(self.model.items())
        assert list(self.state.values()) == list(self.model.values())
        assert bool(self.state) == bool(self.model)


TestAgainstADict = AgainstADict.TestCase
TestAgainstADict.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_it_is_a_mutable_mapping_with_a_name() -> None:
    state = KeyedState("s")
    assert isinstance(state, MutableMapping)
    state.update(a=1, b=2)
    assert repr(state) == "KeyedState('s', 2 keys)"
    assert state.popitem() in {("a", 1), ("b", 2)} and len(state) == 1


# ---- what counts as changed -------------------------------------------------------------------


def tracked(**content: Any) -> KeyedState:
    state = KeyedState("s", None, KeyOwner("c", 0, 1, 16))
    state.update(content)
    state.take_changes()
    return state


@pytest.mark.parametrize(
    ("act", "changed"),
    [
        (lambda s: s["n"], set()),
        (lambda s: s.get("n"), set()),
        (lambda s: s["t"], set()),
        (lambda s: s["l"], {"l"}),
        (lambda s: s["tl"], {"tl"}),
        (lambda s: s.get("l"), {"l"}),
        (lambda s: s.get("none"), set()),
        (lambda s: "l" in s, set()),
        (lambda s: list(s), set()),
        (lambda s: list(s.items()), {"l", "tl"}),
        (lambda s: list(s.values()), {"l", "tl"}),
        (lambda s: s.pop("n"), {"n"}),
        (lambda s: s.put("new", 1), {"new"}),
        (lambda s: s.clear(), {"n", "t", "l", "tl"}),
    ],
)
def test_reading_what_may_change_in_place_counts_as_a_change(act: Any, changed: set[str]) -> None:
    state = tracked(n=1, t=("a", 2), l=[1], tl=("a", [1]))
    act(state)
    assert state.take_changes() == changed
    assert state.take_changes() == set()


# ---- time to live -----------------------------------------------------------------------------


def test_a_key_is_gone_when_its_time_is_over(wall: Wall) -> None:
    state = KeyedState("s", 10.0)
    state["a"] = 1
    wall.now += 6
    state["b"] = 2
    wall.now += 4
    assert "a" not in state and state.get("a", 0) == 0 and list(state.items()) == [("b", 2)] and len(state) == 1
    with pytest.raises(KeyError):
        state["a"]
    with pytest.raises(KeyError):
        del state["a"]
    wall.now += 6
    assert not state and state.held == 0


def test_writing_lengthens_a_life_and_reading_does_not(wall: Wall) -> None:
    state = KeyedState("s", 10.0)
    state["a"] = state["b"] = 1
    wall.now += 9
    state["a"] = state["a"] + state["b"]
    wall.now += 9
    assert dict(state) == {"a": 2}


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "read", "tick", "back", "walk", "pop"]), KEYS), min_size=1, max_size=40
    )
)
@settings(max_examples=120, deadline=None)
def test_lives_against_a_model_also_when_the_clock_goes_back(steps: list[tuple[str, int]]) -> None:
    """F27: a wall clock that jumps costs or gives life, never an error or a wrong value."""
    clock, real = Wall(), keyed_state.time
    keyed_state.time = clock  # type: ignore[assignment]
    try:
        state, model = KeyedState("s", 5.0), {}
        for what, key in steps:
            # A key that was seen dead stays so, whatever the clock does then.
            if what == "put":
                state[key] = key
                model[key] = clock.now + 5.0
            elif what == "read":
                if key in model and model[key] <= clock.now:
                    del model[key]
                assert state.get(key) == (key if key in model else None)
            elif what == "pop":
                if key in model and model[key] <= clock.now:
                    del model[key]
                assert state.pop(key, None) == (key if model.pop(key, None) is not None else None)
            elif what == "walk":
                model = {k: end for k, end in model.items() if end > clock.now}
                assert set(state) == set(model)
            else:
                clock.now += key if what == "tick" else -key
                if what == "back":
                    continue
                # Writes clear away a few that are dead; the model forgets all, so look at all of them.
                model = {k: end for k, end in model.items() if end > clock.now}
                assert dict(state) == {k: k for k in model}
    finally:
        keyed_state.time = real


def test_a_loop_may_see_keys_die(wall: Wall) -> None:
    state = KeyedState("s", 5.0)
    state.update({n: n for n in range(4)})
    seen = []
    for key, _ in state.items():
        seen.append(key)
        wall.now += 3
    assert seen == [0, 1]


def test_writes_give_memory_back_without_anybody_looking(wall: Wall) -> None:
    state = KeyedState("s", 5.0)
    for number in range(5000):
        state[number] = number
        wall.now += 1
    assert state.held <= 6


def restored(wall: Wall, lives: dict[Any, float], ttl_s: float | None) -> KeyedState:
    """A state of a checkpoint, whose keys expire after these seconds, in a program with this time to live."""
    state = KeyedState("s", None, KeyOwner("c", 0, 1, 16))
    for key, life_s in lives.items():
        state.load(key, 1, wall.now + life_s)
    state.claim(ttl_s)
    return state


def test_without_a_time_to_live_restored_keys_live_on(wall: Wall) -> None:
    """A key that had just been written was gone at the time at which it had expired in the earlier program."""
    state = restored(wall, {"a": 5.0, "b": 5.0, "gone": 0.0}, None)
    assert state.take_changes() == {"a", "b", "gone"}  # or a later restore would end their lives
    state["a"] = 2
    wall.now += 6
    assert dict(state) == {"a": 2, "b": 1} and [end for _, _, end in state.dump()] == [0.0, 0.0]


def test_a_write_ends_the_earlier_life_also_before_the_state_is_claimed(wall: Wall) -> None:
    state = KeyedState("s")
    state.load("a", 1, wall.now + 5.0)
    state["a"] = 2
    wall.now += 6
    assert dict(state) == {"a": 2}


def test_a_shorter_time_to_live_does_not_sort_at_each_write(wall: Wall, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write took 9 ms with 100,000 keys, until the keys of the earlier program had expired."""
    sorts: list[int] = []
    monkeypatch.setattr(keyed_state, "sorted", lambda *a, **k: (sorts.append(1), sorted(*a, **k))[1], raising=False)
    state = restored(wall, {n: 3600.0 + n for n in range(1000)}, 60.0)
    for number in range(1000):
        state[number % 50] = number
    assert len(sorts) <= 3
    wall.now += 60
    assert len(state) == 950 and state.get(0) is None


def test_keys_with_a_shorter_life_give_memory_back_behind_those_with_a_longer_one(wall: Wall) -> None:
    state = restored(wall, {n: 1e9 for n in range(100)}, 5.0)
    for number in range(5000):
        state["new", number] = number
        wall.now += 1
    assert state.held <= 220


@pytest.mark.parametrize("ttl", [0, -1, "5", float("nan")])
def test_a_time_to_live_that_is_none_is_refused(ttl: Any) -> None:
    with pytest.raises(TopologyError, match="keyed state 's' has ttl_s="):
        KeyedState("s", ttl)


def test_one_name_is_one_state_with_one_time_to_live() -> None:
    states = KeyedStates()
    assert states("a", 5) is states("a", 5.0) and states("a", 5) is not states("b")
    with pytest.raises(TopologyError, match=r"'a' is used with ttl_s=None and with ttl_s=5.0; give only one value"):
        states("a")
    with pytest.raises(TopologyError, match="needs a string as its name"):
        states("")


# ---- whose keys -------------------------------------------------------------------------


@given(groups=st.integers(1, 2000), parallelism=st.integers(1, 60))
def test_the_ranges_of_the_tasks_partition_the_groups(groups: int, parallelism: int) -> None:
    ranges = [group_range(index, parallelism, groups) for index in range(parallelism)]
    assert [group for part in ranges for group in part] == list(range(groups))
    assert all(task_index(group, parallelism, groups) == index for index, part in enumerate(ranges) for group in part)
    sizes = [len(part) for part in ranges]
    assert max(sizes) - min(sizes) <= 1


def test_the_key_of_another_task_is_refused_and_nothing_changes() -> None:
    states = [KeyedState("s", None, KeyOwner("c", index, 3, 64)) for index in range(3)]
    for key in ("apple", 7, ("a", 1), None, 2.5, b"x"):
        [owner] = [state for state in states if state.owns(key)]
        assert task_index(key_group_of_hash(stable_hash(key), 64), 3, 64) == owner.owner.index
        for state in states:
            if state is owner:
                state[key] = 1
                continue
            with pytest.raises(
                TopologyError, match=rf"belongs to c\[{owner.owner.index}\]; use the value of the field"
            ):
                state[key] = 1
            with pytest.raises(TopologyError, match="belongs to"):
                state.setdefault(key, [])
            assert key not in state and key not in state.take_changes()


def test_several_grouping_fields_need_tuples_as_keys() -> None:
    state = KeyedState("s", None, KeyOwner("c", 0, 1, 64, width=2))
    state["a", 1] = 5
    for key in ("a", ("a",), ("a", 1, 2), ["a", 1]):
        with pytest.raises((TopologyError, TypeError)):
            state[key] = 1
    assert dict(state) == {("a", 1): 5}


def test_without_pickle_only_plain_keys_and_values_go_in() -> None:
    """`allow_pickle: false` refuses at the write, in user code, and not when a checkpoint is due."""
    state = KeyedState("s", None, KeyOwner("c", 0, 1, 64), allow_pickle=False)
    state["a"] = 1
    with pytest.raises(TopologyError, match="value of type list, which needs pickle"):
        state["b"] = [1]
    with pytest.raises(TopologyError, match="key of type tuple, which needs pickle"):
        state["a", 1] = 1
    assert dict(state) == {"a": 1}


# ---- the plain State ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["put", "get", "enumerate", "clear"])
def test_a_state_of_ones_own_must_define_its_methods(method: str) -> None:
    arguments = {"put": (1, 2), "get": (1,)}.get(method, ())
    with pytest.raises(NotImplementedError, match=f"State must define {method}"):
        getattr(State(), method)(*arguments)
