"""The compiled emit flushes after as many tuples as it is told, though it counts them in parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instance.compiled import PART_MAX, parts

ROOMS = st.lists(st.integers(1, 5 * PART_MAX), min_size=2, max_size=6)


@given(ROOMS)
def test_parts_add_up_to_the_tuples_between_two_flushes(rooms: list[int]) -> None:
    waiting, flushes, emitted = iter(rooms), [], 0

    def flush() -> int:
        flushes.append(emitted)
        return next(waiting)

    next_part = parts(lambda: next(waiting), flush)
    left = next_part()
    for _ in range(sum(rooms) - 1):
        emitted += 1
        left -= 1
        assert left < PART_MAX
        if left <= 0:
            left = next_part()
    assert flushes == [sum(rooms[:place]) for place in range(1, len(rooms))]
