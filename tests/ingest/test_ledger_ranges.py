"""Ranges against maps of bytes, and the sentences of `validate`."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from heronpy.ingest.ledger import ranges
from heronpy.ingest.ledger.types import (
    Copy,
    Dispatch,
    DispatchState,
    File,
    FileState,
    Pipeline,
    Row,
    Span,
    SpanState,
    Unit,
    UnitState,
)
from heronpy.ingest.ledger.validate import validate

_ranges = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda one: (min(one), max(one))), max_size=8)
#: Pieces of two files that do not overlap, in order.
_pieces = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), st.booleans()), min_size=1, max_size=6)


def _bytes(some: list[ranges.Range]) -> set[int]:
    return {offset for begin, end in some for offset in range(begin, end)}


def _laid_out(parts: list[tuple[int, int, bool]]) -> list[ranges.Piece]:
    ends = {1: 0, 2: 0}
    pieces = []
    for size, gap, first in parts:
        file = 1 if first else 2
        begin = ends[file] + gap
        ends[file] = begin + size
        pieces.append((file, begin, ends[file]))
    return pieces


def _offsets(pieces: list[ranges.Piece]) -> list[tuple[int, int]]:
    return [(file, offset) for file, begin, end in pieces for offset in range(begin, end)]


@given(_ranges, _ranges)
def test_union_and_subtract(some: list[ranges.Range], others: list[ranges.Range]) -> None:
    union = ranges.union(some)
    assert _bytes(union) == _bytes(some)
    assert all(before[1] < behind[0] for before, behind in pairwise(union))
    left = ranges.subtract(some, others)
    assert _bytes(left) == _bytes(some) - _bytes(others)
    assert left == ranges.union(left)


@given(_pieces, st.integers(1, 12), st.integers(1, 4))
def test_fill_keeps_order_and_limits(parts: list[tuple[int, int, bool]], size: int, count: int) -> None:
    pieces = _laid_out(parts)
    lists = ranges.fill(pieces, size, count)
    assert [one for part in lists for one in _offsets(part)] == _offsets(pieces)
    assert all(ranges.total(part) <= size and len(part) <= count for part in lists)
    assert all(ranges.total(part) == size or len(part) == count for part in lists[:-1])


@given(_pieces, st.integers(1, 2), st.integers(0, 60))
def test_split_is_inside(parts: list[tuple[int, int, bool]], file: int, at: int) -> None:
    pieces = _laid_out(parts)
    halves = ranges.split(pieces, file, at)
    offsets = _offsets(pieces)
    if (file, at) not in offsets or offsets[0] == (file, at):
        assert halves is None
        return
    assert halves is not None
    assert [_offsets(half) for half in halves] == [
        offsets[: offsets.index((file, at))],
        offsets[offsets.index((file, at)) :],
    ]


@given(_pieces, st.integers(1, 2), st.integers(0, 60), st.integers(1, 9))
def test_cut_out_stays_in_its_piece(parts: list[tuple[int, int, bool]], file: int, begin: int, size: int) -> None:
    pieces = _laid_out(parts)
    cut = ranges.cut_out(pieces, file, begin, begin + size)
    if (file, begin) not in _offsets(pieces):
        assert cut is None
        return
    assert cut is not None
    before, inside, behind = cut
    assert _offsets([*before, inside, *behind]) == _offsets(pieces)
    assert inside[:2] == (file, begin) and inside[2] <= begin + size


# ---- validate -------------------------------------------------------------------------------
_PIPELINE = Pipeline(1, 0.0, 10, 10, 10, False, 0.0, "{}")
_FILE = File(1, "a", 1, 0.0, "h", 100, 100, FileState.LIVE, None, None)
_DONE = Span(1, 0, 60, SpanState.DONE, 0)
_SPAN = Span(1, 60, 100, SpanState.UNIT, 7)
_UNIT = Unit(7, 7, UnitState.READY, 40, 0.0, 0.0)
_SOUND: tuple[Row, ...] = (_PIPELINE, _FILE, _DONE, _SPAN, _UNIT)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ((_FILE, _DONE), "its spans end at 60"),
        ((_FILE, _DONE, replace(_SPAN, begin=50), replace(_UNIT, bytes=50)), "span 50-100 must begin at 60"),
        ((_FILE, _DONE, replace(_SPAN, begin=70), replace(_UNIT, bytes=30)), "span 70-100 must begin at 60"),
        ((_FILE, _DONE, _SPAN), "unit 7, which is missing"),
        ((_FILE, _DONE, replace(_SPAN, state=SpanState.DONE)), "not merged"),
        ((replace(_FILE, size=90), _DONE, _SPAN, _UNIT), "above its size"),
        ((replace(_FILE, size=110), _DONE, _SPAN, _UNIT), "waits without a start time"),
        ((replace(_FILE, since=1.0), _DONE, _SPAN, _UNIT), "does not wait, but has a start time"),
        ((_FILE, _DONE, _SPAN, replace(_UNIT, bytes=41)), "41 bytes"),
        ((_FILE, _DONE, _SPAN, replace(_UNIT, state=UnitState.LEASED)), "its holder is ''"),
        ((_FILE, _DONE, _SPAN, replace(_UNIT, state=UnitState.COMMITTED)), "has won"),
        ((_FILE, _DONE, _SPAN, _UNIT, Dispatch(1, (7,), DispatchState.OPEN)), "dispatches"),
        ((_FILE, _DONE, _SPAN, _UNIT, Copy(2, "", "b", 1, "i", "", 0.0)), "a copy of file 2"),
        ((_DONE, _SPAN, _UNIT), "spans of file 1"),
        ((replace(_PIPELINE, next_unit=7), *_SOUND[1:]), "was not assigned yet"),
        ((*_SOUND, replace(_FILE, id=2, size=0, cut=0)), "occurs twice"),
    ],
)
def test_rows_that_cannot_be_true_are_named(rows: tuple[Row, ...], why: str) -> None:
    assert validate(_SOUND) == []
    assert any(why in sentence for sentence in validate(rows)), validate(rows)
