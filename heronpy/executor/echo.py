"""Copies a container's logs to the standard output of its first process, for `kubectl logs` and Slurm's job output.

Each line begins with the name of its process, and lines from different processes never mix. Log writers never wait for
the reader of the output. The queue of lines is bounded, and omitted lines are counted and reported in the output. If
the output is a file, its size limit is that of all log files of one process together.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections import deque

from heronpy.common.logs import LogFormatter

log = logging.getLogger("heronpy.executor")

MARK = b" | "
#: Maximum number of bytes in lines that wait to be written.
WAITING_MAX_BYTES = 1 << 20
#: A write of at most this size is atomic on a pipe; longer lines are split.
PIECE_MAX_BYTES = 4096
CLOSE_S = 1.0
#: The file descriptor of the first process's output in the executor.
ECHO_FD = 4


class Echo:
    """Writes log lines in a thread; takes over `fd`. `file_max_bytes` limits an output file, which is never rotated."""

    def __init__(self, fd: int, name: str, file_max_bytes: int) -> None:
        self._fd = fd
        self._name = name
        self._max_bytes = file_max_bytes if stat.S_ISREG(os.fstat(fd).st_mode) else None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        #: Number of omitted lines, and the number of those not yet reported in the output.
        self.left_out = 0
        self._untold = 0
        self._full = self._over = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._write_all, name="echo", daemon=True)
        self._thread.start()

    def put(self, name: str, lines: bytes) -> None:
        """Queue complete lines of a process's log; never waits."""
        pieces = [piece for line in lines.splitlines() for piece in _pieces(name.encode() + MARK, line)]
        with self._wake:
            for piece in pieces:
                if self._full or self._over or self._waiting_bytes + len(piece) > WAITING_MAX_BYTES:
                    self.left_out += 1
                    self._untold += 1
                    continue
                self._waiting.append(piece)
                self._waiting_bytes += len(piece)
            self._wake.notify()

    def handler(self, process: str) -> logging.Handler:
        """A logging handler for this process's own records."""
        found = _Handler(self, process)
        found.setFormatter(LogFormatter(process))
        return found

    def _write_all(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._over:
                    self._wake.wait()
                if not self._waiting:
                    return
                text = b""
                while self._waiting and len(text) + len(self._waiting[0]) <= PIECE_MAX_BYTES:
                    text += self._waiting.popleft()
                self._waiting_bytes -= len(text)
                untold, self._untold = (self._untold, 0) if not self._waiting and not self._full else (0, self._untold)
            if not self._write(text):
                return
            if untold and not self._say(f"{untold} lines were left out, because this output is read too slowly"):
                return

    def _say(self, text: str) -> bool:
        return self._write(f"{self._name} | echo: {text}\n".encode())

    def _write(self, text: bytes) -> bool:
        """Write a text; returns False if the file is full."""
        full = self._max_bytes is not None and os.fstat(self._fd).st_size + len(text) > self._max_bytes
        if full and os.fstat(self._fd).st_size <= (self._max_bytes or 0):
            said = "this file has reached its maximum size and ends here; the log files continue"
            text = f"{self._name} | echo: {said}\n".encode()
        elif full:
            text = b""  # another process has reported it
        try:
            view = memoryview(text)
            while view:
                view = view[os.write(self._fd, view) :]
            if not full:
                return True
        except OSError as error:  # no reader, or the disk is full
            log.warning("logs are no longer written to the first process's standard output: %s", error.strerror)
        with self._wake:
            self._full = True
            self.left_out += len(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0
        return False

    def close(self, within_s: float = CLOSE_S) -> None:
        """Accept no further lines, and write the queued lines for up to `within_s` seconds. Idempotent."""
        with self._wake:
            self._over = True
            self._wake.notify()
        self._thread.join(within_s)
        if self._thread.is_alive():
            with self._wake:
                self.left_out += len(self._waiting)
                self._waiting.clear()
        elif self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Handler(logging.Handler):
    def __init__(self, echo: Echo, process: str) -> None:
        super().__init__()
        self._echo, self._process = echo, process

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._echo.put(self._process, self.format(record).encode("utf-8", "backslashreplace"))
        except Exception:  # logging never harms its caller
            self.handleError(record)


def _pieces(mark: bytes, line: bytes) -> list[bytes]:
    """Split a line into pieces that begin with the mark and are small enough for one write."""
    most = PIECE_MAX_BYTES - len(mark) - 1
    return [mark + line[at : at + most] + b"\n" for at in range(0, max(len(line), 1), most)]


def open_echo(fd: int, name: str, file_max_bytes: int, files_max: int) -> Echo | None:
    """An echo to the file descriptor that this process was given; None if `fd` is negative."""
    if fd < 0:
        return None
    os.set_inheritable(fd, False)
    found = Echo(fd, name, file_max_bytes * files_max)
    logging.getLogger().addHandler(found.handler(name))
    return found
