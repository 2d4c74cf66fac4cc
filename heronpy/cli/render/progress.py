"""A progress line that shows why a command is waiting."""

from __future__ import annotations

import shutil
import sys
import unicodedata

from heronpy.cli.output import say

#: Interval of progress lines on outputs where a line cannot be overwritten.
SAY_WAITING_S = 10.0


#: Shorter waits print no line.
SAY_WAITING_AFTER_S = 2.0


def cut(text: str, columns: int) -> str:
    """Return the text cut to this number of terminal columns, with … at the end if it was cut."""
    used, fitting = 0, 0
    for index, letter in enumerate(text):
        used += _columns_of(letter)
        if used > columns:
            return text[:fitting] + "…" if columns > 0 else ""
        if used < columns:  # keep room for the …
            fitting = index + 1
    return text


def _columns_of(letter: str) -> int:
    """Return the columns of a character: 0 for a combining mark, 2 for a wide character, otherwise 1."""
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1


class Progress:
    """A line that is overwritten on a terminal; other outputs get an occasional line with the reason for waiting."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._say_at: float | None = None
        self._shown = ""
        self._frames = 0

    def show(self, text: str) -> None:
        if self._on:
            self._frames += 1
            wheel = "|/-\\"[self._frames // 3 % 4]
            # A line that wraps cannot be overwritten. The last column stays free, because some terminals wrap there.
            self._shown = cut(f"{wheel} {text}", shutil.get_terminal_size().columns - 1)
            sys.stderr.write(f"\r\x1b[K{self._shown}")
            sys.stderr.flush()

    def show_waiting(self, text: str, now: float) -> None:
        """Print, even without a terminal, that all tasks run but wait for an external system, which may take long."""
        self.show(text)
        if self._say_at is None:
            self._say_at = now + SAY_WAITING_AFTER_S
        if not self._on and now >= self._say_at:
            self._say_at = now + SAY_WAITING_S
            say(text)

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = ""
