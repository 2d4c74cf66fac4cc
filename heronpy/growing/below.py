"""Opens files of unknown origin: only below a folder, never through a link, and without blocking."""

from __future__ import annotations

import os
import stat

from heronpy.common.errors import HeronError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class UnfitFileError(HeronError):
    """A path exists but is not a readable file."""


def open_below(root: str, key: str) -> int:
    """Open a regular file below a folder for reading; return its descriptor.

    `key` is the file's path below `root`. No part of `key` may be a link; the path of the root may contain links,
    because the user has chosen the root. Raises OSError if the file cannot be opened, and UnfitFileError for
    anything but a regular file.
    """
    folders = key.split("/")
    name = folders.pop()
    if any(part in ("", ".", "..") for part in (*folders, name)):
        raise UnfitFileError(f"{key!r} is not a path below {root}")
    here = os.open(root, _FOLDER)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = inner
        descriptor = os.open(name, _FILE, dir_fd=here)
    finally:
        os.close(here)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnfitFileError("is not a regular file")
    return descriptor
