"""The steps of emitting many tuples at once: which columns need no look at their values, and where each tuple goes.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from heronpy.plan.columns import Columns
from heronpy.plan.grouping import Fields
from heronpy.wire.codec import FIXED, PLAIN

_TEXTS = frozenset((str, bytes))
_INT16_MAX = 0x7FFF


def is_small(column: Sequence[Any], text_max: int) -> bool:
    """Whether all values are plain scalars, and texts have at most `text_max` characters."""
    kinds = set(map(type, column))
    if kinds <= FIXED:
        return True
    if kinds <= _TEXTS:
        return max(map(len, column)) <= text_max
    return kinds <= PLAIN and all(type(value) in FIXED or len(value) <= text_max for value in column)


def flat_of(columns: Columns) -> list[Any]:
    """The values of all tuples, one after the other."""
    values, width = columns.values, len(columns.values)
    if width == 1:
        return values[0]
    flat: list[Any] = [None] * (columns.size * width)
    for place, column in enumerate(values):
        flat[place::width] = column
    return flat


def tasks_of(columns: Columns, chooser: Fields, memo: dict[Any, int], memo_max: int) -> list[int]:
    """The task of each tuple. `memo` has the tasks of keys that were asked for before, at most about `memo_max`."""
    indices = chooser.indices
    single = len(indices) == 1
    keys: list[Any] = columns.values[indices[0]]
    if not single:
        keys = list(zip(*[columns.values[index] for index in indices], strict=True))
    try:
        return list(map(memo.__getitem__, keys))
    except KeyError:
        pass
    if len(memo) >= memo_max:
        memo.clear()
    for key in dict.fromkeys(keys):
        if key not in memo:
            memo[key] = chooser.of_key((key,) if single else key)
    return list(map(memo.__getitem__, keys))


def by_task(columns: Columns, marks: list[Any] | None, tasks: list[int]) -> list[tuple[int, Columns, list[Any] | None]]:
    """The tuples of each task, in their order, with their marks."""
    # A stable sort of 16-bit numbers is a radix sort.
    numbers = np.array(tasks, dtype=np.int16 if max(tasks) <= _INT16_MAX else np.int64)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    cuts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(tasks)]
    if len(cuts) == 2:
        return [(tasks[0], columns, marks)]
    places = order.tolist()
    values = [list(map(column.__getitem__, places)) for column in columns.values]
    marks = None if marks is None else list(map(marks.__getitem__, places))
    whole = Columns(values, columns.size)
    return [
        (tasks[places[low]], whole.part(low, high), None if marks is None else marks[low:high])
        for low, high in pairwise(cuts)
    ]
