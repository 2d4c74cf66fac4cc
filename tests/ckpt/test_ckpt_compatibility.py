"""Whether a checkpoint fits a topology: every reason against it is one sentence (F33)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronpy.ckpt.compatibility import at_savepoint, component_states, problems, starting_empty
from heronpy.proto import checkpoint_pb2

GROUPS = 64


def metadata(**components: tuple[int, str]) -> checkpoint_pb2.Metadata:
    """Components as name=(tasks, what they hold): any of plain, keyed, channel."""
    result = checkpoint_pb2.Metadata(checkpoint=7, key_groups=GROUPS)
    for name, (tasks, holds) in components.items():
        result.parallelism[name] = tasks
        for _ in range(tasks):
            task = result.tasks.add(component=name, stateful="plain" in holds)
            task.channel_tuples = 3 * ("channel" in holds)
            if "keyed" in holds:
                task.keyed.add(name="counts", keys=2)
    return result


def test_the_same_topology_fits() -> None:
    assert problems(metadata(word=(1, "plain"), count=(2, "keyed")), {"word": 1, "count": 2}, GROUPS) == []


def test_keyed_state_may_be_spread_over_another_number_of_tasks() -> None:
    assert problems(metadata(count=(2, "keyed")), {"count": 5}, GROUPS) == []


def test_plain_state_keeps_its_parallelism() -> None:
    [text] = problems(metadata(word=(2, "plain")), {"word": 3}, GROUPS)
    assert "'word'" in text and "2 tasks in checkpoint 7" in text and "keep its parallelism at 2" in text
    [text] = problems(metadata(word=(1, "plain")), {"word": 3}, GROUPS)
    assert "plain State of 1 task in checkpoint 7" in text


def test_tuples_under_way_keep_their_parallelism() -> None:
    [text] = problems(metadata(count=(2, "keyed channel")), {"count": 3}, GROUPS)
    assert "12 tuples" not in text and "6 tuples in flight to 2 tasks" in text and "savepoint" in text


def test_state_of_a_component_that_is_gone_is_dropped_only_when_allowed() -> None:
    saved = metadata(word=(1, "plain"), count=(2, "keyed"), log=(1, ""))
    [text] = problems(saved, {"word": 1}, GROUPS)
    assert "'count'" in text and "--allow-dropped-state" in text
    assert problems(saved, {"word": 1}, GROUPS, allow_dropped=True) == []


def test_a_savepoint_to_come_has_the_components_of_now_and_no_tuple_in_flight() -> None:
    saved = metadata(word=(1, "plain"), count=(2, "keyed channel"), gone=(1, "keyed"))
    then = at_savepoint(saved, {"word": 2, "count": 3, "new": 1})
    assert problems(then, {"word": 2, "count": 4}, GROUPS) == []
    [text] = problems(then, {"word": 2, "cuont": 3}, GROUPS)
    assert "'count'" in text
    assert len(problems(saved, {"word": 2, "count": 4}, GROUPS)) == 3, "the checkpoint itself is left as it is"


def test_key_groups_must_be_the_same() -> None:
    [text] = problems(metadata(count=(2, "keyed")), {"count": 2}, GROUPS * 2)
    assert "set heron.checkpoint.key_groups to 64" in text
    assert problems(metadata(count=(2, "plain")), {"count": 2}, GROUPS * 2) == []


def test_new_components_start_empty() -> None:
    assert starting_empty(metadata(word=(1, "plain")), {"word": 1, "fresh": 2}) == ["fresh"]


HOLDS = st.sampled_from(["", "plain", "keyed", "plain keyed", "keyed channel"])


@given(st.dictionaries(st.sampled_from("abcde"), st.tuples(st.integers(1, 4), HOLDS)), st.data())
def test_a_problem_is_named_for_exactly_the_components_that_cannot_be_restored(
    components: dict[str, tuple[int, str]], data: st.DataObject
) -> None:
    now = data.draw(st.dictionaries(st.sampled_from("abcde"), st.integers(1, 4)))
    wrong = {
        name
        for name, (tasks, holds) in components.items()
        if (holds and name not in now)
        or (name in now and now[name] != tasks and ("plain" in holds or "channel" in holds))
    }
    found = problems(metadata(**components), now, GROUPS)
    assert {name for name in components if any(f"component '{name}'" in text for text in found)} == wrong
    assert len(found) == len(wrong)


def test_sums_are_by_component() -> None:
    states = component_states(metadata(word=(1, "plain"), count=(2, "keyed channel")))
    assert (states["word"].tasks, states["word"].plain, states["word"].empty) == (1, True, False)
    assert (states["count"].keys, states["count"].keyed, states["count"].channel_tuples) == (4, ["counts"], 6)
