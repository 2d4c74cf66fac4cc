"""Detects full disks, and keeps a small reserve for writes that must still succeed."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

RESERVE_BYTES: Final = 1 << 20
#: Minimum bytes that a file or a directory entry occupies.
_BLOCK_BYTES: Final = 4096
#: Free bytes below which a disk counts as full, because growing data would fill it immediately.
FULL_BELOW_BYTES: Final = 256 * 1024


def is_full_error(error: OSError) -> bool:
    """Whether a call failed because the disk or this user's quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def full_folder(*folders: str | os.PathLike[str]) -> Path | None:
    """Return the first of these folders whose disk is full, or None; missing folders are skipped."""
    for folder in map(Path, folders):
        with contextlib.suppress(OSError):
            found = os.statvfs(folder)
            if found.f_bavail * found.f_frsize < FULL_BELOW_BYTES:
                return folder
    return None


class Reserve:
    """A file whose space is released when a write finds no space, so that small writes still succeed on a full disk.

    The caller must hold a lock that excludes other users of the same file.
    """

    def __init__(self, file: Path, size_bytes: int = RESERVE_BYTES) -> None:
        self._file = file
        self._size = size_bytes

    def keep(self) -> None:
        """Reserve the space, or as much of it as is available; costs one stat call if the space is already reserved."""
        with contextlib.suppress(OSError):
            if self._held() >= self._size:
                return
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                # Write block by block: if space runs out, one large write would reserve nothing.
                for step in (self._size, _BLOCK_BYTES * 8, _BLOCK_BYTES):
                    with contextlib.suppress(OSError):
                        while (held := os.fstat(descriptor).st_size) < self._size:
                            os.posix_fallocate(descriptor, held, min(step, self._size - held))
            finally:
                os.close(descriptor)

    def during(self, action: Callable[[], T], needs_bytes: int) -> T:
        """Call `action` and return its result; if it runs out of space, release some of the reserve and repeat it."""
        while True:
            try:
                return action()
            except OSError as error:
                if not is_full_error(error) or not self._give(needs_bytes + 2 * _BLOCK_BYTES):
                    raise

    def _held(self) -> int:
        try:
            return self._file.stat().st_size
        except FileNotFoundError:
            return 0

    def _give(self, wanted_bytes: int) -> bool:
        """Release `wanted_bytes` of the reserve, or all of it if smaller; returns False if the reserve was empty."""
        try:
            held = self._held()
            if held:
                os.truncate(self._file, max(0, held - wanted_bytes) // _BLOCK_BYTES * _BLOCK_BYTES)
        except OSError:
            return False
        return held > 0
