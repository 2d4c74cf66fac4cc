"""Folders and files private to this user: the only module that creates folders with their parents.

`Path.mkdir(mode=..., parents=True)` applies the mode to the last folder only. The mode of its parents follows the
umask, and a user who may write to one of them can replace all folders below it. `make_folders` creates every level with
mode 0700. `check_root` checks existing folders once, when a process starts. Data for users, such as the output of a
sink, goes into folders created by `make_output`, which follow the umask.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from heronpy.common.errors import ConfigError

#: Write permission of group and others.
WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_PRIVATE: Final = 0o700
#: Buffer size that suffices for most files that are read completely.
_MOST_BYTES: Final = 1 << 16
#: Environment variable with the volumes that only this pod mounts; orchestrators make them writable for all its users.
POD_FOLDERS: Final = "HERON_POD_FOLDERS"
#: Linux's limit for links that are followed in one path.
_LINKS_MAX: Final = 40
#: The user map of a process outside any user namespace.
_ALL_USERS: Final = ["0", "0", "4294967295"]


def make_folders(folder: str | os.PathLike[str]) -> None:
    """Create a folder and each missing parent with mode 0700; existing folders are not changed.

    Raises FileExistsError if a file has this name, or another OSError from the file system.
    """
    path = Path(folder)
    try:
        _make_folder(path)
    except FileNotFoundError:
        if path.parent == path:
            raise
        make_folders(path.parent)
        # Retry only once, because a file system such as /proc gives the same error for a folder whose parent exists.
        _make_folder(path)


def _make_folder(path: Path) -> None:
    try:
        os.mkdir(path, _PRIVATE)
    except FileNotFoundError:
        raise
    except OSError:
        # The folder exists; a read-only or foreign file system raises another error.
        if not path.is_dir():
            raise


def make_output(folder: str | os.PathLike[str]) -> None:
    """Create a folder and its parents for output that other programs read; the modes follow the umask."""
    Path(folder).mkdir(parents=True, exist_ok=True)


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file for writing; a new file has mode 0600. Raises OSError if the path is a link."""
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def write_private_text(path: str | os.PathLike[str], text: str) -> None:
    """Replace the content of a small file with UTF-8 text that only the owner can read."""
    with open(open_private(path, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        file.write(text)


def replace_file(path: str | os.PathLike[str], data: bytes, durable: bool = True, mode: int = 0o600) -> None:
    """Write a file atomically; other users can never read it.

    Without `durable`, the file is not synced to disk; use this for files that are rewritten after a machine crash.
    """
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.urandom(6).hex()}")
    try:
        with open(open_private(draft, os.O_WRONLY | os.O_EXCL), "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def sync_path(path: str | os.PathLike[str]) -> None:
    """Sync a file, or the renames in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_own(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Read a file that only this user or root can have written. Raises OSError if it cannot be read.

    The file is opened once, never through a link, and checked by its descriptor. Raises ConfigError if another
    user owns the file or may write to it, or if it is larger than `max_bytes`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} is not a file")
        if status.st_uid not in (os.geteuid(), 0):
            raise ConfigError(f"{path} belongs to {another_user(status.st_uid)}, so it is not read")
        if status.st_mode & WRITABLE_BY_OTHERS:
            raise ConfigError(
                f"{path} is writable by other users, so it is not read; run: chmod go-w {_quoted(Path(path))}"
            )
        # Allocating the maximum size would be expensive for a small file.
        data = file.read(min(max_bytes, _MOST_BYTES) + 1)
        if len(data) > _MOST_BYTES:
            data += file.read(max_bytes + 1 - len(data))
    if len(data) > max_bytes:
        raise ConfigError(f"{path} is larger than {max_bytes} bytes")
    return data


def check_root(folder: str | os.PathLike[str], what: str, sticky: bool = False) -> None:
    """Raise ConfigError unless only this user and root can replace the contents of a folder.

    `what` names the folder in the error. A missing folder passes, because it will be created. `sticky` also accepts a
    folder such as /tmp, in which all users may write but cannot change each other's files; the caller must then check
    the owners of the contents. Parents and links on the path must belong to this user or root, and must not be writable
    by all users; whether a group may write there is an administrator's choice.
    """
    path = Path(folder).absolute()
    try:
        here = os.lstat(path)
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        _check_above(path, what)  # creating the folder will report the obstacle
        return
    except OSError as error:
        raise ConfigError(f"cannot check {what} {path}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{what} {path} is not a folder; remove it, or choose another path")
    for status in (here, found):
        if status.st_uid not in (os.geteuid(), 0):
            raise ConfigError(
                f"{what} {path} belongs to {another_user(status.st_uid)}, who could replace its contents;"
                " use a folder that you own"
            )
    shared = found.st_mode & stat.S_ISVTX or _is_pods(path)
    if found.st_mode & WRITABLE_BY_OTHERS and not (sticky and shared):
        raise ConfigError(f"{what} {path} is writable by other users; run: chmod go-w {_quoted(path)}")
    _check_above(path, what)


def _check_above(path: Path, what: str) -> None:
    """Raise ConfigError if another user could rename or replace a parent of the path or a link on the way to it."""
    trusted = trusted_owners()
    for above in _way_to(path):
        try:
            status = os.lstat(above)
        except OSError:
            continue
        if status.st_uid not in trusted:
            kind = "the link" if stat.S_ISLNK(status.st_mode) else "the folder"
            raise ConfigError(
                f"{what} {path} is reached through {kind} {above}, which belongs to {another_user(status.st_uid)},"
                " who could replace it; use a folder that you own"
            )
        open_to_all = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IWOTH
        if open_to_all and not status.st_mode & stat.S_ISVTX and not _is_pods(above):
            raise ConfigError(
                f"{what} {path} is in {above}, which is writable by all users; run: chmod o-w {_quoted(above)}"
            )


def _is_pods(folder: Path) -> bool:
    """Whether a folder is a volume of this pod, to which only processes of the pod can write."""
    return str(folder) in os.environ.get(POD_FOLDERS, "").split(":")


def _way_to(path: Path) -> Iterator[Path]:
    """Yield every folder and link that the system resolves on the way to an absolute path, except the path itself."""
    left, here, links = list(reversed(path.parts[1:])), Path("/"), 0
    yield here
    while left:
        name = left.pop()
        if name == "..":
            here = here.parent
            continue
        step = here / name
        if os.path.islink(step) and (links := links + 1) <= _LINKS_MAX:
            yield step
            target = Path(os.readlink(step))
            here = Path("/") if target.is_absolute() else here
            left += reversed([part for part in target.parts if part != "/"])
        else:
            here = step
            if left:
                yield here


def trusted_owners() -> set[int]:
    """Return the users who may own parents of this user's folders: this user and root.

    In a user namespace, the root user of the machine may have no number and appear as the overflow user.
    """
    trusted = {os.geteuid(), 0}
    try:
        if Path("/proc/self/uid_map").read_text().split() != _ALL_USERS:
            trusted.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    except (OSError, ValueError):
        pass
    return trusted


def another_user(uid: int) -> str:
    """Describe an untrusted owner by number and, if it has a name, by name."""
    import pwd  # needed only when something is refused

    try:
        name = f"{pwd.getpwuid(uid).pw_name}, "
    except KeyError:
        name = ""
    return f"another user ({name}uid {uid})"


def _quoted(path: Path) -> str:
    import shlex  # needed only when a folder is refused

    return shlex.quote(str(path))


def absolute(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path, with `~` expanded and without `..`.

    A path that contains `..` is resolved as the system resolves it: the parent of a link is the parent of its
    target. Other links are kept, because users recognise a folder by the name that they have used.
    """
    given = Path(path).expanduser().absolute()
    parts = given.parts
    if ".." not in parts:
        return given
    after = len(parts) - parts[::-1].index("..")
    return Path(os.path.realpath(Path(*parts[:after])), *parts[after:])


def heron_home() -> Path:
    """Return the folder for state, packages and working directories."""
    return absolute(os.environ.get("HERON_HOME") or "~/.herondata")
