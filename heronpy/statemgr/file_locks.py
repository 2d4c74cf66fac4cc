"""Locks on files: held by a process until it lets go or dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from heronpy.common.disk_space import is_full_error


def try_flock(descriptor: int, kind: int) -> bool:
    """Whether the lock was free; it is ours then."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def unlock(descriptor: int) -> None:
    """Let go of a lock and close its descriptor."""
    # Explicitly: a child that was forked this moment may hold a copy of the descriptor.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def try_lock(file: Path) -> int:
    """Descriptor of the lock when we got it, else -1.

    Where the disk is so full that no file can be made, the folder of the locks is locked in its place: whoever
    wants this lock now finds the same.
    """
    try:
        return _try_lock_file(file)
    except OSError as error:
        if not is_full_error(error):
            raise
    descriptor = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if try_flock(descriptor, fcntl.LOCK_EX):
        return descriptor
    os.close(descriptor)
    return -1


def is_directory(descriptor: int) -> bool:
    """Whether the lock is on a folder, which stays when it is let go."""
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


def _try_lock_file(file: Path) -> int:
    """Descriptor of the lock file when we got the lock, else -1."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if try_flock(descriptor, fcntl.LOCK_EX):
            # The previous holder removed the file it held: that lock is worth nothing any more.
            with contextlib.suppress(FileNotFoundError):
                if os.stat(file).st_ino == os.fstat(descriptor).st_ino:
                    with contextlib.suppress(OSError):  # a full disk: it is the lock of nobody known then
                        os.ftruncate(descriptor, 0)
                        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
                    return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return -1


def holder(file: Path) -> str:
    """Who holds a lock, for people."""
    with contextlib.suppress(OSError, ValueError):
        return f"process {int(file.read_text())}"
    return "another process"
