"""A page of memory that says at which line a worker was, for its successor to read when it has died.

It is a small file that is mapped: what was written survives the process, not the machine. An attempt writes it only
when the unit has failed before, because each line costs a write.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

from heronpy.common.folders import make_folders
from heronpy.ingest.ledger.requests import Line

_FORM = struct.Struct("<QQQQQ")
_SIZE = mmap.PAGESIZE


class Suspect(NamedTuple):
    """The unit and the attempt that were at a line."""

    unit: int
    attempt: int
    line: Line


class SuspectPage:
    """The page of one task."""

    def __init__(self, folder: Path, task: str) -> None:
        make_folders(folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(folder / f"{task}.page", flags, 0o600)
        try:
            os.ftruncate(descriptor, _SIZE)
            self._map = mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)

    def read(self) -> Suspect | None:
        """What the predecessor has written; None when it was at no line that is to be blamed."""
        unit, attempt, file, begin, end = _FORM.unpack_from(self._map)
        return Suspect(unit, attempt, Line(file, begin, end)) if unit and begin < end else None

    def write(self, unit: int, attempt: int, file: int, begin: int, end: int) -> None:
        """The attempt is at this line now."""
        _FORM.pack_into(self._map, 0, unit, attempt, file, begin, end)

    def clear(self) -> None:
        """It is at none."""
        _FORM.pack_into(self._map, 0, 0, 0, 0, 0, 0)
