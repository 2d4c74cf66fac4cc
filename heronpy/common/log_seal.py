"""Separates the records of a process's own logging from its other output.

A child's stdout and stderr are one pipe, to which user code, C extensions and subprocesses also write without
Python's streams. Before any such code runs, the child declares a random seal at the start of the pipe; from
then on each line of a record begins with the seal. The reader treats a line without the seal as raw output: the line
is marked and escaped, and never counts as a record.

Invariants: the seal is declared once, in the first line; the length of a line of raw output and of the buffered
part of an unfinished line is bounded.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import Struct

from heronpy.common.log_format import CONTINUATION, RAW, escape

#: Environment variable that passes the seal to a new interpreter, which removes the variable immediately.
VARIABLE: Final = "HERON_LOG_SEAL"
# A character of the seal that records never contain, because they are escaped.
_MARK: Final = "\x1e"
_DECLARATION: Final = b"\x1eheron-log "
_seal = ""


def declare(descriptor: int) -> None:
    """Choose a seal for this process and declare it on the pipe; call this before any other write to the pipe."""
    global _seal
    token = os.urandom(12).hex()
    _seal = f"{_MARK}{token} "
    os.write(descriptor, _DECLARATION + token.encode() + b"\n")


def hand_on() -> dict[str, str]:
    """Return the environment variables that pass the seal of this process to a new interpreter."""
    return {VARIABLE: _seal} if _seal else {}


def current() -> str:
    """Return the prefix of each line of this process's records; "" if no seal was declared."""
    global _seal
    _seal = os.environ.pop(VARIABLE, "") or _seal
    return _seal


def sealed(record: str, seal: str) -> str:
    """Prefix a formatted record with the seal and add the final newline, for the pipe."""
    return f"{seal}{record}\n" if "\n" not in record else seal + record.replace("\n", "\n" + seal) + "\n"


class Line(Struct, frozen=True):
    """One line of a child's output, escaped, without its newline."""

    text: str
    raw: bool

    @property
    def logged(self) -> bytes:
        """Return the line as it is written to the log file."""
        return f"{RAW if self.raw else ''}{self.text}\n".encode("utf-8", "backslashreplace")


class Separator:
    """Separates the records of one incarnation of a child from its raw output. Pure."""

    def __init__(self, raw_max: int, record_max: int) -> None:
        """Set the maximum bytes of raw lines and of records; a longer line continues as a separate raw line."""
        self._seal: bytes | None = None
        self._raw_max, self._record_max = max(raw_max, 1), max(record_max, 1)
        self._rest = b""

    def feed(self, data: bytes) -> list[Line]:
        """Add data, and return the lines that are now complete."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        found = [line for part in whole for line in self._lines(part)]
        while len(self._rest) > self._limit_of(self._rest):
            at = _boundary(self._rest, self._limit_of(self._rest))
            begun, self._rest = self._rest[:at], self._rest[at:]
            found += self._lines(begun)
        return found

    def finish(self) -> list[Line]:
        """Return the unfinished line; a continuation of it will be raw output."""
        rest, self._rest = self._rest, b""
        return self._lines(rest) if rest else []

    def _limit_of(self, line: bytes) -> int:
        return self._record_max if self._seal and line.startswith(self._seal) else self._raw_max

    def _lines(self, line: bytes) -> list[Line]:
        if self._seal is None:
            declared, token = line[: len(_DECLARATION)] == _DECLARATION, line[len(_DECLARATION) :]
            self._seal = _MARK.encode() + token + b" " if declared and token else b""
            if self._seal:
                return []
        if not self._seal:
            return self._cut(line, raw=True)
        # A record in the middle of a line follows raw output without a newline.
        before, *records = line.split(self._seal)
        found = self._cut(before, raw=True) if before or not records else []
        return found + [part for record in records for part in self._cut(record, raw=False)]

    def _cut(self, line: bytes, raw: bool) -> list[Line]:
        found = []
        limit = self._raw_max if raw else self._record_max
        while len(line) > limit:
            at = _boundary(line, limit)
            found.append(Line(_shown(line[:at]), raw))
            line, raw, limit = line[at:], True, self._raw_max
        return [*found, Line(_shown(line), raw)]


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "backslashreplace").removesuffix("\r")
    # Keep the indent of a continuation of a record, because tabs and spaces are harmless.
    return escape(text)


def _boundary(line: bytes, limit: int) -> int:
    """Return a position near the limit and above 0 that does not split a character."""
    for at in range(limit, max(limit - 4, 0), -1):
        if line[at] & 0xC0 != 0x80:
            return at
    return limit


def unmarked(line: str) -> str:
    """Remove the mark of raw output or of a continuation from a line of a log."""
    return line.removeprefix(RAW).removeprefix(CONTINUATION)
