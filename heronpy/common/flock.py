"""Locks on files, which a process holds until it releases them or dies."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def open_lock(file: Path) -> int:
    """Open a lock file, creating it if necessary; returns its descriptor."""
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def try_flock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Try to take the lock; returns whether this process holds it now."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def unlock(descriptor: int) -> None:
    """Release a lock and close its descriptor."""
    # Unlock explicitly, because a child that was just forked may hold a copy of the descriptor.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


@contextmanager
def locked(file: Path) -> Iterator[int]:
    """Wait for the lock on a file and hold it during a block; yields the descriptor of the file."""
    descriptor = open_lock(file)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        unlock(descriptor)


def lock_file(file: Path) -> int:
    """Lock a file that its holder may remove; returns its descriptor, or -1 while another process holds the lock."""
    descriptor = open_lock(file)
    try:
        # A lock on a file that the previous holder has removed has no effect.
        if try_flock(descriptor) and os.stat(file).st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return -1
