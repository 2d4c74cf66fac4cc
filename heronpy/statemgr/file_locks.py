"""Locks on files: held by a process until it releases them or dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from heronpy.common.disk_space import is_full_error


def try_flock(descriptor: int, kind: int) -> bool:
    """Try to take the lock; True if we hold it now."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def unlock(descriptor: int) -> None:
    """Release a lock and close its descriptor."""
    # Explicitly: a child that was forked this moment may hold a copy of the descriptor.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def try_lock(file: Path) -> int:
    """Descriptor of the lock if we got it, else -1.

    If the disk is so full that no file can be created, the folder of the locks is locked instead: all other
    processes that want this lock do the same.
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
    """Whether the lock is on a folder, which stays when the lock is released."""
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


def _try_lock_file(file: Path) -> int:
    """Descriptor of the lock file if we got the lock, else -1."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if try_flock(descriptor, fcntl.LOCK_EX):
            # The previous holder removed the file that it held: a lock on it is void.
            with contextlib.suppress(FileNotFoundError):
                if os.stat(file).st_ino == os.fstat(descriptor).st_ino:
                    with contextlib.suppress(OSError):  # a full disk: the holder stays unknown
                        os.ftruncate(descriptor, 0)
                        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
                    return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return -1


def holder(file: Path) -> str:
    """The holder of a lock, for messages."""
    with contextlib.suppress(OSError, ValueError):
        return f"process {int(file.read_text())}"
    return "another process"
