"""A piece of a log file as lines. Pure."""

from __future__ import annotations

from heronpy.common.log_format import CONTINUATION, DIVIDER_LOGGER, RAW, escape, parse_line
from heronpy.views.files import LogLine


def cut(data: bytes, offset: int, size: int, begins_line: bool) -> tuple[bytes, int, int]:
    """Whole lines of a piece, and where they begin and end in the file.

    The end of a line that began before the piece is left out, unless the caller knows that the piece begins one; so is
    the beginning of a line that goes on after it, unless the piece has nothing else.
    """
    begin = 0
    if not begins_line and offset:
        newline = data.find(b"\n")
        begin = newline + 1 if 0 <= newline < len(data) - 1 else 0
    end = len(data)
    if offset + len(data) < size or not data.endswith(b"\n"):
        newline = data.rfind(b"\n")
        end = newline + 1 if newline >= begin else len(data)
    return data[begin:end], offset + begin, offset + end


def of_last_run(data: bytes) -> int:
    """Where the lines begin that no divider stands behind: those before it are of earlier topologies of the name."""
    place = data.rfind(b"---- ")
    while place >= 0:
        begin, end = data.rfind(b"\n", 0, place) + 1, data.find(b"\n", place)
        record = parse_line(data[begin : end if end >= 0 else len(data)].decode("utf-8", "backslashreplace"))
        if record is not None and record.logger == DIVIDER_LOGGER:
            return end + 1 if end >= 0 else len(data)
        place = data.rfind(b"---- ", 0, place)
    return 0


def lines_of(data: bytes) -> list[LogLine]:
    """The records, oldest first; lines that continue a record are part of it."""
    found: list[LogLine] = []
    if not data:
        return found
    for text in data.decode("utf-8", "backslashreplace").split("\n")[: None if not data.endswith(b"\n") else -1]:
        if text.startswith(CONTINUATION) and found:
            found[-1].text += "\n" + escape(text.removeprefix(CONTINUATION))
            continue
        record = parse_line(text)
        if record is not None:
            found.append(LogLine(at=record.when, level=record.level, logger=record.logger, text=record.message))
        else:
            shown = text.removeprefix(CONTINUATION).removeprefix(RAW)
            found.append(LogLine(at=None, level=None, logger="", text=escape(shown)))
    return found
