"""Chunks of files as a unit has them, for tests."""

from __future__ import annotations

from pathlib import Path

from heronpy.growing.identity import HEAD_BYTES, Fingerprint, digest
from heronpy.ingest.fingerprints import head_text
from heronpy.ingest.ledger.requests import Chunk


def head_of(path: Path) -> str:
    data = path.read_bytes()[:HEAD_BYTES]
    return head_text(Fingerprint("first", len(data), digest(data), 0, ""))


def chunk(path: Path, begin: int, end: int) -> Chunk:
    return Chunk(1, path.name, 1, begin, end, head_of(path), path.name)
