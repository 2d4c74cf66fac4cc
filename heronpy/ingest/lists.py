"""A list is a file in which each line represents a split or a bucket, which has more bytes than the line itself.

All units of a list are created together, with the weights of their lines.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from heronpy.common.errors import StateError
from heronpy.connectors.durable_files import make_record
from heronpy.growing.chunks import bytes_before
from heronpy.growing.identity import HEAD_BYTES, Fingerprint, digest, fingerprint_of, first_line
from heronpy.ingest.fingerprints import head_text, tail_text
from heronpy.ingest.ledger.requests import EnterList, SeenFile, Share

#: A line with its line end, and the bytes of work that the line represents.
Weighed = tuple[bytes, int]


def packed(lines: Sequence[Weighed], goal: int) -> tuple[Share, ...]:
    """Pack adjacent lines into units of about `goal` bytes. Pure: the same lines give the same units."""
    shares: list[Share] = []
    begin = end = weight = 0
    for line, more in lines:
        # End the unit before this line, if the line would make the unit larger than one and a half times the goal.
        if weight and weight + more > goal + goal // 2:
            shares.append(Share(begin, end, weight))
            begin, weight = end, 0
        end, weight = end + len(line), weight + max(1, more)
        if weight >= goal:
            shares.append(Share(begin, end, weight))
            begin, weight = end, 0
    if weight:
        shares.append(Share(begin, end, weight))
    return tuple(shares)


def write_list(path: Path, lines: Sequence[Weighed]) -> None:
    """Write a list that survives a power failure. Raises StateError if a different list exists already."""
    data = b"".join(line for line, _ in lines)
    if not make_record(path, data) and path.read_bytes() != data:
        raise StateError(f"{path} lists different units of work than before; give --fresh to start a new run")


def entered(path: Path, lines: Sequence[Weighed], goal: int, run: str) -> EnterList:
    """Return the request that creates units from a written list, for a pipeline with this path as its pattern."""
    if not lines:
        return EnterList(run)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        beginning, end = os.pread(descriptor, HEAD_BYTES, 0), bytes_before(descriptor, status.st_size)
    finally:
        os.close(descriptor)
    line = first_line(beginning)
    if status.st_size != sum(len(line) for line, _ in lines) or line is None:
        raise StateError(f"{path} is not the list that was written; give --fresh to start a new run")
    fingerprint = fingerprint_of(beginning, line)
    fingerprint = Fingerprint(fingerprint.first, len(beginning), digest(beginning), status.st_size, digest(end))
    inode = f"{status.st_dev}:{status.st_ino}"
    seen = SeenFile(path.name, 1, path.name, status.st_size, inode, head_text(fingerprint), tail=tail_text(fingerprint))
    return EnterList(run, seen, packed(lines, goal))
