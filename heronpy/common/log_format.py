"""The format of one log record: writing, escaping and parsing.

A record is one line, in UTC,

    2026-11-21T00:10:21.123+0000 INFO  container_1_word_3 [logger] message

and each further line of its message starts with "  | ".  Output that bypassed logging, such as the last
message of crashing C code, is in lines that begin with "raw | ".  Invariants: no text from a user or a
tuple can forge a record or control a terminal, because line breaks and control characters are escaped
and such text never begins a line; the size of a record is bounded.
"""

from __future__ import annotations

import calendar
import re
import time
from functools import lru_cache
from typing import Final

from msgspec import Struct

CONTINUATION: Final = "  | "
RAW: Final = "raw | "
RAW_LOGGER: Final = "raw"
#: Logger of the record that separates the logs of two topologies with the same name.
DIVIDER_LOGGER: Final = "heron.submit"
MESSAGE_MAX: Final = 256 * 1024
_WORD_MAX: Final = 300
LEVEL_NAMES: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}
# C0 without tab and newline, DEL, C1, line separators, and the marks and fillers that reorder or hide text.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_SPACE: Final = re.compile(r"\s")
_HEAD: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})\+0000 "
    r"(\S{1,5}) {1,5}(\S+) \[([^\]]*)\] ?(.*)",
    re.DOTALL,
)


def escape(text: str) -> str:
    """Make control characters visible; tabs and newlines are kept."""
    return _UNSAFE.sub(_visible, text.replace("\r\n", "\n"))


def is_plain(text: str) -> bool:
    """Whether a name is one line without characters that control a terminal or hide or reorder text."""
    return not (_UNSAFE.search(text) or "\n" in text or "\t" in text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code == 13:
        return "\\r"
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


@lru_cache(maxsize=1024)
def word(text: str, closing: str = "") -> str:
    """Convert a name to one word without `closing`, for the head of a record."""
    kept = _SPACE.sub("_", escape(text[:_WORD_MAX]))
    return (kept.replace(closing, "_") if closing else kept) or "-"


def format_record(when: float, level: str, process: str, logger: str, message: str) -> str:
    """Format a record without the final newline; `when` is in seconds since 1970."""
    milliseconds = round(when * 1000)
    seconds = time.gmtime(milliseconds // 1000)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", seconds) + f".{milliseconds % 1000:03d}+0000"
    if len(message) > MESSAGE_MAX:
        message = f"{message[:MESSAGE_MAX]} ... ({len(message) - MESSAGE_MAX} more characters)"
    body = escape(message).rstrip("\n").replace("\n", "\n" + CONTINUATION)
    return f"{stamp} {level:<5} {word(process)} [{word(logger, ']')}] {body}"


class Record(Struct, frozen=True):
    """One record of a log; `level` is "" for output that bypassed logging, such as a crash dump.

    Raw output has `logger` "raw", and its message does not contain the mark "raw | ".
    """

    when: float
    level: str
    process: str
    logger: str
    message: str

    @property
    def text(self) -> str:
        """The record as it is shown to people."""
        if not self.level:
            return RAW + self.message if self.logger == RAW_LOGGER else self.message
        return format_record(self.when, self.level, self.process, self.logger, self.message)


def parse_line(line: str) -> Record | None:
    """Parse the record that starts with this line; returns None if the line starts no record."""
    match = _HEAD.fullmatch(line.rstrip("\n"))
    if match is None:
        return None
    *numbers, level, process, logger, message = match.groups()
    date = tuple(int(number) for number in numbers[:6])
    if not (1 <= date[1] <= 12 and 1 <= date[2] <= 31):
        return None
    when = calendar.timegm((*date, 0, 0, 0)) + int(numbers[6]) / 1000
    return Record(when, level, process, logger, escape(message))
