"""Objects as files of a folder, which several hosts may share.

A file gets its name by one rename, after it is on disk; `put_if_absent` by a link, which fails if the name is taken.
Both hold on a network file system too, where locks may exclude nobody. Unfinished files begin with a dot.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from heronpy.common.errors import ConfigError
from heronpy.common.folders import check_root, make_folders, read_own
from heronpy.storage.objects.memory import below_prefix
from heronpy.storage.objects.port import Listing, MissingObjectError, ObjectsError, Trouble

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_DENIED = (errno.EACCES, errno.EPERM)


class FolderObjects:
    """See `port.Objects`; `root` is made when first written to, for its owner only.

    With `own`, a prefix of all keys, each call raises ObjectsError when another user can change the folder of that
    name. Only regular files are read then, and none that is larger than `read_max_bytes`.
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
        with self._trouble(), self._draft(key, data) as draft:
            os.rename(draft, self._path(key))
            self._sync(self._path(key).parent)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        with self._trouble(), self._draft(key, data) as draft:
            try:
                os.link(draft, path)
            except FileExistsError:
                return path.read_bytes() == data
            except OSError:
                # Over NFS the answer to a link may get lost, and the repeated call fails: the count of names tells.
                if os.stat(draft).st_nlink != 2:
                    raise
            self._sync(path.parent)
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
        start = f"{prefix}/" if prefix else ""
        found: dict[str, int] = {}
        with self._trouble():
            for folder, _, names in os.walk(self.root / prefix, onerror=_raise_unless_gone):
                for name in names:
                    path = Path(folder, name)
                    if not name.startswith(".unfinished-"):
                        with contextlib.suppress(FileNotFoundError):  # removed since
                            status = path.lstat() if self._own else path.stat()
                            if not self._own or stat.S_ISREG(status.st_mode):
                                found[path.relative_to(self.root).as_posix()] = status.st_size
        return below_prefix(found, start, deep)

    def delete(self, keys: Iterable[str]) -> None:
        with self._trouble():
            for key in keys:
                path = self._path(key)
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    path.unlink()
                for parent in path.parents:
                    if parent == self.root:
                        break
                    try:
                        parent.rmdir()  # as in an object store, a folder ends with its last object
                    except OSError:
                        break

    def local_path(self, key: str) -> Path | None:
        path = self._path(key)
        return path if path.is_file() else None

    def _path(self, key: str) -> Path:
        if any(part in ("", ".", "..") for part in key.split("/")):
            raise ValueError(f"{key!r} is not a key")
        return self.root / key

    @contextlib.contextmanager
    def _draft(self, key: str, data: bytes | bytearray | memoryview | Path) -> Iterator[Path]:
        folder = self._path(key).parent
        while True:
            make_folders(folder)
            self._check_owner()
            draft = folder / f".unfinished-{os.urandom(8).hex()}"
            try:
                descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                break
            except FileNotFoundError:
                continue  # a removal took the empty folder meanwhile
        try:
            with open(descriptor, "wb") as file:
                if isinstance(data, Path):
                    with open(data, "rb") as source:
                        shutil.copyfileobj(source, file, 1 << 20)
                else:
                    file.write(data)
                file.flush()
                if self._fsync:
                    os.fsync(descriptor)
            yield draft
        finally:
            with contextlib.suppress(FileNotFoundError):
                draft.unlink()

    def _sync(self, folder: Path) -> None:
        if not self._fsync:
            return
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

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


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
