"""A state manager that keeps nodes in files below one directory: the default kind, for the processes of one machine.

`topologies/word_count` is the file `<root>/topologies/word_count.node`: one header line with version, length, checksum
and owner, and then the data. Files for deeper paths are in the same directory, with "%2F" instead of "/". Invariants: A
node file is only replaced as a whole, by rename after fsync while holding a lock file, so a crash leaves the old or the
new value. An ephemeral node names its manager's owner file, on which the manager's process holds a flock, so the node
ends with the process, even if the process is killed. No path leads out of the directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import signal
import threading
import time
import zlib
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from heronpy.common.disk_space import Reserve, is_full_error
from heronpy.common.errors import (
    ConfigError,
    DamagedStateError,
    DeadlineError,
    NodeExistsError,
    NoNodeError,
    NoSpaceError,
    StateError,
)
from heronpy.common.flock import try_flock, unlock
from heronpy.common.folders import absolute, check_root, make_folders, sync_path
from heronpy.statemgr.base import MAX_BYTES, check_version, note_open
from heronpy.statemgr.file_locks import claim_root, holder, is_directory, try_lock
from heronpy.statemgr.paths import check_path

if TYPE_CHECKING:
    from heronpy.statemgr.watcher import FileWatch, Watcher

_WRITE_TIMEOUT_S: Final = 30.0
_HEADER_MAX: Final = 160
_HEADER: Final = re.compile(rb"heronstate1 (\d{1,19}) (\d{1,10}) ([0-9a-f]{8}) (-|[0-9a-f-]+\.owner)\n")
_NODE: Final = ".node"
_FILE_NAME_MAX: Final = 240
_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _unbroken() -> Iterator[None]:
    """Delay an interrupt until the block has ended, so that no files remain that other processes cannot find."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Node(Struct, frozen=True):
    data: bytes
    version: int
    owner: str  # "-" for a node that is not ephemeral


class LocalStateManager:
    """A state manager over the files below `root`."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = absolute(root)
        #: Reserved space for writes on a full disk, because stopping a topology must still work.
        self._reserve = Reserve(self._root / ".reserve")
        self._mutex = threading.Lock()
        self._owner = ""
        self._owner_descriptor = -1
        self._mine: set[str] = set()
        self._held: set[int] = set()
        self._watcher: Watcher | None = None
        self._closed = ""
        self._prepare()
        note_open(self)

    def create(self, path: str, data: bytes, ephemeral: bool = False) -> None:
        file = self._file(path, data)
        with self._writing():
            if self._read(file) is not None:
                raise NodeExistsError(f"state node {path!r} already exists")
            owner = self._own() if ephemeral else "-"
            self._write(file, _Node(data, 1, owner))
            if ephemeral:
                self._mine.add(path)

    def get(self, path: str) -> tuple[bytes, int] | None:
        node = self._read(self._file(path))
        return (node.data, node.version) if node else None

    def set(self, path: str, data: bytes, version: int | None = None) -> int:
        file = self._file(path, data)
        with self._writing():
            node = self._read(file)
            check_version(path, node.version if node else 0, version)
            written = _Node(data, node.version + 1, node.owner) if node else _Node(data, 1, "-")
            self._write(file, written)
            return written.version

    def delete(self, path: str, version: int | None = None) -> None:
        file = self._file(path)
        with self._writing():
            node = self._read(file)
            if node is None:
                # remove the node of a dead owner, because its name may never be used again
                file.unlink(missing_ok=True)
                raise NoNodeError(f"state node {path!r} does not exist")
            check_version(path, node.version, version)
            file.unlink(missing_ok=True)
            sync_path(file.parent)
            self._mine.discard(path)

    def children(self, path: str) -> list[str]:
        self._check_open()
        if not path:
            found = set(self._names(self._root, ""))
            for entry in self._list(self._root):
                name = _decode(entry)
                if not entry.startswith(".") and not entry.endswith(_NODE) and name not in found:
                    found.update([name] if any(self._names(self._root / entry, "")) else [])
            return sorted(found)
        first, *rest = check_path(path)
        prefix = _encode("/".join(rest)) + "%2F" if rest else ""
        return sorted(set(self._names(self._root / _encode_directory(first), prefix)))

    def exists(self, path: str) -> bool:
        return self._read(self._file(path)) is not None

    def watch(self, path: str, callback: Callable[[str], None]) -> FileWatch:
        """Call `callback` in a thread after each change to the node."""
        from heronpy.statemgr.watcher import Watcher  # the module loads ctypes, and most commands never watch

        file = self._file(path)
        with self._trouble(), self._mutex:
            make_folders(file.parent)
            if self._watcher is None:
                self._watcher = Watcher(self._fingerprint, self._root / ".owners")
            return self._watcher.add(path, file, callback)

    def counter(self, path: str) -> int:
        file = self._file(path)
        with self._writing():
            node = self._read(file) or _Node(b"0", 0, "-")
            if not node.data.isdigit():
                raise StateError(f"state node {path!r} does not contain a counter")
            number = int(node.data) + 1
            self._write(file, _Node(str(number).encode(), node.version + 1, node.owner))
            return number

    @contextmanager
    def lock(self, path: str, timeout_s: float = 10.0) -> Iterator[None]:
        self._check_open()
        check_path(path)
        file = self._root / ".locks" / _encode(path)
        deadline = time.monotonic() + timeout_s
        descriptor = -1
        try:
            with self._trouble():
                while descriptor < 0:
                    with _unbroken():
                        descriptor = try_lock(file)
                        if descriptor >= 0:
                            self._held.add(descriptor)
                    if descriptor < 0:
                        if time.monotonic() >= deadline:
                            raise DeadlineError(f"lock {path!r} is still held by {holder(file)} after {timeout_s:g} s")
                        time.sleep(0.01)
            yield
        finally:
            if descriptor in self._held:  # false in a child that was forked in the meantime
                self._held.discard(descriptor)
                if not is_directory(descriptor):
                    file.unlink(missing_ok=True)
                unlock(descriptor)

    def close(self) -> None:
        """Remove this manager's ephemerals and stop its watches."""
        if self._closed:
            return
        if self._watcher:
            self._watcher.close()
        with contextlib.suppress(StateError, OSError):
            if self._mine:
                with self._writing():
                    for path in self._mine:
                        file = self._file(path)
                        node = self._read(file)
                        if node and node.owner == self._owner:
                            file.unlink(missing_ok=True)
        self._closed = "this state manager is closed"
        if self._owner_descriptor >= 0:
            with contextlib.suppress(OSError):
                (self._root / ".owners" / self._owner).unlink(missing_ok=True)
            unlock(self._owner_descriptor)
            self._owner_descriptor = -1

    def close_in_child(self) -> None:
        """Close the parent's descriptors after a fork, so that other processes notice when the parent dies."""
        if self._closed:
            return
        self._closed = "this state manager was opened before a fork; open a new one"
        for descriptor in (self._owner_descriptor, *self._held):
            if descriptor >= 0:
                os.close(descriptor)  # no unlock: that would release the parent's lock
        self._held.clear()
        self._owner_descriptor = -1
        if self._watcher:
            self._watcher.close_in_child()

    def _check_open(self) -> None:
        if self._closed:
            raise StateError(self._closed)

    def _file(self, path: str, data: bytes = b"") -> Path:
        """Return the file of a node, after checking the caller's arguments."""
        self._check_open()
        if len(data) > MAX_BYTES:
            raise StateError(f"value of state node {path!r} exceeds {MAX_BYTES} bytes")
        first, *rest = check_path(path)
        name = _encode("/".join(rest) or first) + _NODE
        if len(os.fsencode(name)) > _FILE_NAME_MAX:
            raise StateError(f"state path {path[:60]!r}... is too long; use shorter names")
        return self._root / _encode_directory(first) / name if rest else self._root / name

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        """Turn an error from the file system into a StateError that names the folder to check."""
        try:
            yield
        except OSError as error:
            where = error.filename or self._root
            reason = error.strerror or str(error)
            kind = NoSpaceError if is_full_error(error) else StateError
            raise kind(f"the state below {self._root} cannot be used: {where}: {reason}") from error

    def _prepare(self) -> None:
        check_root(self._root, "The root of the state")
        try:
            for name in ("", ".tmp", ".owners", ".locks"):
                make_folders(self._root / name)
            claim_root(self._root)
        except OSError as error:
            raise ConfigError(
                f"{self._root} cannot be the root of the state: {error.strerror};"
                " set HERON_HOME or heron.statemgr.root to a directory that you can write to"
            ) from None

    @contextmanager
    def _writing(self, timeout_s: float = _WRITE_TIMEOUT_S) -> Iterator[None]:
        late = StateError(f"{self._root}/.lock has been locked for {timeout_s:g} s; look for a stopped process")
        deadline = time.monotonic() + timeout_s
        if not self._mutex.acquire(timeout=timeout_s):
            raise late
        try:
            with self._trouble():
                if not (self._root / ".owners").is_dir():
                    self._prepare()
                descriptor = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    pause = 0.0005
                    while not try_flock(descriptor, fcntl.LOCK_EX):
                        if time.monotonic() >= deadline:
                            raise late
                        time.sleep(pause)
                        pause = min(pause * 2, 0.02)
                    with _unbroken():
                        yield
                finally:
                    unlock(descriptor)
        finally:
            self._mutex.release()

    def _own(self) -> str:
        """Return the name of this manager's owner file, which is locked as soon as it is created."""
        directory = self._root / ".owners"
        if self._owner_descriptor >= 0 and (directory / self._owner).exists():
            return self._owner
        if self._owner_descriptor >= 0:  # the state was removed while this process was running
            os.close(self._owner_descriptor)
        for entry in self._list(directory):
            if not self._alive(entry):
                (directory / entry).unlink(missing_ok=True)
        self._owner = f"{os.getpid():x}-{secrets.token_hex(8)}.owner"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        make = partial(os.open, directory / self._owner, flags, 0o600)
        self._owner_descriptor = self._reserve.during(make, 0)
        fcntl.flock(self._owner_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self._owner

    def _alive(self, owner: str) -> bool:
        """Whether the process of an owner file is alive."""
        if owner == "-" or (owner == self._owner and self._owner_descriptor >= 0):
            return True
        try:
            descriptor = os.open(self._root / ".owners" / owner, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not try_flock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def _read(self, file: Path) -> _Node | None:
        """Read the node in a file; None if there is no node, or if its owner is dead."""
        with self._trouble():
            try:
                with open(file, "rb", buffering=0) as opened:
                    content = opened.readall() or b""
            except (FileNotFoundError, NotADirectoryError):
                return None
            node = _parse(file, content)
            if self._alive(node.owner):
                return node
        self._forget(file, node)
        return None

    def _forget(self, file: Path, dead: _Node) -> None:
        """Remove a dead node if this is possible without waiting; readers ignore dead nodes in any case."""
        with contextlib.suppress(StateError, OSError):
            if self._mutex.locked():
                return
            with self._writing(timeout_s=0):
                if _parse(file, file.read_bytes()) == dead:
                    file.unlink()

    def _write(self, file: Path, node: _Node) -> None:
        """Replace a node file; the caller is the only writer, so one temporary name suffices."""
        checksum = zlib.crc32(node.data)
        header = f"heronstate1 {node.version} {len(node.data)} {checksum:08x} {node.owner}\n"
        temporary = self._root / ".tmp" / "write"

        def replace() -> None:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
                with open(os.open(temporary, flags, 0o600), "wb") as opened:
                    opened.write(header.encode())
                    opened.write(node.data)
                    opened.flush()
                    os.fsync(opened.fileno())
                if not file.parent.is_dir():
                    file.parent.mkdir(mode=0o700, exist_ok=True)
                    sync_path(self._root)
                os.replace(temporary, file)
            except OSError as error:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)  # the file may be what fills the disk
                raise OSError(error.errno, error.strerror, str(file)) from error

        self._reserve.during(replace, len(header) + len(node.data))
        self._reserve.keep()
        sync_path(file.parent)

    def _names(self, directory: Path, prefix: str) -> Iterator[str]:
        """Yield the first path segment after the prefix, for each live node in a directory."""
        found: set[str] = set()
        for entry in self._list(directory):
            if entry.startswith(prefix) and entry.endswith(_NODE) and entry[0] != ".":
                name = _decode(entry.removesuffix(_NODE)[len(prefix) :].split("%2F")[0])
                if name not in found and self._fingerprint_of(directory / entry) is not None:
                    found.add(name)
                    yield name

    def _list(self, directory: Path) -> list[str]:
        with self._trouble():
            try:
                return os.listdir(directory)
            except (FileNotFoundError, NotADirectoryError):
                return []

    def _fingerprint(self, path: str) -> Hashable:
        """Return a value that differs after each change to the node; None while the node does not exist."""
        return self._fingerprint_of(self._file(path))

    def _fingerprint_of(self, file: Path) -> Hashable:
        try:
            with open(file, "rb", buffering=0) as opened:
                header = opened.read(_HEADER_MAX) or b""
                status = os.fstat(opened.fileno())
        except (FileNotFoundError, NotADirectoryError):
            return None
        match = _HEADER.match(header)
        if match and not self._alive(match[4].decode()):
            return None
        return (match.group() if match else b"", status.st_ino, status.st_mtime_ns)


def _parse(file: Path, content: bytes) -> _Node:
    match = _HEADER.match(content)
    if match:
        data = content[match.end() :]
        if len(data) == int(match[2]) and zlib.crc32(data) == int(match[3], 16):
            return _Node(data, int(match[1]), match[4].decode())
    raise DamagedStateError(f"state file {file} is damaged; remove it, or restore it from a copy")


def _encode(name: str) -> str:
    encoded = name.replace("%", "%25").replace("/", "%2F")
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


def _encode_directory(name: str) -> str:
    """Encode the first path segment as the name of a directory, which must not look like a node."""
    encoded = _encode(name)
    return encoded.removesuffix(_NODE) + "%2Enode" if encoded.endswith(_NODE) else encoded


def _decode(name: str) -> str:
    return name.replace("%2E", ".").replace("%2F", "/").replace("%25", "%")
