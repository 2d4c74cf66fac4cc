"""A state manager that keeps nodes in ZooKeeper, for processes on several machines.

Invariants: A value that consists of several pieces becomes visible in one transaction that names the new pieces. Pieces
are removed only once no value can name them, so a reader sees either the complete old value or the complete new value.
Every write has a unique number, so a write whose answer was lost is recognised, and is neither repeated nor mistaken
for another write.

Ephemerals belong to the session, which outlives a lost connection. Three rules tie ephemerals to the lifetime of the
process instead. A process that closes its manager ends its session. The ephemeral of a killed process counts as gone
immediately on the same machine, and after the session expires on other machines. A process whose session has expired
restores its ephemerals, unless another process now owns them. A lock is not restored; its holder gets a warning.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from heronpy.common import errors
from heronpy.common.errors import DeadlineError, StateError
from heronpy.common.setting_types import StatemgrSettings
from heronpy.statemgr import zk_session, znode
from heronpy.statemgr.base import check_version, close_at_exit, note_open
from heronpy.statemgr.zk_session import NodeWatch, Session, Start, Watches
from heronpy.statemgr.znode import Value

log = logging.getLogger("heronpy.statemgr.zookeeper")

_RACES_MAX: Final = 1000
"""Maximum attempts at one write. An attempt fails only if another write has succeeded."""
_READS_MAX: Final = 20
"""Maximum attempts to read one large value that is being replaced."""
_LOOK_AT_HOLDER_S: Final = 0.25
"""Interval in seconds at which a process that waits for a lock checks whether the holder is alive."""
_NOBODY: Final = "-"

Run = Callable[[Start], Any]


class _OvertakenError(Exception):
    """Another process wrote the znode first."""


class ZooKeeperStateManager:
    """A state manager that uses the ZooKeeper servers and root path `host:port,host:port/chroot`."""

    def __init__(self, root: str, settings: StatemgrSettings | None = None) -> None:
        self._mutex = threading.Lock()
        #: Ephemerals of this manager, with their last written values.
        self._mine: dict[str, bytes] = {}
        self._restore_due = False
        self.session = Session(root, settings or StatemgrSettings())
        self._base = self.session.base
        self.session.on_connected.append(self._on_connected)
        self._watches = Watches(self.session)
        self._stay_open = close_at_exit(self)
        note_open(self)

    def create(self, path: str, data: bytes, ephemeral: bool = False) -> None:
        at = self._znode(path)
        znode.check_size(path, data, ephemeral)
        for _ in range(_RACES_MAX):
            if self._read(at) is not None:
                raise errors.NodeExistsError(f"state node {path!r} already exists")
            with contextlib.suppress(_OvertakenError):
                self._put(path, at, data, None, ephemeral)
                if ephemeral:
                    with self._mutex:
                        self._mine[path] = bytes(data)
                return
        raise _too_busy(path)

    def get(self, path: str) -> tuple[bytes, int] | None:
        at = self._znode(path)
        for _ in range(_READS_MAX):
            found = self._read(at)
            if found is None:
                return None
            value, status = found
            data = value.data if value.pieces is None else self._join(path, value)
            if data is not None:
                return data, status.version + 1
        raise StateError(
            f"state node {path!r} lacks pieces of its value below ZooKeeper node {self._pieces(path)};"
            " write it again, or remove it"
        )

    def set(self, path: str, data: bytes, version: int | None = None) -> int:
        at = self._znode(path)
        znode.check_size(path, data)
        for _ in range(_RACES_MAX):
            found = self._read(at)
            check_version(path, found[1].version + 1 if found else 0, version)
            with contextlib.suppress(_OvertakenError):
                written = self._put(path, at, data, found)
                with self._mutex:
                    if path in self._mine:
                        self._mine[path] = bytes(data)
                return written
        raise _too_busy(path)

    def delete(self, path: str, version: int | None = None) -> None:
        at = self._znode(path)
        for _ in range(_RACES_MAX):
            found = self._read(at)
            if found is None:
                raise errors.NoNodeError(f"state node {path!r} does not exist")
            check_version(path, found[1].version + 1, version)
            if self._remove(at, found[1]):
                with self._mutex:
                    self._mine.pop(path, None)
                self._sweep(path, at)
                return
        raise _too_busy(path)

    def children(self, path: str) -> list[str]:
        """Return the names one level below the path, including ephemerals until their session has ended."""
        self.session.check_open()
        if path:
            folder, prefix = znode.folder_and_prefix(path)
            return znode.names_below(self._list(self._base + folder), prefix)
        entries = [entry for entry in self._list(self._base) if not znode.is_reserved(entry)]
        folders = [entry for entry in entries if self._list(f"{self._base}/{entry}")]
        return znode.names_below(folders + self._list(self._base + znode.SINGLE), "")

    def exists(self, path: str) -> bool:
        return self._read(self._znode(path)) is not None

    def watch(self, path: str, callback: Callable[[str], None]) -> NodeWatch:
        """Call `callback` in a thread after each change to the node."""
        return self._watches.add(path, self._znode(path), callback)

    def counter(self, path: str) -> int:
        at = self._znode(path)
        for _ in range(_RACES_MAX):
            found = self._read(at)
            last = found[0].data if found else b"0"
            if not last.isdigit():
                raise StateError(f"state node {path!r} does not contain a counter")
            number = int(last) + 1
            with contextlib.suppress(_OvertakenError):
                self._put(path, at, str(number).encode(), found)
                return number
        raise _too_busy(path)

    @contextmanager
    def lock(self, path: str, timeout_s: float = 10.0) -> Iterator[None]:
        """Hold a lock, which ends with the session."""
        at = self._base + znode.lock_of(path)
        self.session.check_open()
        mine = Value(secrets.token_hex(16), b"", zk_session.own_token())
        self._acquire(path, at, mine, timeout_s)
        try:
            yield
        finally:
            self._release(path, at, mine)

    def close(self) -> None:
        """End the session, which removes this manager's ephemerals, and stop its watches."""
        self._stay_open()
        self._watches.close()
        self.session.close(in_callback=self._watches.is_callback())

    def close_in_child(self) -> None:
        """Drop the session after a fork, because it belongs to the parent."""
        self.session.close_in_child()

    # ---- reading ----------------------------------------------------------------------------

    def _znode(self, path: str) -> str:
        self.session.check_open()
        return self._base + znode.of(path)

    def _pieces(self, path: str) -> str:
        return self._base + znode.pieces_of(path)

    def _read(self, at: str) -> tuple[Value, Any] | None:
        """Read a znode's content and status; if it is the ephemeral of a dead process, remove it."""
        while True:
            try:
                content, status = self._content(at)
            except NoNodeError:
                return None
            value = znode.parse(at, content)
            if value.owner == _NOBODY or not zk_session.is_dead(value.owner):
                return value, status
            try:
                self._remove(at, status)
            except StateError:
                return None  # this process has read access only

    def _join(self, path: str, value: Value) -> bytes | None:
        """Read the data of a large value; returns None if the value is being replaced."""
        assert value.pieces is not None
        folder = f"{self._pieces(path)}/{value.pieces.folder}"
        pieces = []
        for number in range(value.pieces.count):
            try:
                pieces.append(self._content(f"{folder}/{number}")[0])
            except NoNodeError:
                return None
        return value.whole(pieces)

    def _content(self, at: str) -> tuple[bytes, Any]:
        found: tuple[bytes, Any] = self.session.call(lambda client: client.get_async(at), at)
        return found

    def _list(self, at: str) -> list[str]:
        try:
            found: list[str] = self.session.call(lambda client: client.get_children_async(at), at)
        except NoNodeError:
            return []
        return found

    # ---- writing ----------------------------------------------------------------------------

    def _put(self, path: str, at: str, data: bytes, found: tuple[Value, Any] | None, ephemeral: bool = False) -> int:
        """Replace or create a znode; returns the new version."""
        holder = found[0].owner if found else (zk_session.own_token() if ephemeral else _NOBODY)
        write = secrets.token_hex(16)
        version = found[1].version if found else None
        if len(data) <= znode.PIECE_BYTES:
            self._commit(at, Value(write, bytes(data), holder), version, ephemeral)
        else:
            znode.check_size(path, data, holder != _NOBODY)
            try:
                pieces = self._store(path, write, data)
                self._commit(at, Value(write, b"", holder, pieces), version, folder=f"{self._pieces(path)}/{write}")
            except _OvertakenError:
                self._sweep(path, at, only=write)
                raise
        if len(data) > znode.PIECE_BYTES or (found and found[0].pieces):
            self._sweep(path, at, keep=write)
        return 1 if version is None else version + 2

    def _commit(self, at: str, value: Value, version: int | None, ephemeral: bool = False, folder: str = "") -> None:
        """Write one znode if it still has the version (None means that it must not exist) and its pieces exist."""
        content = value.to_bytes()

        def start(client: KazooClient) -> Any:
            if not folder and version is None:
                return client.create_async(at, content, ephemeral=ephemeral, makepath=True)
            if not folder:
                return client.set_async(at, content, version=version)
            transaction = client.transaction()
            transaction.check(folder, 0)
            if version is None:
                transaction.create(at, content)
            else:
                transaction.set_data(at, content, version)
            return transaction.commit_async()

        def done(run: Run) -> Any:
            try:
                found = run(lambda client: client.get_async(at))
            except NoNodeError:
                return None
            return found if znode.parse(at, found[0]).write == value.write else None

        try:
            if folder and version is None:
                self.session.call(lambda client: client.ensure_path_async(znode.parent(at)), at)
            result = self.session.call(start, at, size=len(content), done=done)
            for answer in result if isinstance(result, list) else ():
                if isinstance(answer, KazooException) and not isinstance(
                    answer, (RolledBackError, RuntimeInconsistency)
                ):
                    raise answer
        except (NodeExistsError, BadVersionError, NoNodeError):
            raise _OvertakenError from None

    def _store(self, path: str, write: str, data: bytes) -> znode.Pieces:
        """Write the pieces of a large value, which are invisible until a value names them."""
        folder = f"{self._pieces(path)}/{write}"
        for number, piece in enumerate((b"", *znode.split(data))):
            at = f"{folder}/{number - 1}" if number else folder
            start = partial(KazooClient.create_async, path=at, value=piece, makepath=not number)
            try:
                self.session.call(start, at, size=len(piece))
            except NodeExistsError:
                continue  # this process wrote the piece in an attempt whose answer was lost
            except NoNodeError:
                raise _OvertakenError from None  # another process is sweeping
        return znode.describe_pieces(write, data)

    def _sweep(self, path: str, at: str, keep: str = "", only: str = "") -> None:
        """Remove pieces that no value names; the next sweep retries after a failure."""
        above = self._pieces(path)
        with contextlib.suppress(StateError, NoNodeError, NotEmptyError):
            folders = [only] if only else [folder for folder in self._list(above) if folder != keep]
            for folder in folders:
                self._drop(at, f"{above}/{folder}")
            if folders:
                self.session.call(lambda client: client.delete_async(above), above)

    def _drop(self, at: str, folder: str) -> None:
        """Remove a folder of pieces unless the value at a znode names it."""
        # A write that has not named the folder yet fails from now on, so no later value can name the folder.
        with contextlib.suppress(NoNodeError):
            self.session.call(lambda client: client.set_async(folder, b""), folder)
        with contextlib.suppress(NoNodeError):
            pieces = znode.parse(at, self._content(at)[0]).pieces
            if pieces is not None and folder.endswith(f"/{pieces.folder}"):
                return
        for target in (*(f"{folder}/{piece}" for piece in self._list(folder)), folder):
            with contextlib.suppress(NoNodeError):
                self.session.call(partial(KazooClient.delete_async, path=target), target)

    def _remove(self, at: str, status: Any) -> bool:
        """Delete a znode if it has not changed; returns False if it has changed."""

        def done(run: Run) -> Any:
            now = run(lambda client: client.exists_async(at))
            return True if now is None or now.czxid != status.czxid else None

        try:
            self.session.call(lambda client: client.delete_async(at, version=status.version), at, done=done)
        except (BadVersionError, NoNodeError):
            return False
        return True

    # ---- locks ------------------------------------------------------------------------------

    def _acquire(self, path: str, at: str, mine: Value, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        wake = threading.Event()
        watch: NodeWatch | None = None
        try:
            while True:
                with contextlib.suppress(_OvertakenError):
                    self._commit(at, mine, None, ephemeral=True)
                    return
                holder = self._read(at)
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    name = zk_session.describe(holder[0].owner) if holder else "another"
                    raise DeadlineError(f"lock {path!r} is still held by {name} after {timeout_s:g} s")
                if watch is None:
                    watch = self._watches.add(path, at, lambda _: wake.set())
                elif holder is not None:
                    wake.wait(min(left_s, _LOOK_AT_HOLDER_S))
                    wake.clear()
        finally:
            if watch is not None:
                watch.cancel()

    def _release(self, path: str, at: str, mine: Value) -> None:
        try:
            found = self._read(at)
            if found is not None and found[0].write == mine.write and self._remove(at, found[1]):
                return
            log.warning("lock %r was lost while it was held: the session with ZooKeeper had expired", path)
        except StateError as error:
            log.warning("lock %r could not be released; it ends with this process: %s", path, error)

    # ---- sessions ---------------------------------------------------------------------------

    def _on_connected(self, fresh: bool) -> None:
        self._restore_due = self._restore_due or fresh
        if self._restore_due:
            self.session.client.handler.spawn(self._restore)

    def _restore(self) -> None:
        """Restore this manager's ephemerals after the session has expired."""
        self._restore_due = False
        with self._mutex:
            mine = dict(self._mine)
        try:
            for path, data in mine.items():
                self._put_back(path, data)
        except StateError as error:
            self._restore_due = True
            log.warning("cannot restore the ephemerals of this process yet: %s", error)

    def _put_back(self, path: str, data: bytes) -> None:
        at = self._base + znode.of(path)
        for _ in range(_RACES_MAX):
            found = self._read(at)
            if found is not None and found[1].ephemeralOwner == self.session.number:
                return
            if found is not None:
                with self._mutex:
                    self._mine.pop(path, None)
                who = zk_session.describe(found[0].owner) if found[0].owner != _NOBODY else "another"
                log.error("state node %r, lost with the session, now belongs to %s", path, who)
                return
            with contextlib.suppress(_OvertakenError):
                self._put(path, at, data, None, ephemeral=True)
                log.info("restored state node %r in the new session", path)
                return


def _too_busy(path: str) -> StateError:
    return StateError(f"state node {path!r} is constantly being written by other processes; try again")
