"""Messages from a file reader to users, each reported once. Pure."""

from __future__ import annotations

from typing import NamedTuple

from heronpy.growing.below import UnfitFileError

#: Maximum number of remembered notices, because a file system may have any number of unreadable files.
_SAID_MAX = 10_000
#: Maximum number of notices that wait to be reported.
_WAITING_MAX = 100


class Notice(NamedTuple):
    text: str
    #: Whether lines are lost or unprocessed.
    is_error: bool


class Notices:
    """Notices that wait to be reported; notices beyond the limit are only counted."""

    def __init__(self) -> None:
        self._said: dict[str, None] = {}
        self._waiting: list[Notice] = []
        self._dropped = 0

    def say(self, text: str, is_error: bool = False) -> None:
        """Report this text once. Unprintable characters, which file names may contain, are escaped."""
        if not text.isprintable():
            text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
        if text in self._said:
            return
        if len(self._said) >= _SAID_MAX:
            del self._said[next(iter(self._said))]
        self._said[text] = None
        if len(self._waiting) < _WAITING_MAX:
            self._waiting.append(Notice(text, is_error))
        else:
            self._dropped += 1

    def refuse(self, path: str, error: OSError | UnfitFileError) -> None:
        if isinstance(error, OSError):
            self.say(f"{path} cannot be read ({error.strerror}); check its permissions", is_error=True)
        else:
            self.say(f"{path} {error}; make the pattern exclude it", is_error=True)

    def taken(self) -> list[Notice]:
        """Return all notices since the last call."""
        waiting, self._waiting = self._waiting, []
        if self._dropped:
            waiting.append(Notice(f"{self._dropped} more messages about files are not shown", True))
            self._dropped = 0
        return waiting
