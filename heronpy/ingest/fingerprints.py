"""The text form of the fingerprints that a ledger stores. Pure except for one read."""

from __future__ import annotations

import os

from heronpy.growing.chunks import bytes_before
from heronpy.growing.identity import HEAD_BYTES, Fingerprint, digest


def head_text(fingerprint: Fingerprint) -> str:
    """Return the fingerprint of a file's beginning as text: digests of its first line and of its first bytes."""
    return f"{fingerprint.first}:{fingerprint.head_bytes}:{fingerprint.head}"


def tail_text(fingerprint: Fingerprint) -> str:
    """Return as text the offset up to which the file is known, and the digest of the bytes before this offset."""
    return f"{fingerprint.cut}:{fingerprint.before}"


def fingerprint_from(head: str, tail: str) -> Fingerprint:
    """Parse the two texts of a fingerprint. Raises ValueError for invalid texts."""
    first, size, beginning = head.split(":")
    cut, _, before = tail.partition(":")
    return Fingerprint(first, int(size), beginning, int(cut), before)


def file_matches(head: str, descriptor: int, tail: str = "") -> bool:
    """Whether an open file begins as `head` describes, even if the file has grown since then. If `tail` is given, the
    file must also contain those bytes, because a truncated and rewritten file may begin as before."""
    try:
        known = fingerprint_from(head, tail or "0:")
    except ValueError:
        return False
    if known.cut and digest(bytes_before(descriptor, known.cut)) != known.before:
        return False
    # Checked last, because the file may be truncated and rewritten at any moment.
    return digest(os.pread(descriptor, min(known.head_bytes, HEAD_BYTES), 0)) == known.head
