"""Decides whether a file is a known file. Pure.

Rotated files keep neither name nor inode: a rename changes the name, `copytruncate` of logrotate changes the inode,
and a free inode is soon reused. So an inode is only a hint, and the content decides: the beginning of the file, and
the bytes before the *cut*, the offset up to which the file has been read. A file with an immutable beginning (Ubiq's
precondition) can grow, be renamed, or be copied. If bytes that were read have changed, the file is *mutated*.
"""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

#: Number of bytes at the beginning, and before the cut, that are compared.
HEAD_BYTES = 1024


class Identity(Enum):
    """The result of comparing a file with a known file."""

    SAME = "the same"
    RENAMED = "the same file, with another name"
    SHORTER = "the file is shorter than the bytes that were read, and appears to have the same beginning"
    MUTATED = "the same beginning, but bytes that were read have changed"
    NEW = "another file: truncated and rewritten, or replaced"


class Fingerprint(NamedTuple):
    """The stored digests and sizes that identify a file by content."""

    #: Digest of the first line after the header, or of its first 1024 bytes if it is longer.
    first: str
    head_bytes: int
    #: Digest of the first `head_bytes`, 1024 at most.
    head: str
    cut: int
    #: Digest of the 1024 bytes before the cut, or of all bytes if there are fewer.
    before: str


class Line(NamedTuple):
    """The first line after the header: its offset, and its first 1024 bytes with the line ending."""

    offset: int
    data: bytes


def digest(data: bytes) -> str:
    """Return a digest of 16 hexadecimal digits."""
    return blake2b(data, digest_size=8).hexdigest()


def before(cut: int) -> int:
    """Return the offset at which the compared bytes before the cut begin."""
    return max(0, cut - HEAD_BYTES)


def first_line(beginning: bytes, header_lines: int = 0) -> Line | None:
    """Return the first line after the header once it is complete or has 1024 bytes, so that it cannot change."""
    offset = 0
    for _ in range(header_lines):
        offset = beginning.find(b"\n", offset) + 1
        if not offset:
            return None
    end = beginning.find(b"\n", offset, offset + HEAD_BYTES) + 1
    line = beginning[offset : end or offset + HEAD_BYTES]
    return Line(offset, line) if end or len(line) == HEAD_BYTES else None


def fingerprint_of(beginning: bytes, line: Line) -> Fingerprint:
    """Return the fingerprint of an unread file; `line` is its first line."""
    head = beginning[: min(HEAD_BYTES, line.offset + len(line.data))]
    return Fingerprint(digest(line.data), len(head), digest(head), 0, digest(b""))


def advanced(known: Fingerprint, context: bytes, data: bytes) -> Fingerprint:
    """Return the fingerprint after reading `data` from the cut on; `context` is the compared bytes before the cut."""
    cut = known.cut + len(data)
    both = context + data
    head_bytes, head = known.head_bytes, known.head
    if head_bytes < HEAD_BYTES and head_bytes < cut:
        # The cut was not beyond the head, so `both` begins with the file.
        head_bytes = min(HEAD_BYTES, cut)
        head = digest(both[:head_bytes])
    return Fingerprint(known.first, head_bytes, head, cut, digest(both[-HEAD_BYTES:]))


def fits(known: Fingerprint, context: bytes, beginning: bytes) -> bool:
    """Whether an open file is the known file, judged by the bytes before the cut and the first 1024 bytes.

    The beginning is read last, because a file may be truncated and rewritten at any moment.
    """
    return digest(context) == known.before and digest(beginning[: known.head_bytes]) == known.head


def identify(
    known: Fingerprint, size: int, beginning: bytes, context: bytes | None, renamed: bool = False, header_lines: int = 0
) -> Identity:
    """Compare a file with the known file, to find out whether both are the same file.

    size: its length in bytes. beginning: its first 1024 bytes, or all of them. context: its bytes from
    `before(known.cut)` to the cut; None if the file is shorter than the cut. renamed: whether the two files have
    different names.
    """
    if not size:
        return Identity.NEW
    if len(beginning) < known.head_bytes:
        line = first_line(beginning, header_lines)
        return Identity.SHORTER if line is None or digest(line.data) == known.first else Identity.NEW
    if digest(beginning[: known.head_bytes]) != known.head:
        return Identity.NEW
    if size < known.cut or context is None:
        return Identity.SHORTER
    if digest(context) != known.before:
        return Identity.MUTATED
    return Identity.RENAMED if renamed else Identity.SAME
