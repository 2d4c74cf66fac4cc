"""The steps of emitting many tuples at once: finding columns of plain values, and the task of each tuple. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heronpy.plan.columns import Columns
from heronpy.plan.grouping import Fields
from heronpy.wire.codec import FIXED, PLAIN

#: Per tuple, the index of its task among those of a grouping.
Turns = NDArray[np.uint8] | NDArray[np.int64]

_TEXTS = frozenset((str, bytes))
_BYTE_VALUES = 256


def is_small(column: Sequence[Any], text_max: int) -> bool:
    """Whether all values are plain scalars, with at most `text_max` characters per text."""
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


def turns_of(columns: Columns, chooser: Fields, memo: dict[Any, int], memo_max: int) -> Turns:
    """The task of each tuple, as its index in `chooser.tasks`.

    `memo` caches the index of each key, for about `memo_max` keys at most.
    """
    indices = chooser.indices
    single = len(indices) == 1
    keys: list[Any] = columns.values[indices[0]]
    if not single:
        keys = list(zip(*[columns.values[index] for index in indices], strict=True))
    few = len(chooser.tasks) <= _BYTE_VALUES
    try:
        return _turns(keys, memo, few)
    except KeyError:
        pass
    if len(memo) >= memo_max:
        memo.clear()
    for key in dict.fromkeys(keys):
        if key not in memo:
            memo[key] = chooser.tasks.index(chooser.of_key((key,) if single else key))
    return _turns(keys, memo, few)


def _turns(keys: list[Any], memo: dict[Any, int], few: bool) -> Turns:
    found = map(memo.__getitem__, keys)
    if few:
        return np.frombuffer(bytes(found), dtype=np.uint8)
    return np.fromiter(found, dtype=np.int64, count=len(keys))


def by_task(columns: Columns, marks: list[Any] | None, turns: Turns) -> list[tuple[int, Columns, list[Any] | None]]:
    """The tuples of each task, in order, with their marks; `turns` is the result of `turns_of`."""
    if (turns == turns[0]).all():
        return [(int(turns[0]), columns, marks)]
    # A stable sort of bytes is a radix sort.
    order = np.argsort(turns, kind="stable")
    ordered = turns[order]
    cuts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(turns)]
    places = order.tolist()
    values = [list(map(column.__getitem__, places)) for column in columns.values]
    marks = None if marks is None else list(map(marks.__getitem__, places))
    whole = Columns(values, columns.size)
    return [
        (int(ordered[low]), whole.part(low, high), None if marks is None else marks[low:high])
        for low, high in pairwise(cuts)
    ]
