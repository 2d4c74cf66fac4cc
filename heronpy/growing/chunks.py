"""Reads the complete lines of a part of a file.

A *chunk* is a byte range `begin, end`. A line belongs to the chunk that contains its first byte, so chunks can be cut
anywhere without reading a byte, and each line is in exactly one chunk. An unfinished last line is not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from heronpy.common.errors import HeronError
from heronpy.growing.identity import before

BLOCK_BYTES = 256 * 1024
LINE_BYTES_MAX = 32 * 1024 * 1024


class LongLineError(HeronError):
    """A line does not fit into memory; `offset` is the offset of its first byte."""

    def __init__(self, name: str, offset: int, limit: int) -> None:
        super().__init__(f"{name} has a line of more than {limit} bytes at byte {offset}; check that it is a text file")
        self.offset = offset


class UnfinishedLineError(HeronError):
    """A chunk's last line has no line ending, so the file was truncated; `offset` is the offset of its first byte."""

    def __init__(self, name: str, offset: int) -> None:
        super().__init__(f"{name} ends within the line at byte {offset}; the file was truncated")
        self.offset = offset


class Lines(NamedTuple):
    """Complete lines in order, with their line endings. `offset` is the offset of the first byte."""

    offset: int
    data: bytes


def read_chunk(
    descriptor: int,
    name: str,
    begin: int,
    end: int,
    block_bytes: int = BLOCK_BYTES,
    line_bytes_max: int = LINE_BYTES_MAX,
    whole: bool = False,
) -> Iterator[Lines]:
    """Yield the lines of a chunk in blocks of about `block_bytes`; memory is bounded by one block and one line.

    Errors contain `name`. Raises LongLineError, OSError, and UnfinishedLineError if the file ends within the chunk's
    last line. With `whole`, such a line is yielded.
    """
    at = begin
    if begin and os.pread(descriptor, 1, begin - 1) != b"\n":
        at = _next_line(descriptor, name, begin, line_bytes_max)
    while at < end:
        _, data = read_lines(descriptor, name, at, min(block_bytes, end - at), line_bytes_max)
        if not data and whole:
            data = os.pread(descriptor, line_bytes_max, at)
        if not data:
            raise UnfinishedLineError(name, at)
        yield Lines(at, data)
        at += len(data)


def read_lines(
    descriptor: int, name: str, at: int, want: int, line_bytes_max: int = LINE_BYTES_MAX, context: int = 0
) -> tuple[bytes, bytes]:
    """Return the `context` bytes before `at`, and the complete lines within the `want` bytes from `at` on.

    `at` is the beginning of a line. If no line ends within these bytes, the result is one line of any length, or empty
    at the end of the file. Usually one system call reads the context and the lines.
    """
    read = os.pread(descriptor, context + want, at - context)
    around, data = read[:context], read[context:]
    end = data.rfind(b"\n") + 1
    if not end and len(data) == want:
        data, end = _rest_of_line(descriptor, name, at, data, line_bytes_max)
    data = data[:end]
    if len(data) > line_bytes_max:
        _check_lines(name, at, data, line_bytes_max)
    return around, data


def line_at(descriptor: int, name: str, offset: int, line_bytes_max: int = LINE_BYTES_MAX) -> bytes | None:
    """Return the line that begins at `offset`, without its line ending; None if it is incomplete."""
    _, data = read_lines(descriptor, name, offset, 4096, line_bytes_max)
    return data.partition(b"\n")[0].removesuffix(b"\r") if data else None


def bytes_before(descriptor: int, cut: int) -> bytes:
    """Return the bytes before a cut that are compared to identify a file."""
    start = before(cut)
    return os.pread(descriptor, cut - start, start)


def safe_size(descriptor: int, size: int, known: int = 0) -> int:
    """Return the offset after the last line ending before `size`; at least `known`, an earlier result.

    The file is read backwards, so little more than an unfinished line is read.
    """
    at = size
    while at > known:
        start = max(known, at - BLOCK_BYTES)
        end = os.pread(descriptor, at - start, start).rfind(b"\n") + 1
        if end:
            return start + end
        at = start
    return known


def _rest_of_line(descriptor: int, name: str, at: int, data: bytes, limit: int) -> tuple[bytes, int]:
    """Return a line that is longer than `data`, and its length; 0 if the line is unfinished."""
    pieces, have = [data], len(data)
    while True:
        if have > limit:
            raise LongLineError(name, at, limit)
        piece = os.pread(descriptor, BLOCK_BYTES, at + have)
        if not piece:
            return b"", 0
        found = piece.find(b"\n") + 1
        pieces.append(piece[: found or None])
        have += found or len(piece)
        if found:
            if have > limit:
                raise LongLineError(name, at, limit)
            return b"".join(pieces), have


def _next_line(descriptor: int, name: str, at: int, limit: int) -> int:
    """Return the offset of the next line; after the last line, the end of the file."""
    start = at
    while True:
        piece = os.pread(descriptor, BLOCK_BYTES, at)
        found = piece.find(b"\n") + 1
        if found or not piece:
            return at + found
        at += len(piece)
        if at - start > limit:
            raise LongLineError(name, start, limit)


def _check_lines(name: str, at: int, data: bytes, limit: int) -> None:
    for line in data.split(b"\n"):
        if len(line) >= limit:
            raise LongLineError(name, at, limit)
        at += len(line) + 1
