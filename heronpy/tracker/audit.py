"""Who changed what, and who was refused: one JSON object per line, in a file that only its user reads.

Bounded: the file is rotated at `FILE_MAX_BYTES` and `FILES_MAX` are kept; of refusals at most `REFUSALS_PER_MINUTE` are
written, the rest are counted in the next one. A full disk stops no request; what could not be written is counted.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from heronpy.common.folders import make_folders, open_private

log = logging.getLogger("heronpy.tracker")

FILE = "audit.jsonl"
FILE_MAX_BYTES = 8 << 20
FILES_MAX = 5
REFUSALS_PER_MINUTE = 60
TEXT_MAX = 500


class Audit:
    """The audit of one tracker. `now` gives seconds since 1970."""

    def __init__(self, folder: Path, now: Callable[[], float]) -> None:
        self.path = folder / FILE
        self._now = now
        self._minute = 0
        self._refusals = self._unwritten = 0
        #: Entries that the disk refused.
        self.lost = 0

    def change(self, who: str, action: str, topology: str, asked: dict[str, Any], outcome: str, ok: bool) -> None:
        """Somebody changed something, or tried to: what was asked for and what became of it."""
        self._write({"what": action, "who": who, "topology": topology, "asked": asked, "ok": ok, "outcome": outcome})

    def refused(self, who: str, method: str, path: str, why: str) -> None:
        """The guard refused a request."""
        minute = int(self._now() // 60)
        if minute != self._minute:
            self._minute, self._refusals = minute, 0
        self._refusals += 1
        if self._refusals > REFUSALS_PER_MINUTE:
            self._unwritten += 1
            return
        entry = {"what": "refused", "who": who, "method": method, "path": path, "why": why}
        if self._unwritten:
            entry["others"], self._unwritten = str(self._unwritten), 0
        self._write(entry)

    def _write(self, entry: dict[str, Any]) -> None:
        shown = {key: value[:TEXT_MAX] if isinstance(value, str) else value for key, value in entry.items()}
        line = msgspec.json.encode({"at": self._now(), **shown}) + b"\n"
        try:
            make_folders(self.path.parent)
            self._rotate(len(line))
            descriptor = open_private(self.path, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            self.lost += 1
            if str(self.lost).rstrip("0") == "1":  # 1, 10, 100, ...
                log.error("the audit %s cannot be written (%s); %d entries lost so far", self.path, error, self.lost)

    def _rotate(self, more: int) -> None:
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            return
        if size + more <= FILE_MAX_BYTES:
            return
        for number in range(FILES_MAX - 1, 0, -1):
            older = self.path.with_name(f"{FILE}.{number}")
            newer = self.path if number == 1 else self.path.with_name(f"{FILE}.{number - 1}")
            if newer.exists():
                os.replace(newer, older)
