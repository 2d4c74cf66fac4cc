"""Functions for byte ranges `[begin, end)`, and for lists of ranges in several files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Range = tuple[int, int]
#: A range of a file: `(file, begin, end)`.
Piece = tuple[int, int, int]


def union(ranges: Iterable[Range]) -> list[Range]:
    """Return the smallest sorted list of ranges that cover the same bytes."""
    merged: list[Range] = []
    for begin, end in sorted(ranges):
        if begin >= end:
            continue
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def subtract(ranges: Iterable[Range], minus: Iterable[Range]) -> list[Range]:
    """Return the bytes of `ranges` that are not in `minus`."""
    left, holes = [], union(minus)
    for begin, end in union(ranges):
        for hole_begin, hole_end in holes:
            if hole_end <= begin:
                continue
            if hole_begin >= end:
                break
            if begin < hole_begin:
                left.append((begin, hole_begin))
            begin = max(begin, hole_end)
        if begin < end:
            left.append((begin, end))
    return left


def overlaps(owned: Iterable[tuple[int, int, str]]) -> Iterator[tuple[int, int, str, str]]:
    """Yield each overlap of two ranges `(begin, end, owner)` as `(begin, end, owner, owner)`."""
    last: tuple[int, int, str] | None = None
    for one in sorted(owned):
        if last is not None and one[0] < last[1]:
            yield one[0], min(one[1], last[1]), last[2], one[2]
        if last is None or one[1] > last[1]:
            last = one


def total(pieces: Iterable[Piece]) -> int:
    return sum(end - begin for _, begin, end in pieces)


def split(pieces: Sequence[Piece], file: int, at: int) -> tuple[list[Piece], list[Piece]] | None:
    """Split the pieces before a byte; return both parts. None if no piece contains the byte, or the first part is
    empty."""
    for index, (of, begin, end) in enumerate(pieces):
        if of == file and begin <= at < end:
            before = [*pieces[:index], *([(of, begin, at)] if begin < at else [])]
            return (before, [(of, at, end), *pieces[index + 1 :]]) if before else None
    return None


def cut_out(pieces: Sequence[Piece], file: int, begin: int, end: int) -> tuple[list[Piece], Piece, list[Piece]] | None:
    """Return the pieces before, inside and after a range; None if no piece contains the range's first byte.

    The range is cut at the end of the piece that contains its first byte.
    """
    for index, (of, first, last) in enumerate(pieces):
        if of == file and first <= begin < last and begin < end:
            stop = min(end, last)
            before = [*pieces[:index], *([(of, first, begin)] if first < begin else [])]
            behind = [*([(of, stop, last)] if stop < last else []), *pieces[index + 1 :]]
            return before, (of, begin, stop), behind
    return None


def fill(pieces: Iterable[Piece], most_bytes: int, most_pieces: int) -> list[list[Piece]]:
    """Split the pieces into lists of at most this many bytes and pieces, in order; all lists but the last are full."""
    lists: list[list[Piece]] = [[]]
    room = most_bytes
    for file, begin, end in pieces:
        while begin < end:
            if room == 0 or len(lists[-1]) == most_pieces:
                lists.append([])
                room = most_bytes
            stop = min(end, begin + room)
            lists[-1].append((file, begin, stop))
            room -= stop - begin
            begin = stop
    return [one for one in lists if one]
