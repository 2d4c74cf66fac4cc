"""The steps of emitting many tuples at once: finding columns of plain values, and the task of each tuple. Pure.

The tuples of an Arrow record batch go where they belong without a Python object for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heronpy.plan.columns import Columns
from heronpy.plan.grouping import All, Chooser, Fields, Lowest, Shuffle
from heronpy.wire.arrow_values import arrow
from heronpy.wire.codec import FIXED, PLAIN

from .outlets import ArrowOutlet, Mark

if TYPE_CHECKING:
    import pyarrow as pa


#: Per tuple, the index of its task among those of a grouping.
Turns = NDArray[np.uint8] | NDArray[np.int64]

_TEXTS = frozenset((str, bytes))
_BYTE_VALUES = 256
#: By tuple, the number of its task among those of a grouping.
ArrowTurns = NDArray[np.int64]


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


def copies_of(choosers: list[Chooser]) -> int:
    """How many tasks get each tuple."""
    return sum(len(chooser.tasks) if isinstance(chooser, All) else 1 for chooser in choosers)


def outlets_of(
    stream: int, batch: pa.RecordBatch, marks: list[Mark], chooser: Chooser, memo: dict[Any, int], memo_max: int
) -> list[ArrowOutlet]:
    """The tuples for each task of one consumer, in their order; `memo` as for `columns.turns_of`."""
    if isinstance(chooser, Shuffle):
        # Slices; the task that comes first moves on with each batch.
        return [ArrowOutlet(stream, chooser.open, batch, marks, chooser.open.index(chooser.target()))]
    if isinstance(chooser, All | Lowest):
        return [ArrowOutlet(stream, [task], batch, marks, 0) for task in chooser.targets(())]
    assert isinstance(chooser, Fields)
    turns = arrow_turns(batch, chooser, memo, memo_max)
    present = np.unique(turns).tolist()
    if len(present) == 1:
        return [ArrowOutlet(stream, [chooser.tasks[present[0]]], batch, marks, 0)]
    outlets = []
    for turn in present:
        places = np.flatnonzero(turns == turn)
        own_marks = list(map(marks.__getitem__, places.tolist()))
        outlets.append(ArrowOutlet(stream, [chooser.tasks[turn]], batch.take(arrow().array(places)), own_marks, 0))
    return outlets


def arrow_turns(batch: pa.RecordBatch, chooser: Fields, memo: dict[Any, int], memo_max: int) -> ArrowTurns:
    """The task of each tuple, as its number in `chooser.tasks`: by the rule of single tuples, asked once per key."""
    columns = [batch.column(index) for index in chooser.indices]
    if any(arrow().types.is_nested(column.type) for column in columns):
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return np.array([chooser.tasks.index(chooser.of_key(row)) for row in rows], dtype=np.int64)
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # Pairs of numbers become numbers again, so that they stay small.
        codes = np.unique(codes * len(encoded.dictionary) + own, return_inverse=True)[1]
    _, first = np.unique(codes, return_index=True)
    firsts = [column.take(arrow().array(first)).to_pylist() for column in columns]
    keys = firsts[0] if len(columns) == 1 else list(zip(*firsts, strict=True))
    return np.array([_turn(key, len(columns) == 1, chooser, memo, memo_max) for key in keys], dtype=np.int64)[codes]


def _turn(key: Any, single: bool, chooser: Fields, memo: dict[Any, int], memo_max: int) -> int:
    found = memo.get(key)
    if found is None:
        if len(memo) >= memo_max:
            memo.clear()
        found = memo[key] = chooser.tasks.index(chooser.of_key((key,) if single else key))
    return found
