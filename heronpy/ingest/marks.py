"""The marks of a file's content that a ledger keeps, as text (pure except for one read)."""

from __future__ import annotations

import os

from heronpy.growing.chunks import bytes_before
from heronpy.growing.identity import HEAD_BYTES, Mark, digest


def head_text(mark: Mark) -> str:
    """The mark of a file's beginning: digests of its first line and of its first bytes."""
    return f"{mark.first}:{mark.head_bytes}:{mark.head}"


def tail_text(mark: Mark) -> str:
    """The bytes before the cut."""
    return f"{mark.cut}:{mark.before}"


def mark_from(head: str, tail: str) -> Mark:
    """The mark of two texts; raises ValueError for invalid texts."""
    first, size, beginning = head.split(":")
    cut, _, before = tail.partition(":")
    return Mark(first, int(size), beginning, int(cut), before)


def is_marked(head: str, descriptor: int, tail: str = "") -> bool:
    """Whether an open file begins as `head` says, even if the beginning has grown since, and has the bytes of `tail`,
    if given, because a truncated and rewritten file may begin as before."""
    try:
        _, size, beginning = head.split(":")
        wanted = min(int(size), HEAD_BYTES)
        cut, _, context = tail.partition(":")
        end = int(cut or 0)
    except ValueError:
        return False
    if end and digest(bytes_before(descriptor, end)) != context:
        return False
    # Checked last, because the file may be truncated and rewritten at any moment.
    return digest(os.pread(descriptor, wanted, 0)) == beginning
