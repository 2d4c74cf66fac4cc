"""A state manager in memory, with the contract of the real ones, for tests and simulation.

Managers that share a `MemoryStore` act as processes that share a state: `close()` or `die()` removes a manager's
ephemerals and locks.  Watches are called within the call that changed the node, after the change and without a lock, so
a simulation is deterministic.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from heronpy.common.errors import DeadlineError, NodeExistsError, NoNodeError, StateError
from heronpy.statemgr.base import MAX_BYTES, check_version
from heronpy.statemgr.paths import check_path

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Node:
    """A state node; an ephemeral node has an owner."""

    data: bytes
    version: int
    owner: MemoryStateManager | None


@dataclass(slots=True, eq=False)
class _MemoryWatch:
    path: str
    callback: Callable[[str], None]
    store: MemoryStore

    def cancel(self) -> None:
        with self.store.changed:
            if self in self.store.watches:
                self.store.watches.remove(self)


@dataclass(slots=True, eq=False)
class MemoryStore:
    """The state that several managers share."""

    nodes: dict[str, Node] = field(default_factory=dict)
    watches: list[_MemoryWatch] = field(default_factory=list)
    locks: dict[str, MemoryStateManager] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)


class MemoryStateManager:
    """A state manager over a `MemoryStore`; each one acts as a separate process."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store if store is not None else MemoryStore()
        self._watches: list[_MemoryWatch] = []
        self._closed = False

    def create(self, path: str, data: bytes, ephemeral: bool = False) -> None:
        """Make a new node."""
        self._check(path, data)
        with self.store.changed:
            if path in self.store.nodes:
                raise NodeExistsError(f"state node {path!r} already exists")
            self.store.nodes[path] = Node(bytes(data), 1, self if ephemeral else None)
        self._fire([path])

    def get(self, path: str) -> tuple[bytes, int] | None:
        """Return the data and version of a node."""
        self._check(path)
        with self.store.changed:
            node = self.store.nodes.get(path)
            return (node.data, node.version) if node else None

    def set(self, path: str, data: bytes, version: int | None = None) -> int:
        """Write a node and return its new version."""
        self._check(path, data)
        with self.store.changed:
            node = self.store.nodes.get(path)
            check_version(path, node.version if node else 0, version)
            if node is None:
                node = self.store.nodes[path] = Node(b"", 0, None)
            node.data = bytes(data)
            node.version += 1
            result = node.version
        self._fire([path])
        return result

    def delete(self, path: str, version: int | None = None) -> None:
        """Remove a node."""
        self._check(path)
        with self.store.changed:
            node = self.store.nodes.get(path)
            if node is None:
                raise NoNodeError(f"state node {path!r} does not exist")
            check_version(path, node.version if node else 0, version)
            del self.store.nodes[path]
        self._fire([path])

    def children(self, path: str) -> list[str]:
        """Return the names one level below the path."""
        self._check(path or "root")
        prefix = f"{path}/" if path else ""
        with self.store.changed:
            below = [node for node in self.store.nodes if node.startswith(prefix)]
        return sorted({node.removeprefix(prefix).split("/")[0] for node in below})

    def exists(self, path: str) -> bool:
        return self.get(path) is not None

    def watch(self, path: str, callback: Callable[[str], None]) -> _MemoryWatch:
        """Call a function after each change of the node."""
        self._check(path)
        watch = _MemoryWatch(path, callback, self.store)
        with self.store.changed:
            self.store.watches.append(watch)
            self._watches.append(watch)
        return watch

    def counter(self, path: str) -> int:
        """Return the next number of a counter."""
        self._check(path)
        with self.store.changed:
            node = self.store.nodes.setdefault(path, Node(b"0", 0, None))
            if not node.data.isdigit():
                raise StateError(f"state node {path!r} does not contain a counter")
            number = int(node.data) + 1
            node.data = str(number).encode()
            node.version += 1
        self._fire([path])
        return number

    @contextmanager
    def lock(self, path: str, timeout_s: float = 10.0) -> Iterator[None]:
        self._check(path)
        with self.store.changed:
            if not self.store.changed.wait_for(lambda: path not in self.store.locks, timeout_s):
                raise DeadlineError(f"lock {path!r} is still held by another process after {timeout_s:g} s")
            self.store.locks[path] = self
        try:
            yield
        finally:
            with self.store.changed:
                if self.store.locks.get(path) is self:
                    del self.store.locks[path]
                    self.store.changed.notify_all()

    def close(self) -> None:
        """Remove this manager's ephemerals and stop its watches."""
        self.die()

    def die(self) -> None:
        """Simulate the end of the process: drop ephemerals, locks and watches."""
        with self.store.changed:
            self._closed = True
            for watch in self._watches:
                watch.cancel()
            mine = [path for path, node in self.store.nodes.items() if node.owner is self]
            for path in mine:
                del self.store.nodes[path]
            for path in [path for path, holder in self.store.locks.items() if holder is self]:
                del self.store.locks[path]
            self.store.changed.notify_all()
        self._fire(mine)

    def _check(self, path: str, data: bytes = b"") -> None:
        check_path(path)
        if self._closed:
            raise StateError("this state manager is closed")
        if len(data) > MAX_BYTES:
            raise StateError(f"value of state node {path!r} exceeds {MAX_BYTES} bytes")

    def _fire(self, paths: list[str]) -> None:
        for path in paths:
            for watch in [watch for watch in self.store.watches if watch.path == path]:
                try:
                    watch.callback(path)
                except Exception:
                    _log.exception("the callback that watches state node %r raised", path)
