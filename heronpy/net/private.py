"""Folders and files that only the user can access, such as sockets and keys.

A socket in the file system is as safe as its folder: libzmq accepts every process that can enter the folder. Folders
with sockets or keys therefore have mode 0700. A folder that belongs to another user, that others may enter, or that is
a symbolic link is refused and never corrected, because another user may have planted its contents.

Secrets that an orchestrator mounts belong to root and consist of links, so a different rule applies: see
`read_mounted`.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from heronpy.common import folders
from heronpy.common.errors import ConfigError

#: Rights of group and others.
_OTHERS = 0o077
#: Rights that neither the group nor others may have on a file of a mounted secret. The group may read the file.
_NOT_MOUNTED = 0o037


def make_private(folder: str | os.PathLike[str]) -> None:
    """Create a folder and its missing parents, private to this user; raises ConfigError if another user owns it."""
    folders.make_folders(folder)
    check_private(folder)


def check_private(folder: str | os.PathLike[str]) -> None:
    """Raise ConfigError unless the folder belongs to this user and no other user may enter it."""
    try:
        found = os.lstat(folder)
    except OSError as error:
        raise ConfigError(f"cannot check folder {folder}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & _OTHERS:
        raise ConfigError(
            f"{folder} does not belong to you alone: {_why(found)};"
            " remove it, or make it a folder that you own with mode 0700"
        )


def _why(found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return "it is a symbolic link"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    if found.st_uid != os.getuid():
        return f"it belongs to {folders.another_user(found.st_uid)}"
    return f"other users can enter it (mode {stat.S_IMODE(found.st_mode):04o})"


def read_private(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Read a small file; raises ConfigError unless only this user may read it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & _OTHERS:
            raise ConfigError(f"{path} must be readable by you alone; set its mode to 0600")
        data = os.read(descriptor, max_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > max_bytes:
        raise ConfigError(f"{path} is larger than {max_bytes} bytes")
    return data


def is_mounted(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is a mounted secret: it belongs to root or this user, and is on a read-only file system."""
    try:
        found = os.lstat(folder)
        read_only = bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError:
        return False
    return read_only and stat.S_ISDIR(found.st_mode) and found.st_uid in (0, os.getuid())


def read_mounted(folder: str | os.PathLike[str], name: str, max_bytes: int) -> bytes:
    """Read a small file of a mounted secret (`is_mounted`); raises ConfigError unless only this user can read it.

    Links are followed only inside the folder. The file must belong to root or this user. The mount's group, which the
    orchestrator gives to this process, may only read it; other users have no access.
    """
    path = Path(folder) / name
    root, real = os.path.realpath(folder), os.path.realpath(path)
    if os.path.commonpath((root, real)) != root:
        raise ConfigError(f"{path} is a link that leads out of {folder}; mount the secret as files of one folder")
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.getuid()) or found.st_mode & _NOT_MOUNTED:
            raise ConfigError(
                f"{path} is a mounted secret of mode {stat.S_IMODE(found.st_mode):04o}; mount it so that only its owner"
                " and its group can read it, for example with defaultMode 0440"
            )
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ConfigError(f"{path} is larger than {max_bytes} bytes")
    return data
