"""Objects as files in a folder, which several hosts may share.

A file gets its name by one rename, after it is on disk. `put_if_absent` uses a link, which fails if the name is taken.
Both operations also work on a network file system, where locks may have no effect. The name of an unfinished file
begins with a dot and ends with the same number as the object's name. So a caller that numbers its objects can assign an
unfinished file to an object.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from heronpy.common.errors import ConfigError
from heronpy.common.folders import check_root, make_folders, read_own
from heronpy.storage.objects.port import Listing, MissingObjectError, ObjectsError, Trouble

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_DENIED = (errno.EACCES, errno.EPERM)
_UNFINISHED = ".unfinished-"
_PART_BYTES = 1 << 20
_NUMBER = re.compile(r"-[0-9]{1,19}$")


class FolderObjects:
    """A `port.Objects` in a folder. The first write creates `root`, accessible only to its owner.

    `own` is a prefix of all keys. If it is set, each call raises ObjectsError if another user can change the folder of
    that name, and only regular files of at most `read_max_bytes` are read.
    """

    def __init__(self, root: Path, fsync: bool = True, own: str = "", read_max_bytes: int = 0) -> None:
        self.root = root
        self._fsync = fsync
        self._own = own
        self._read_max_bytes = read_max_bytes

    @property
    def name(self) -> str:
        return str(self.root)

    def put(self, key: str, data: bytes | bytearray | memoryview | Path) -> None:
        folder = self._path(key).parent
        made = not folder.is_dir()
        with self._trouble(), self._draft(key, data) as draft:
            os.rename(draft, self._path(key))
            self._sync(folder, above=made)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        with self._trouble(), self._draft(key, data) as draft:
            try:
                os.link(draft, path)
            except FileExistsError:
                with contextlib.suppress(FileNotFoundError):
                    return path.read_bytes() == data
                return False  # the object was another writer's and has been removed
            except OSError:
                # Over NFS, the answer to a link may get lost, and the repeated call fails. The number of links shows
                # whether the first call succeeded.
                if os.stat(draft).st_nlink != 2:
                    raise
            finally:
                with contextlib.suppress(OSError):
                    draft.unlink()
            # The process that created the folders above may have died before they were on disk.
            self._sync(path.parent, above=True)
            return True

    def get(self, key: str) -> bytes:
        with self._trouble():
            try:
                if self._own:
                    return read_own(self._path(key), self._read_max_bytes)
                return self._path(key).read_bytes()
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                raise MissingObjectError(self.name, key) from None

    def head(self, key: str) -> int | None:
        path = self._path(key)
        with self._trouble():
            try:
                return path.stat().st_size if not path.is_dir() else None
            except (FileNotFoundError, NotADirectoryError):
                return None

    def list(self, prefix: str = "", deep: bool = True) -> Listing:
        base, cut = os.path.join(self.root, prefix), len(os.path.join(self.root, ""))
        found: dict[str, int] = {}
        folders: tuple[str, ...] = ()
        with self._trouble():
            if deep:
                entries = [entry for entry in _files_below(base) if not entry.name.startswith(_UNFINISHED)]
            else:
                entries, folders = _first_level(base)
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # already removed
                    status = entry.stat(follow_symlinks=not self._own)
                    if not self._own or stat.S_ISREG(status.st_mode):
                        found[entry.path[cut:]] = status.st_size
        return Listing(found, folders)

    def delete(self, keys: Iterable[str]) -> None:
        changed: set[Path] = set()
        with self._trouble():
            for key in keys:
                path = self._path(key)
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    path.unlink()
                    changed.add(path.parent)
                for parent in path.parents:
                    if parent == self.root:
                        break
                    try:
                        parent.rmdir()  # as in an object store, a folder is removed with its last object
                    except OSError:
                        break
            for folder in changed:
                with contextlib.suppress(FileNotFoundError):
                    self._sync(folder)

    def _path(self, key: str) -> Path:
        if any(part in ("", ".", "..") for part in key.split("/")):
            raise ValueError(f"{key!r} is not a key")
        return self.root / key

    @contextlib.contextmanager
    def _draft(self, key: str, data: bytes | bytearray | memoryview | Path) -> Iterator[Path]:
        folder, number = self._path(key).parent, _NUMBER.search(key)
        while True:
            make_folders(folder)
            self._check_owner()
            draft = folder / f"{_UNFINISHED}{os.urandom(8).hex()}{number[0] if number else ''}"
            try:
                descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                break
            except FileNotFoundError:
                continue  # a concurrent removal deleted the empty folder
        try:
            try:
                if isinstance(data, Path):
                    with open(data, "rb") as source:
                        while part := source.read(_PART_BYTES):
                            write_all(descriptor, part)
                else:
                    write_all(descriptor, data)
                if self._fsync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            yield draft
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise

    def _sync(self, folder: Path, above: bool = False) -> None:
        """Sync a folder's entries to disk; with `above`, also the entries of all folders above it."""
        if not self._fsync:
            return
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if above and folder != self.root.parent:
            self._sync(folder.parent, above)

    def _check_owner(self) -> None:
        if self._own:
            check_root(self.root / self._own, "the folder")

    @contextlib.contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            self._check_owner()
            yield
        except ConfigError as error:
            raise ObjectsError(self.name, Trouble.DENIED, str(error)) from None
        except OSError as error:
            kind = Trouble.FULL if error.errno in _FULL else Trouble.DENIED if error.errno in _DENIED else Trouble.OTHER
            raise ObjectsError(self.name, kind, error.strerror or str(error)) from error


def unfinished(root: Path, prefix: str) -> list[str]:
    """Return the keys of unfinished files below `prefix`, including those of killed writers; listings omit them."""
    cut = len(os.path.join(root, ""))
    below = _files_below(os.path.join(root, prefix))
    return [entry.path[cut:] for entry in below if entry.name.startswith(_UNFINISHED)]


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Write all data, in several calls if necessary."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _first_level(folder: str) -> tuple[list[os.DirEntry[str]], tuple[str, ...]]:
    """Return the files of a folder, and the names of its folders that contain files."""
    files, folders = [], []
    for entry in _entries(folder):
        if not entry.is_dir():
            files.append(entry)
        elif any(not below.name.startswith(_UNFINISHED) for below in _files_below(entry.path)):
            folders.append(entry.name)
    return [entry for entry in files if not entry.name.startswith(_UNFINISHED)], tuple(sorted(folders))


def _files_below(folder: str) -> Iterator[os.DirEntry[str]]:
    """Return all files below a folder; links to folders are not followed."""
    for entry in _entries(folder):
        if not entry.is_dir():
            yield entry
        elif not entry.is_symlink():
            yield from _files_below(entry.path)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """Return the entries of a folder; empty if the folder is missing."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError):
        return
