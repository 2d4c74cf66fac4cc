"""Finds text in a log file from its end towards its beginning, in bounded pieces.

Invariants: Each call searches at most `BYTES_MAX` bytes and returns about `FOUND_MAX_BYTES`. A line is returned once,
either as a hit or as context. A line of more than CHUNK bytes counts as several lines.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from msgspec import Struct

from heronpy.common.log_format import CONTINUATION, parse_line

CHUNK = 1024 * 1024
#: Maximum bytes searched per call, which takes about 0.1 s on an ordinary machine.
BYTES_MAX = 64 * CHUNK
FOUND_MAX_BYTES = 256 * 1024
HITS_MAX, CONTEXT_MAX = 200, 50
TEXT_MAX_BYTES = 1000
#: Maximum length of a hit, of a line of context, and of the first line of a record in an answer.
LINE_MAX, CONTEXT_LINE_MAX, HEAD_MAX = 8192, 2048, 300
#: Distance within which context and the beginning of a record are searched.
AROUND = 64 * 1024


@dataclass(slots=True)
class Hit:
    """A line that contains the text."""

    offset: int
    line: bytes
    #: The first line of the record that the hit continues; empty if the hit begins a record or no record was found.
    head: bytes
    #: Lines before and after the hit, oldest first.
    before: list[bytes] = field(default_factory=list)
    after: list[bytes] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The size of the returned lines in bytes."""
        return sum(map(len, (self.line, self.head, *self.before, *self.after)))


class Found(Struct, frozen=True):
    """The hits of one call, newest first."""

    hits: list[Hit]
    #: Offset before which the file was not searched; 0 if the whole file was searched.
    until: int
    searched: int


class _Place(Struct, frozen=True):
    """Offsets of a line with a hit (without its newline), and of the found text in the line."""

    begin: int
    end: int
    at: int


def contains(line: str, text: str, ignore_case: bool) -> bool:
    """Whether a search would find the text in the line; `ignore_case` applies to the letters A to Z."""
    if not ignore_case:
        return text in line
    return _folded(text.encode("utf-8", "surrogatepass")) in _folded(line.encode("utf-8", "surrogatepass"))


def _folded(data: bytes) -> bytes:
    """Convert ASCII letters to lower case. The length does not change, so offsets stay valid."""
    return data.lower()


def search_back(
    descriptor: int, text: bytes, until: int, hits_max: int, context: int, ignore_case: bool = False
) -> Found:
    """Search the file before offset `until`, newest lines first."""
    places, left, searched = _places(descriptor, text, until, min(hits_max, HITS_MAX), ignore_case)
    hits: list[Hit] = []
    given = 0
    upper = until  # start of the newer hit's block
    for number, place in enumerate(places):
        lower = places[number + 1].end + 1 if number + 1 < len(places) else 0
        hit, upper = _hit(descriptor, place, min(context, CONTEXT_MAX), lower, upper)
        hits.append(hit)
        given += hit.size
        if given >= FOUND_MAX_BYTES and number + 1 < len(places):
            return Found(hits, place.begin, searched)
    return Found(hits, left, searched)


def _places(
    descriptor: int, text: bytes, until: int, hits_max: int, ignore_case: bool
) -> tuple[list[_Place], int, int]:
    """Return the hits, the offset before which the file was not searched, and the number of bytes searched."""
    text = _folded(text) if ignore_case else text
    places: list[_Place] = []
    end, searched = min(until, os.fstat(descriptor).st_size), 0
    while end > 0 and searched < BYTES_MAX:
        begin = max(0, end - CHUNK)
        data = os.pread(descriptor, end - begin, begin)
        if not data:
            return places, 0, searched  # the file was truncated
        data = _folded(data) if ignore_case else data
        first = 0
        if begin:  # a line that began earlier is searched with the next piece
            newline = data.find(b"\n")
            first = newline + 1 if 0 <= newline < len(data) - 1 else 0
        stop = len(data)
        while (at := data.rfind(text, first, stop)) >= 0:
            line = max(data.rfind(b"\n", first, at) + 1, first)
            newline = data.find(b"\n", at)
            places.append(_Place(begin + line, begin + (newline if newline >= 0 else len(data)), begin + at))
            if len(places) == hits_max:
                return places, begin + line, searched + len(data) - line
            stop = line
        searched += len(data) - first
        end = begin + first
    return places, end, searched


def _hit(descriptor: int, place: _Place, context: int, lower: int, upper: int) -> tuple[Hit, int]:
    """Return the hit with its context between these offsets, and the offset of the first line of context."""
    at = max(place.begin, min(place.at - LINE_MAX // 2, place.end - LINE_MAX))
    line = os.pread(descriptor, min(place.end - at, LINE_MAX), at)
    start = max(lower, place.begin - AROUND)
    earlier = _whole(os.pread(descriptor, place.begin - start, start), start > lower)
    before = earlier[len(earlier) - context :] if context < len(earlier) else earlier
    after: list[bytes] = []
    if context and place.end + 1 < upper:
        data = os.pread(descriptor, min(AROUND, upper - place.end - 1), place.end + 1)
        after = data.removesuffix(b"\n").split(b"\n")[:context]
    begin = place.begin - sum(len(one) + 1 for one in before)
    hit = Hit(
        place.begin, line, _head(descriptor, place, line if at == place.begin else b""), _cut(before), _cut(after)
    )
    return hit, begin


def _whole(data: bytes, cut: bool) -> list[bytes]:
    """Return the lines of a piece; if `cut`, without the first line, which is incomplete."""
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    return lines[1:] if cut else lines


def _cut(lines: list[bytes]) -> list[bytes]:
    return [line[:CONTEXT_LINE_MAX] for line in lines]


def _head(descriptor: int, place: _Place, line: bytes) -> bytes:
    """Return the nearest earlier line that begins a record; empty if the hit itself begins a record."""
    if line and _begins_record(line):
        return b""
    start = max(0, place.begin - AROUND)
    for earlier in reversed(_whole(os.pread(descriptor, place.begin - start, start), start > 0)):
        if _begins_record(earlier):
            return earlier[:HEAD_MAX]
    return b""


def _begins_record(line: bytes) -> bool:
    if line.startswith(CONTINUATION.encode()):
        return False
    return parse_line(line[:HEAD_MAX].decode("utf-8", "backslashreplace")) is not None
