"""The output of a child process, which an event loop copies from a pipe into the child's bounded log file.

`ChildLog` belongs to a child's supervisor and outlives the child's incarnations. `OwnLog` is the file behind a
process's own stdout and stderr.

Memory per child is bounded. The last output of a dead child is written to its log before its end is reported. Each line
of the log either belongs to a record that the child has logged, or is marked as raw output (see `log_seal`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable

from heronpy.common.folders import open_private
from heronpy.common.log_files import rotate
from heronpy.common.log_format import DIVIDER_LOGGER, format_record
from heronpy.common.log_seal import Line, Separator, unmarked
from heronpy.common.logs import RotatingLog, parse_line

_CHUNK_BYTES = 1 << 16
#: Maximum number of chunks that are read from a busy child before other children are read.
_CHUNKS_PER_TURN = 4
_TAIL_BYTES = 8192
_CAPTURE_MAX_BYTES = 256 * 1024
#: A line of raw output is broken after this number of bytes; a line of a record is never broken.
_RAW_LINE_MAX_BYTES = 16 * 1024
_RECORD_LINE_MAX_BYTES = 2 * 1024 * 1024
#: Logger of the record that a supervisor adds when a child has ended.
ENDS_LOGGER = "heronpy.executor"
#: Levels of routine records.
_ROUTINE = ("DEBUG", "INFO")
#: Escaping may make a line up to this many times longer; the mark of a line adds up to this many bytes.
_ESCAPED_TIMES = 4
_MARK_BYTES = 16


class ChildLog:
    """The log of one process name, with a pipe for each incarnation; `echo` also receives each line."""

    def __init__(
        self,
        path: str,
        file_max_bytes: int,
        files_max: int,
        name: str,
        echo: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self._name = name
        self._echo = echo
        self._log = RotatingLog(path, file_max_bytes, files_max, name)
        self._loop = asyncio.get_running_loop()
        self._pipes: dict[int, Separator] = {}
        # No line is longer than a file: the remainder would continue at the beginning of the next file.
        room = (file_max_bytes - _MARK_BYTES) // _ESCAPED_TIMES
        self._line_limits = min(_RAW_LINE_MAX_BYTES, room), min(_RECORD_LINE_MAX_BYTES, room)
        self._tail = b""
        self._capture: bytearray | None = None
        #: Bytes logged so far.
        self.logged = 0

    def open_pipe(self) -> int:
        """Open a new pipe; returns its writing end for the child, which the caller must close."""
        self._tail = b""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        self._pipes[reader] = Separator(*self._line_limits)
        self._loop.add_reader(reader, self._readable, reader)
        return writer

    def _readable(self, fd: int, turns: int = _CHUNKS_PER_TURN) -> None:
        for _ in range(turns):
            try:
                data = os.read(fd, _CHUNK_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._close_pipe(fd)
                return
            self._take(self._pipes[fd].feed(data))

    def _take(self, lines: list[Line]) -> None:
        if not lines:
            return
        data = b"".join([line.logged for line in lines])
        self._tail = (self._tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        if self._capture is not None:
            raw = "".join([f"{line.text}\n" for line in lines if line.raw]).encode()
            self._capture += raw[: max(0, _CAPTURE_MAX_BYTES - len(self._capture))]
        self.logged += len(data)
        self._log.write(data)
        if self._echo is not None:
            self._echo(self._name, data)

    def last_line(self) -> str:
        """The last non-empty line, after emptying the pipes. Skips routine records, which do not explain an end."""
        for fd in list(self._pipes):
            self._readable(fd, turns=64)
        for separator in self._pipes.values():
            self._take(separator.finish())
        return last_line_of(self._tail, routine=False)

    def note(self, text: str) -> None:
        """Add a record from the supervisor after the child has ended; it does not count as the child's last line."""
        data = f"{format_record(time.time(), 'WARN', self._name, ENDS_LOGGER, text)}\n".encode()
        self._log.write(data)
        if self._echo is not None:
            self._echo(self._name, data)

    def mentions(self, words: tuple[str, ...]) -> bool:
        """Whether the last output of the current incarnation contains one of these texts."""
        tail = self._tail.decode(errors="replace")
        return any(word in tail for word in words)

    async def capture(self, mark: bytes, patience_s: float, quiet_s: float) -> str:
        """The new raw output, once it has the mark and has not grown for `quiet_s`; waits at most `patience_s`."""
        captured = self._capture = bytearray()
        deadline, size = self._loop.time() + patience_s, -1
        while self._loop.time() < deadline and (mark not in captured or len(captured) > size):
            size = len(captured)
            await asyncio.sleep(quiet_s)
        if self._capture is captured:
            self._capture = None
        return captured.decode(errors="replace")

    def _close_pipe(self, fd: int) -> None:
        separator = self._pipes.pop(fd, None)
        if separator is not None:
            self._take(separator.finish())
            self._loop.remove_reader(fd)
            os.close(fd)

    def close(self) -> None:
        for fd in list(self._pipes):
            self._readable(fd, turns=64)
            self._close_pipe(fd)
        self._log.close()


def last_line_in(path: str | os.PathLike[str]) -> str:
    """The last line of a process's own log, truncated to 1,024 characters; empty if the log cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return last_line_of(file.read())[:1024]
    except OSError:
        return ""


def last_line_of(tail: bytes, routine: bool = True) -> str:
    """The last non-empty line without time, level and process; skips the runtime's routine records unless `routine`."""
    for line in reversed(tail.decode(errors="replace").splitlines()):
        record = parse_line(line)
        if record is not None and record.logger == DIVIDER_LOGGER:
            return ""  # the lines before this divider belong to an earlier topology
        if record is not None and not routine and record.level in _ROUTINE and record.logger.startswith("heron"):
            continue
        text = (record.message if record else unmarked(line)).strip()
        if text:
            return text
    return ""


class OwnLog:
    """The log file behind this process's own stdout and stderr."""

    def __init__(self, path: str, file_max_bytes: int, files_max: int) -> None:
        self.path = path
        self._file_max_bytes = file_max_bytes
        self._files_max = files_max

    def open(self) -> int:
        return open_private(self.path, os.O_WRONLY | os.O_APPEND)

    def redirect(self) -> None:
        """Redirect stdout and stderr to the file."""
        fd = self.open()
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        os.close(fd)

    def rotate_if_large(self) -> None:
        """Rotate the file if it is too large; call this periodically. `files_max` includes the current file."""
        with contextlib.suppress(OSError):
            if os.fstat(1).st_size <= self._file_max_bytes:
                return
            rotate(self.path, self._files_max)
            self.redirect()
