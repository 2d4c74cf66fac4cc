"""Backoff, clocks and names."""

from __future__ import annotations

import shlex
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.backoff import Backoff, backoff_s
from heronpy.common.ids import (
    child_epoch,
    incarnation_of,
    instance_id,
    is_called,
    name_problem,
    parse_instance_id,
    part_name_problem,
    short_name,
    topology_name_problem,
)


def test_delays_double_up_to_the_bound_and_start_again() -> None:
    backoff = Backoff(1.0, 60.0)
    assert [backoff.next_s() for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    backoff.reset()
    assert backoff.next_s() == 1.0


def test_jitter_shortens_by_half_at_most() -> None:
    assert backoff_s(3, initial_s=1, max_s=60, jitter=1.0) == 4.0
    assert Backoff(2.0, 60.0).next_s(jitter=0.5) == 1.5


@given(
    st.integers(0, 10**6),
    st.floats(0, 1e3),
    st.floats(0, 1e6),
    st.floats(0, 1),
)
def test_delays_stay_in_bounds(attempt: int, initial: float, more: float, jitter: float) -> None:
    limit = initial + more
    delay = backoff_s(attempt, initial_s=initial, max_s=limit, jitter=jitter)
    assert 0 <= delay <= limit
    later = backoff_s(attempt + 1, initial_s=initial, max_s=limit)
    earlier = backoff_s(attempt, initial_s=initial, max_s=limit)
    assert later >= earlier


def test_impossible_backoffs_are_refused() -> None:
    for make in (
        lambda: Backoff(2.0, 1.0),
        lambda: Backoff(-1.0, 1.0),
        lambda: backoff_s(-1, initial_s=1, max_s=2),
        lambda: backoff_s(0, initial_s=1, max_s=2, jitter=2),
    ):
        with pytest.raises(ValueError, match=r"must be|impossible"):
            make()


@given(st.integers(0, 10**6), st.text(min_size=1), st.integers(0, 10**6))
def test_instance_names_read_back(container: int, component: str, task: int) -> None:
    assert parse_instance_id(instance_id(container, component, task)) == (
        container,
        component,
        task,
    )


@pytest.mark.parametrize("wrong", ["", "container_1_word", "box_1_w_2", "container_x_w_2", "container_1__2"])
def test_wrong_instance_names(wrong: str) -> None:
    with pytest.raises(ValueError, match="not the name of an instance"):
        parse_instance_id(wrong)


@pytest.mark.parametrize("word", ["container_1_a_b_7", "a_b-7", "a_b_7", "a_b (task 7)", "task 7", "7"])
def test_an_instance_is_called_as_views_write_it(word: str) -> None:
    assert short_name("container_1_a_b_7") == "a_b-7" and short_name("stmgr-1") == "stmgr-1"
    assert is_called("container_1_a_b_7", word)
    assert not any(is_called(name, word) for name in ("container_1_a_b_17", "container_1_b_71", "stmgr-7", "tmaster"))


def test_another_process_is_called_by_its_name_only() -> None:
    assert is_called("stmgr-1", "stmgr-1") and not is_called("stmgr-1", "1") and not is_called("stmgr-1", "stmgr_1")


def test_a_later_container_beats_every_earlier_start() -> None:
    assert child_epoch(2, 0) > child_epoch(1, 65535) > child_epoch(1, 1)
    with pytest.raises(ValueError, match="does not fit"):
        child_epoch(1, 65536)


def test_epochs_of_pools_fit_where_less_room_is() -> None:
    """A container in a pool has an epoch of 16 bits more than the number of a map."""
    assert incarnation_of(child_epoch(127, 3), 23) == child_epoch(127, 3)
    long = [child_epoch(number << 16 | 1, start) for number in range(30, 60) for start in (1, 2)]
    for bits in (23, 40):
        assert len({incarnation_of(one, bits) for one in long}) == len(long)
        assert max(incarnation_of(one, bits) for one in long) < 1 << bits


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "empty"),
        (" ", "empty"),
        ("a/b", "slash"),
        ("a\\b", "slash"),
        ("a\nb", "control"),
        ("a\x7f", "control"),
        ("..", r"\.\."),
        ("a..b", r"\.\."),
        (".", "dot"),
        ("a" * 201, "longer"),
        ("-rf", "starts with '-'"),
        ("a\u202eb", "control"),
        ("a\u061cb", "control"),
        ("\u3164", "control"),
        ("ü" * 101, "longer"),
    ],
)
def test_bad_names(name: str, problem: str) -> None:
    found = name_problem(name)
    assert found is not None
    assert problem.replace("\\", "") in found


@pytest.mark.parametrize("name", ["word", "word-count_2.0", "WordCount", "Wörter", "_x", "7"])
def test_the_name_of_a_topology_is_one_word_for_every_shell(name: str) -> None:
    assert topology_name_problem(name) is None
    assert shlex.split(f"heron kill local {name}")[-1] == name
    for wrong in (f"{name} x", f"{name}(1)", f"{name}!", f"{name}#", f"-{name}", f".{name}", f"{name}$HOME"):
        assert topology_name_problem(wrong), wrong


@pytest.mark.parametrize("name", ["word", "my component", "Wörter", "a.b-c_d", "a" * 200])
def test_good_names(name: str) -> None:
    assert name_problem(name) is None


@given(st.text(alphabet=string.printable + "äπ", min_size=1, max_size=20))
def test_the_name_of_a_component_needs_no_quotes(name: str) -> None:
    if part_name_problem(name) is None:
        plain = "".join(character for character in name if character.isascii())
        assert shlex.quote(plain) == plain or not plain
        assert not name.startswith(("-", ".", "=", "~")) and shlex.split(name) == [name]


@pytest.mark.parametrize("character", list("(){}[]! \"'`$;|&*?~<>#^"))
def test_a_component_has_no_character_that_shells_act_upon(character: str) -> None:
    for name in (f"a{character}b", f"a{character}", f"{character}a"):
        assert part_name_problem(name), name


@pytest.mark.parametrize(
    "name",
    [
        "word",
        "word-spout",
        "half_acking.bolt",
        "reducebykeyandwindow-1",
        "__tick",
        "Wörter",
        "7",
        "a:b",
        "k=v",
        "user@1",
    ],
)
def test_names_that_apaches_programs_use_are_taken(name: str) -> None:
    assert part_name_problem(name) is None
