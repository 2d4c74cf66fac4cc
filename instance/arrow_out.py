"""Where the tuples of an Arrow record batch go, without a Python object for each. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heronpy.plan.grouping import All, Chooser, Fields, Lowest, Shuffle
from heronpy.wire.arrow_values import arrow

from .outlets import ArrowOutlet, Mark

if TYPE_CHECKING:
    import pyarrow as pa

#: By tuple, the number of its task among those of a grouping.
Turns = NDArray[np.int64]


def copies_of(choosers: list[Chooser]) -> int:
    """How many tasks get each tuple."""
    return sum(len(chooser.tasks) if isinstance(chooser, All) else 1 for chooser in choosers)


def outlets_of(
    stream: int, batch: pa.RecordBatch, marks: list[Mark], chooser: Chooser, memo: dict[Any, int], memo_max: int
) -> list[ArrowOutlet]:
    """The tuples for each task of one consumer, in their order; `memo` as for `columns.turns_of`."""
    if isinstance(chooser, Shuffle):
        # Slices; the task that comes first moves on with each batch.
        return [ArrowOutlet(stream, chooser.tasks, batch, marks, chooser.tasks.index(chooser.target()))]
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


def arrow_turns(batch: pa.RecordBatch, chooser: Fields, memo: dict[Any, int], memo_max: int) -> Turns:
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
