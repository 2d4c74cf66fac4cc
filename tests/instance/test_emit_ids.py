"""Ids of untracked spout tuples are acked at once, however the tuple travels; and when the compiled emit flushes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.setting_types import InstanceSettings
from heronpy.plan.grouping import Fields, Shuffle
from heronpy.task.compiled import PART_MAX, parts
from heronpy.task.emitter import Emitter, OutStream

VALUES = ["small", "x" * 5000, ["a", "list"], 1 << 80, None]


@pytest.mark.parametrize("chooser", [Fields([0], [2, 3]), Shuffle([2, 3])])
def test_every_id_comes_back(chooser: Any) -> None:
    acked: list[Any] = []
    sent: list[int] = []
    stream = OutStream("default", 0, ["value"], False)
    emitter = Emitter("words", 1, [stream], InstanceSettings(), lambda d, b, n: sent.append(n), lambda: 7)
    emitter.route({"default": [chooser]})
    emit = emitter.compile_emit("spout", lambda *a: None, SimpleNamespace(has_hooks=False), acked.append)
    for number, value in enumerate(VALUES):
        emit([value], tup_id=number)
        emit([value])
    emitter.flush()
    assert acked == list(range(len(VALUES)))
    assert sum(sent) == 2 * len(VALUES)


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
