"""Folders and files of this user alone: the one place that makes folders with their parents.

`Path.mkdir(mode=..., parents=True)` gives the mode to the last folder only: the ones above it get what the
umask leaves, and whoever may write to one of those may swap everything below it. `make_folders` gives
every level that it makes mode 0700. `check_root` is asked once, where a process starts, about folders
that were there before. What belongs to users, such as the output of a sink, is made by `make_output`,
with the rights that their umask says.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from heronpy.common.errors import ConfigError

#: Rights to write of group and others.
WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_PRIVATE: Final = 0o700


def make_folders(folder: str | os.PathLike[str]) -> None:
    """Make a folder and each missing parent with mode 0700; folders that exist stay as they are.

    Raises FileExistsError when something else has the name, and any other OSError of the file system.
    """
    path = Path(folder)
    try:
        os.mkdir(path, _PRIVATE)
    except FileNotFoundError:
        if path.parent == path:
            raise
        make_folders(path.parent)
        make_folders(path)
    except OSError:
        # It exists; a file system that is read-only, or not ours, says something else than that.
        if not path.is_dir():
            raise


def make_output(folder: str | os.PathLike[str]) -> None:
    """Make a folder that users read with other programs, and its parents, with what their umask allows."""
    Path(folder).mkdir(parents=True, exist_ok=True)


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file for writing; it is made with mode 0600, and a link in its place is refused (OSError)."""
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def write_private_text(path: str | os.PathLike[str], text: str) -> None:
    """Replace the content of a small file that only its owner reads; UTF-8."""
    with open(open_private(path, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        file.write(text)


def read_own(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """The content of a file that nobody but this user or root has written; OSError when it cannot be read.

    Opened once, never through a link, and looked at by its descriptor. ConfigError when another user owns
    the file or may write to it, or when it is larger than `max_bytes`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} is no file.")
        if status.st_uid not in (os.geteuid(), 0):
            raise ConfigError(f"{path} belongs to another user (uid {status.st_uid}), so it is not read.")
        if status.st_mode & WRITABLE_BY_OTHERS:
            raise ConfigError(
                f"{path} can be written by other users, so it is not read; run: chmod go-w {_quoted(Path(path))}"
            )
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ConfigError(f"{path} is larger than {max_bytes} bytes.")
    return data


def check_root(folder: str | os.PathLike[str], what: str, sticky: bool = False) -> None:
    """ConfigError unless nobody but this user and root can replace what is below a folder.

    `what` names the folder in the sentence. One that is not there is fine: it will be made. `sticky` also
    takes a folder such as /tmp, to which everybody may write but in which nobody may touch the files of
    others; who takes that has to look at the owner of what lies inside. Above the folder only what
    everybody may write is refused, because the rights of a group there are an administrator's choice.
    """
    path = Path(folder).absolute()
    try:
        here = os.lstat(path)
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        _check_above(path, what)  # who makes it will say what is in the way
        return
    except OSError as error:
        raise ConfigError(f"Cannot look at {what} {path}: {error.strerror}.") from None
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{what} {path} is no folder; remove it, or name another one.")
    for status in (here, found):
        if status.st_uid not in (os.geteuid(), 0):
            raise ConfigError(
                f"{what} {path} belongs to another user (uid {status.st_uid}), who could replace what is in it;"
                " name a folder of your own."
            )
    if found.st_mode & WRITABLE_BY_OTHERS and not (sticky and found.st_mode & stat.S_ISVTX):
        raise ConfigError(f"{what} {path} can be written by other users; run: chmod go-w {_quoted(path)}")
    _check_above(path, what)


def _check_above(path: Path, what: str) -> None:
    """ConfigError when everybody may rename a folder on the way to the path."""
    for parent in Path(os.path.realpath(path)).parents:
        try:
            mode = os.stat(parent).st_mode
        except OSError:
            continue
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise ConfigError(
                f"{what} {path} lies in {parent}, which everybody can write; run: chmod o-w {_quoted(parent)}"
            )


def _quoted(path: Path) -> str:
    import shlex  # only a folder that is refused needs it

    return shlex.quote(str(path))
