"""Bytes of large answers at the endpoint: counted until they are read, never beyond their bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronpy.scheduler.state_rules import SMALL_MAX_BYTES, LargeAnswers

LARGE = SMALL_MAX_BYTES + 1


def test_small_answers_do_not_count() -> None:
    answers = LargeAnswers(session_max=1, all_max=1)
    assert all(answers.take(1, request, SMALL_MAX_BYTES) for request in range(1000))
    assert answers.bytes == 0


def test_one_answer_is_never_too_large_and_the_next_one_waits_until_it_is_read() -> None:
    answers = LargeAnswers(session_max=LARGE, all_max=10 * LARGE)
    assert answers.take(1, 5, 100 * LARGE)
    assert answers.take(1, 5, 100 * LARGE), "the same, sent again"
    assert not answers.take(1, 6, LARGE)
    answers.settle(1, 5)
    assert not answers.take(1, 6, LARGE)
    answers.settle(1, 6)
    assert answers.take(1, 6, LARGE) and answers.bytes == LARGE


def test_all_sessions_together_have_a_bound_and_one_that_ends_gives_its_part_back() -> None:
    answers = LargeAnswers(session_max=10 * LARGE, all_max=2 * LARGE)
    assert answers.take(1, 1, LARGE) and answers.take(2, 1, LARGE)
    assert not answers.take(3, 1, LARGE)
    answers.end(1)
    assert answers.take(3, 1, LARGE)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(1, 3), st.integers(1, 9), st.integers(1, 4)),
            st.tuples(st.just("settle"), st.integers(1, 3), st.integers(1, 10), st.just(0)),
            st.tuples(st.just("end"), st.integers(1, 3), st.just(0), st.just(0)),
        )
    )
)
def test_the_sum_is_that_of_what_was_taken(story: list[tuple[str, int, int, int]]) -> None:
    answers, model = LargeAnswers(3 * LARGE, 5 * LARGE), dict[tuple[int, int], int]()
    for what, session, request, size in story:
        if what == "take" and answers.take(session, request, size * LARGE):
            model[session, request] = size * LARGE
        elif what == "settle":
            answers.settle(session, request)
            model = {key: size for key, size in model.items() if key[0] != session or key[1] >= request}
        elif what == "end":
            answers.end(session)
            model = {key: size for key, size in model.items() if key[0] != session}
        assert answers.bytes == sum(model.values())
        assert answers.bytes <= 5 * LARGE
        for number in (1, 2, 3):
            own = [size for (one, _), size in model.items() if one == number]
            assert sum(own) <= 3 * LARGE or len(own) == 1
