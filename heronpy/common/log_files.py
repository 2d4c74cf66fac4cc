"""Log files: the bounded, rotating writer and the reader that follows it.

The executor copies the output of a process into a `RotatingLog`: `P.log`, then `P.log.1`, `P.log.2`
and so on, newest first. Invariants: The files of one process never exceed the maximum number times the maximum size. If
the disk is full or not writable, log bytes are dropped and counted, and the caller gets no error. The reader sees every
byte once and in order across rotations, in bounded memory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from msgspec.structs import replace

from heronpy.common.errors import ConfigError
from heronpy.common.folders import make_folders
from heronpy.common.log_format import (
    CONTINUATION,
    DIVIDER_LOGGER,
    LEVEL_NAMES,
    MESSAGE_MAX,
    RAW,
    RAW_LOGGER,
    Record,
    escape,
    format_record,
    parse_line,
)

RECORD_LINES_MAX: Final = 10_000
_CHUNK: Final = 64 * 1024
#: Size of the end of a log that is read first, and the size above which the whole log is read in pieces instead.
TAIL_BYTES: Final = 128 * 1024
TAIL_BYTES_MAX: Final = 64 << 20
_LEVEL_NUMBERS: Final = {"DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
#: Device and inode of a file, the time of its last write in ns, and its path.
_File: TypeAlias = tuple[tuple[int, int], int, Path]
_PROCESS_NAME: Final = re.compile(r"[^\x00-\x1f/\\.][^\x00-\x1f/\\]*")


class RotatingLog:
    """A bounded log file: `path`, then path.1, path.2, ... up to `files_max` files in total.

    `write` accepts raw bytes and never raises. Bytes that cannot be written are counted in `discarded_bytes`;
    when writing works again, a line in the log states how many bytes were lost and why.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        max_bytes: int,
        files_max: int,
        process: str | None = None,
    ) -> None:
        self.path = Path(path)
        self.discarded_bytes = 0
        self._max_bytes = max(max_bytes, 1)
        self._files_max = max(files_max, 1)
        self._process = process or self.path.name.removesuffix(".log")
        self._descriptor = -1
        self._identity = (0, 0)
        self._size = 0
        self._mid_line = False
        self._unreported = 0
        self._reason = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append the bytes, rotating between lines where possible."""
        view = memoryview(data)
        try:
            self._open()
            if self._unreported and len(view):
                self._report()
            while view:
                room = self._max_bytes - self._size
                if len(view) > room:
                    room = self._cut(view, room)
                if room > 0:
                    view = view[self._append(view[:room]) :]
                else:
                    self._rotate()
        except OSError as error:
            self.discarded_bytes += len(view)
            self._unreported += len(view)
            self._reason = error.strerror or str(error)

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

    def _cut(self, view: memoryview, room: int) -> int:
        """Return the number of bytes to write to the current file if not all of them fit."""
        line_end = bytes(view[:room]).rfind(b"\n") + 1 if room > 0 else 0
        if line_end or room <= 0:
            return line_end
        # No line ends within the room. Split a line that began in this file or is too long for any file; start the
        # next file with any other line.
        return room if self._mid_line or self._size == 0 else 0

    def _append(self, view: memoryview) -> int:
        written = os.write(self._descriptor, view)
        if not written:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._size += written
        self._mid_line = view[written - 1] != 10
        return written

    def _open(self) -> None:
        """Open the file at `path` if it is not open, or if it was removed or replaced since it was opened."""
        if self._descriptor >= 0:
            try:
                status = os.stat(self.path, follow_symlinks=False)
                if (status.st_dev, status.st_ino) == self._identity:
                    return
            except FileNotFoundError:
                pass
            self.close()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._descriptor = os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            make_folders(self.path.parent)
            self._descriptor = os.open(self.path, flags, 0o600)
        status = os.fstat(self._descriptor)
        self._identity = (status.st_dev, status.st_ino)
        self._size = status.st_size
        self._mid_line = self._size > 0 and os.pread(self._descriptor, 1, self._size - 1) != b"\n"

    def _rotate(self) -> None:
        rotate(self.path, self._files_max)
        self.close()
        self._open()

    def _report(self) -> None:
        """Log how many bytes were discarded; raises OSError while writing still fails."""
        message = f"{self._unreported} bytes of this log were discarded: {self._reason}"
        text = format_record(time.time(), "WARN", self._process, "log", message)
        line = (("\n" if self._mid_line else "") + text + "\n").encode()
        if self._size and self._size + len(line) > self._max_bytes:
            self._rotate()
        if self._append(memoryview(line)) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._unreported = 0


def rotate(path: str | os.PathLike[str], files_max: int) -> None:
    """Free `path` for a new file: `path` becomes path.1, path.1 becomes path.2, and so on.

    At most `files_max` files will exist, including the new file. Raises OSError if a file cannot be renamed.
    """
    for number in range(files_max - 2, 0, -1):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}.{number}", f"{path}.{number + 1}")
    if files_max > 1:
        os.replace(path, f"{path}.1")
    else:
        os.unlink(path)


def divide_logs(directory: str | os.PathLike[str], when: float, message: str) -> None:
    """End every nonempty log in the directory with this record, because later records belong to another topology.

    A log that already ends with such a record is not changed. Logs that cannot be written are skipped.
    """
    for process in log_processes(directory):
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with contextlib.suppress(OSError):
            descriptor = os.open(Path(directory) / f"{process}.log", flags)
            try:
                _divide(descriptor, process, when, message)
            finally:
                os.close(descriptor)


def _divide(descriptor: int, process: str, when: float, message: str) -> None:
    size = os.fstat(descriptor).st_size
    end = os.pread(descriptor, 4096, max(0, size - 4096)) if size else b""
    lines = end.decode(errors="replace").splitlines()
    last = parse_line(lines[-1]) if lines else None
    if lines and (last is None or last.logger != DIVIDER_LOGGER):
        text = format_record(when, "INFO", process, DIVIDER_LOGGER, f"---- {message} ----")
        os.write(descriptor, (("" if end.endswith(b"\n") else "\n") + text + "\n").encode())


def log_processes(directory: str | os.PathLike[str]) -> list[str]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(name.removesuffix(".log") for name in names if name.endswith(".log"))


def read_logs(
    directory: str | os.PathLike[str],
    process: str,
    since: float | None = None,
    level: str | None = None,
    follow: bool = False,
    stop: Callable[[], bool] | None = None,
    poll_s: float = 0.1,
) -> Iterator[Record]:
    """Yield the records of a process's log, oldest first, across rotated files.

    `since` (seconds since 1970) and `level` exclude older and less severe records. Output that
    bypassed logging has the time of the previous record, and no level excludes it.
    `follow` waits for more records, across rotations, until `stop()` is true.
    """
    if not _PROCESS_NAME.fullmatch(process) or len(process) > 200:
        raise ConfigError(f"{escape(process)!r} is not the name of a process")
    path = Path(directory) / f"{process}.log"
    if not follow and not _files(path):
        known = ", ".join(log_processes(directory)) or "none"
        raise ConfigError(f"there is no log of {process!r} in {directory}; known logs: {known}")
    shown = level_filter(level)
    for record in _records(_lines(path, follow, stop or (lambda: False), poll_s), process):
        if since is not None and record.when < since:
            continue
        if shown(record.level):
            yield record


def last_logs(
    directory: str | os.PathLike[str],
    process: str,
    count: int,
    since: float | None = None,
    level: str | None = None,
    wanted: Callable[[Record], bool] = lambda record: True,
) -> list[Record]:
    """Return the last `count` wanted records of `read_logs`, oldest first, reading from the end of the log."""
    path, shown, size = Path(directory) / f"{process}.log", level_filter(level), TAIL_BYTES
    while 0 < count and size <= TAIL_BYTES_MAX:
        lines, whole = _tail(path, size)
        records = list(_records(iter(lines), process))
        found = [one for one in records if (since is None or one.when >= since) and shown(one.level) and wanted(one)]
        begins_before = since is not None and bool(records) and records[0].when < since
        if whole or begins_before or len(found) >= count:
            return found[-count:]
        size *= 8
    return list(deque(filter(wanted, read_logs(directory, process, since, level)), maxlen=count)) if count else []


def _tail(path: Path, size: int) -> tuple[list[str], bool]:
    """Return the lines in the last `size` bytes, from the first record on, and whether they are the whole log."""
    parts: list[bytes] = []
    known: set[tuple[int, int]] = set()
    # Read the newest file first: a file that is rotated in between is read twice, and no file is missed.
    for _, _, file in reversed(_files(path)):
        with contextlib.suppress(OSError):
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            with open(descriptor, "rb") as opened:
                status = os.fstat(descriptor)
                if (status.st_dev, status.st_ino) in known:
                    continue
                known.add((status.st_dev, status.st_ino))
                opened.seek(max(0, status.st_size - size))
                parts.insert(0, opened.read(size))
                size -= len(parts[0])
        if size <= 0:
            break
    lines = [line.decode("utf-8", "backslashreplace") for line in b"".join(parts).split(b"\n")]
    if not lines[-1]:
        lines.pop()
    if size > 0:
        return lines, True
    first = next((number for number, line in enumerate(lines) if parse_line(line) is not None), len(lines))
    return lines[first:], False


def level_filter(level: str | None) -> Callable[[str], bool]:
    """Return a function that checks whether a level is at least `level`; an empty level always passes. Raises
    ConfigError if `level` is unknown.
    """
    lowest = _level_number(level) if level else 0
    return lambda given: not given or _LEVEL_NUMBERS.get(given, 20) >= lowest


def _level_number(level: str) -> int:
    name = LEVEL_NAMES.get(level.upper(), level.upper())
    if name not in _LEVEL_NUMBERS:
        raise ConfigError(f"unknown log level {level!r}; use DEBUG, INFO, WARNING, ERROR or CRITICAL")
    return _LEVEL_NUMBERS[name]


def _other(line: str, when: float, process: str) -> Record:
    """Return a record for output that bypassed logging."""
    if line.startswith(RAW):
        return Record(when, "", process, RAW_LOGGER, escape(line.removeprefix(RAW)))
    return Record(when, "", "", "", escape(line))


def _records(lines: Iterator[str | None], process: str) -> Iterator[Record]:
    """Join lines into records; None means that there are no more lines at the moment."""
    current: Record | None = None
    more: list[str] = []
    when = 0.0

    def complete() -> Iterator[Record]:
        nonlocal current
        if current is not None:
            yield replace(current, message="\n".join([current.message, *more])) if more else current
        current = None
        more.clear()

    for line in lines:
        if line is None:
            yield from complete()
        elif current and line.startswith(CONTINUATION) and len(more) < RECORD_LINES_MAX:
            more.append(escape(line.removeprefix(CONTINUATION)))
        else:
            yield from complete()
            current = parse_line(line) or _other(line, when, process)
            when = current.when
    yield from complete()


def _files(path: Path) -> list[_File]:
    """Return the log's files, from oldest to newest."""
    pattern = re.compile(re.escape(path.name) + r"\.(\d{1,4})")
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        names = os.listdir(path.parent)
    highest = max((int(match[1]) for name in names if (match := pattern.fullmatch(name))), default=0)
    found: dict[tuple[int, int], tuple[int, Path]] = {}
    # Begin with the newest file, and continue beyond the highest number: a rotation moves a file to a higher number.
    number, there = 0, True
    while number <= highest or there:
        file, there = (path.with_name(f"{path.name}.{number}") if number else path), False
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(file, follow_symlinks=False)
            there = True
            if stat.S_ISREG(status.st_mode):
                found[status.st_dev, status.st_ino] = (status.st_mtime_ns, file)
        number += 1
    return [(identity, *found[identity]) for identity in reversed(found)]


def _lines(path: Path, follow: bool, stop: Callable[[], bool], poll_s: float) -> Iterator[str | None]:
    """Yield lines across files, and None after the last line that is currently available."""
    rest = b""
    for chunk in _chunks(path, follow, stop, poll_s):
        if chunk is None:
            yield None
            continue
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "backslashreplace")
        if len(rest) > MESSAGE_MAX * 4:
            yield rest.decode("utf-8", "backslashreplace")
            rest = RAW.encode()  # the rest does not begin a line, so it is never a record
    if rest:
        yield rest.decode("utf-8", "backslashreplace")


def _open_next(path: Path, descriptor: int) -> int:
    """Open the file after the open file, or the oldest file if none is open; returns -1 if there is no next file.

    If the open file was rotated away or removed, the next file is the oldest file that was written later.
    """
    following = None
    while following is None:
        following = _opened(_after(_files(path), descriptor))
    return following


def _after(files: list[_File], descriptor: int) -> list[_File]:
    if descriptor < 0:
        return files
    status = os.fstat(descriptor)
    for at, (identity, _, _) in enumerate(files):
        if identity == (status.st_dev, status.st_ino):
            return files[at + 1 :]
    return [file for file in files if file[1] >= status.st_mtime_ns]


def _opened(files: list[_File]) -> int | None:
    """Open the first file that can be opened; returns -1 if there is no file, None if a rotation has moved the file."""
    for identity, _, file in files:
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError:
            continue
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) == identity:
            return descriptor
        os.close(descriptor)
        return None
    return -1


def _chunks(path: Path, follow: bool, stop: Callable[[], bool], poll_s: float) -> Iterator[bytes | None]:
    """Yield the bytes of all files in order, and None whenever all available bytes have been read."""
    files = _files(path)
    newest = files[-1][0] if files and not follow else None
    descriptor = _open_next(path, -1)
    try:
        while True:
            if descriptor >= 0:
                yield from _read_on(descriptor)
                status = os.fstat(descriptor)
                if newest == (status.st_dev, status.st_ino):
                    return  # the file that was newest at the beginning has been read
                if newest is not None and all(file[0] != newest for file in _files(path)):
                    # this file and all older files are gone; otherwise this loop could follow a fast writer forever
                    return
            following = _open_next(path, descriptor)
            if following >= 0:
                if descriptor >= 0:
                    yield from _read_on(descriptor)  # bytes that were written just before the rotation
                    os.close(descriptor)
                descriptor = following
            elif not follow or stop():
                return
            else:
                yield None
                time.sleep(poll_s)
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _read_on(descriptor: int) -> Iterator[bytes]:
    if os.lseek(descriptor, 0, os.SEEK_CUR) > os.fstat(descriptor).st_size:
        os.lseek(descriptor, 0, os.SEEK_SET)  # the file was truncated in place
    while chunk := os.read(descriptor, _CHUNK):
        yield chunk
