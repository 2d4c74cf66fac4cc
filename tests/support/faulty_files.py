"""A file system that fails, or kills its process, at a chosen call that changes a file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

CHANGES = ("write", "fsync", "rename", "open", "mkdir", "link", "unlink", "rmdir")


class Killed(BaseException):
    """Simulates kill -9: no later call changes a file, not even clean-up code."""


class Faults:
    """Counts changing calls; call `at` fails with the error `number`, or kills the process if `number` is 0."""

    def __init__(self, at: int, number: int = 0, half_written: bool = False, lasting: bool = False) -> None:
        self.calls = 0
        self.dead = False
        self._at = at
        self._number = number
        self._half_written = half_written
        #: Whether all later calls of this kind also fail, as on a full disk.
        self._lasting = lasting

    @property
    def met(self) -> bool:
        """Whether the failing call was reached."""
        return self.calls >= self._at

    def wrap(self, name: str) -> Any:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if self.dead:
                raise Killed
            if name == "open" and not arguments[1] & os.O_CREAT:
                return real(*arguments, **options)
            self.calls += 1
            if self.calls == self._at or (self._lasting and self.calls > self._at and name in ("write", "fsync")):
                if name == "write" and self._half_written:
                    real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                if not self._number:
                    self.dead = True
                    raise Killed
                raise OSError(self._number, os.strerror(self._number))
            return real(*arguments, **options)

        return call


@contextmanager
def faults(at: int, number: int = 0, **options: Any) -> Iterator[Faults]:
    """Inject faults into the module `os`."""
    found = Faults(at, number, **options)
    with mock.patch.multiple(os, **{name: found.wrap(name) for name in CHANGES}):
        yield found


@contextmanager
def short_writes(most: int) -> Iterator[None]:
    """Make each write accept only a few bytes."""
    real = os.write
    with mock.patch.object(os, "write", lambda descriptor, data: real(descriptor, bytes(data)[:most])):
        yield


NAMES = {number: errno.errorcode[number] for number in (errno.ENOSPC, errno.EIO, errno.EROFS)}
