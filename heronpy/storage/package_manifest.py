"""The manifest of a stored package, used to check that the package is unchanged.

The manifest is written together with the entry of the package, next to the cache's entries, where only their owner may
write. For each file, it has the hash of the content, and a stamp from the kernel: inode, size and times; only root can
set the change time. A file with the same stamp is not read again. Only the bytecode that Python writes for the modules
may be added to an entry, because any other new module could hide a module of the package or of Python.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from heronpy.common.errors import PackageError
from heronpy.common.folders import open_private

FOLDER: Final = ".manifests"
_CHUNK: Final = 1 << 20
_OTHERS: Final = 0o077
#: Names of the bytecode files that Python writes; with a number while a file is being written.
_BYTECODE: Final = re.compile(
    r"(?P<folder>(?:.*/)?)__pycache__/(?P<module>[^/]+?)\.[\w-]+(?:\.opt-\w+)?\.pyc(?:\.\d+)?"
)


class Item(Struct, frozen=True):
    """One file or link of an entry."""

    content: str
    """Hash of a file, or "-> " and the target of a link."""
    executable: bool
    stamp: tuple[int, int, int, int]
    """Inode, size, time of modification and time of change in nanoseconds."""


def check_entry(entry: str | os.PathLike[str]) -> None:
    """Raise PackageError if a stored package or any file in it belongs to another user, or other users may enter it."""
    try:
        status = os.lstat(entry)
        if not stat.S_ISDIR(status.st_mode):
            raise _refusal(entry, "is not a folder")
        if status.st_mode & _OTHERS:
            raise _refusal(entry, "can be entered by other users")
        for path, found in [("", status), *_walk(Path(entry))]:
            if found.st_uid not in (os.geteuid(), 0):
                what = f"has {path!r} of" if path else "belongs to"
                raise _refusal(entry, f"{what} another user (uid {found.st_uid})")
    except OSError as error:
        raise PackageError(f"the stored package {entry} cannot be read: {error.strerror}; submit again") from None


def write(entry: Path, manifest: Path) -> None:
    """Write the manifest of an entry. Raises OSError if that fails."""
    content = {name: [item.content, item.executable, *item.stamp] for name, item in _items(entry, {}).items()}
    temporary = manifest.with_name(f"{manifest.name}.tmp")
    with open(open_private(temporary, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, manifest)


def read(manifest: Path) -> dict[str, Item] | None:
    """Return the manifest; None if the file is missing, unreadable or not trusted."""
    try:
        descriptor = os.open(manifest, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
            return None
        try:
            return {str(name): _item(values) for name, values in json.load(file).items()}
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return None


def compare(entry: Path, expected: dict[str, Item]) -> None:
    """Raise PackageError if a file was added, is missing or has changed; the error names the first such file."""
    for name, status in _walk(entry):
        if name not in expected and not stat.S_ISDIR(status.st_mode) and not _is_bytecode(name, status, expected):
            raise _refusal(entry, f"contains {name!r}, which was not submitted")
    found = _items(entry, expected)
    for name, item in sorted(expected.items()):
        here = found.get(name)
        if here is None:
            raise _refusal(entry, f"lacks {name!r}")
        if (here.content, here.executable) != (item.content, item.executable):
            raise _refusal(entry, f"has {name!r} with content that differs from the submitted file")


def _is_bytecode(name: str, status: os.stat_result, expected: Container[str]) -> bool:
    """Whether this is a file that Python writes when it imports a module of the package."""
    found = _BYTECODE.fullmatch(name)
    return found is not None and stat.S_ISREG(status.st_mode) and f"{found['folder']}{found['module']}.py" in expected


def _item(values: Any) -> Item:
    content, executable, *stamp = values
    inode, size, modified, changed = stamp
    return Item(str(content), bool(executable), (int(inode), int(size), int(modified), int(changed)))


def _items(entry: Path, known: dict[str, Item]) -> dict[str, Item]:
    """Return the files and links of an entry; a known file with the same stamp is not read."""
    found = {}
    for name, status in _walk(entry):
        if stat.S_ISDIR(status.st_mode):
            continue
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        before = known.get(name)
        if known and before is None:
            continue  # bytecode: `compare` has refused all other unknown files
        if before is not None and before.stamp == stamp:
            found[name] = before
        else:
            found[name] = Item(_content(entry / name, status), bool(status.st_mode & stat.S_IXUSR), stamp)
    return found


def _walk(folder: Path, prefix: str = "") -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as scan:
        entries = sorted(scan, key=lambda item: item.name)
    for item in entries:
        status = item.stat(follow_symlinks=False)
        yield prefix + item.name, status
        if stat.S_ISDIR(status.st_mode):
            yield from _walk(Path(item.path), f"{prefix}{item.name}/")


def _content(path: Path, status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return f"-> {os.readlink(path)}"
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _refusal(entry: str | os.PathLike[str], what: str) -> PackageError:
    return PackageError(f"the stored package {os.fspath(entry)} {what}; remove that folder and submit again")
