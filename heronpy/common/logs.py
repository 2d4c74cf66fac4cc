"""Logs of a process: records and prints go to its stdout in one format.

The executor copies stdout into files (see `log_files`), and `log_format` defines the format; this module exports both.
Invariants: Logging never raises an exception in the caller. Buffers are bounded. Each printed line becomes one record.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import select
import sys
import threading
from typing import Any, Final

from heronpy.common import log_seal
from heronpy.common.errors import ConfigError
from heronpy.common.log_files import RotatingLog, log_processes, read_logs
from heronpy.common.log_format import LEVEL_NAMES, Record, escape, format_record, parse_line, word

__all__ = [
    "LogFormatter",
    "Record",
    "RotatingLog",
    "capture_prints",
    "escape",
    "format_record",
    "level_of",
    "log_processes",
    "parse_line",
    "read_logs",
    "setup",
]

_PARTIAL_MAX: Final = 64 * 1024
_USER_LEVELS: Final = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}


def level_of(name: str | None) -> int:
    """Return the `logging` level for a name given by user code; INFO if the name is empty or unknown."""
    return _USER_LEVELS.get((name or "info").lower(), logging.INFO)


class LogFormatter(logging.Formatter):
    """Formats a `logging` record as one record of the log."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text, without the final newline."""
        try:
            message = record.getMessage()
        except Exception as error:
            message = f"{record.msg!r} with arguments {record.args!r} cannot be formatted: {error!r}"
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        for extra in (record.exc_text, record.stack_info):
            if extra:
                message = f"{message}\n{extra}"
        level = LEVEL_NAMES.get(record.levelname, word(record.levelname.upper()[:5]))
        return format_record(record.created, level, self._process, record.name, message)


class _DescriptorHandler(logging.Handler):
    """Writes records directly to a descriptor, so that captured prints cannot loop back."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._seal = log_seal.current()

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):
            data = log_seal.sealed(self.format(record), self._seal).encode("utf-8", "backslashreplace")
            view = memoryview(data)
            while view:
                try:
                    view = view[os.write(self._descriptor, view) :]
                except BlockingIOError:  # user code may have made the pipe non-blocking
                    if not select.select([], [self._descriptor], [], 1.0)[1]:
                        return


def setup(process: str, level: str = "INFO", descriptor: int = 1) -> None:
    """Send all logging of this process to its stdout in heronpy's format.

    The call replaces the previous setup, so a forked child can call it again with its own name.
    """
    if level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
        raise ConfigError(f"unknown log level {level!r}; use DEBUG, INFO, WARNING, ERROR or CRITICAL")
    handler = _DescriptorHandler(descriptor)
    handler.setFormatter(LogFormatter(process))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    if root.level != getattr(logging, level.upper()):
        root.setLevel(level.upper())  # writes to all existing loggers
    logging.captureWarnings(True)


class _PrintCapture(io.TextIOBase):
    """A text stream that logs each line at INFO; each thread collects its own lines."""

    def __init__(self, name: str, descriptor: int) -> None:
        super().__init__()
        self._logger = logging.getLogger(name)
        self._descriptor = descriptor
        self._parts: dict[int, str] = {}
        self._emitting = threading.local()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    @property
    def buffer(self) -> _PrintBytes:
        """The target of `sys.stdout.buffer.write`, which adds to the same lines."""
        return _PrintBytes(self)

    def fileno(self) -> int:
        """Return the real descriptor, for faulthandler and subprocesses."""
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        thread = threading.get_ident()
        *lines, rest = (self._parts.pop(thread, "") + text).split("\n")
        for line in lines:
            self._log(line)
        while len(rest) > _PARTIAL_MAX:
            self._log(rest[:_PARTIAL_MAX])
            rest = rest[_PARTIAL_MAX:]
        if rest:
            self._parts[thread] = rest
        return len(text)

    def flush(self) -> None:
        """Log the unfinished lines of all threads, so that flushed text is visible."""
        for thread in list(self._parts):
            rest = self._parts.pop(thread, "")
            if rest:
                self._log(rest)

    def close(self) -> None:
        """Do nothing, because a library that closes stdout must not silence the process."""
        self.flush()

    def _log(self, line: str) -> None:
        if getattr(self._emitting, "busy", False):
            return  # a handler printed while it handled this line
        self._emitting.busy = True
        try:
            self._logger.info("%s", line.rstrip("\r"))
        finally:
            self._emitting.busy = False


class _PrintBytes(io.RawIOBase):
    def __init__(self, text: _PrintCapture) -> None:
        super().__init__()
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._text.write(bytes(data).decode("utf-8", "backslashreplace"))
        return len(data)

    def flush(self) -> None:
        self._text.flush()

    def fileno(self) -> int:
        return self._text.fileno()


def capture_prints() -> None:
    """Turn printed output of user code into records of the loggers "stdout" and "stderr"."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    sys.stdout = _PrintCapture("stdout", 1)
    sys.stderr = _PrintCapture("stderr", 2)
