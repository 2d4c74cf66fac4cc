"""The contract of all state managers.

A node has a path ("topologies/word_count"), bytes and a version. Parents need not exist. The version of a new node is 1
and increases by one with each write. An ephemeral node exists for as long as the process that created it. Once this
process has ended, readers do not find the node, and any process may create it again.

Invariants: A reader sees the old or the new value of a node, never a mixture, even if the writer dies. If two writers
name the same version, exactly one succeeds. A counter never returns the same number twice. After a change, a watch
fires at least once; several changes may lead to a single call. Errors of the store raise a `StateError` that names the
node or file.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol

from heronpy.common.errors import NoNodeError, VersionMismatchError

MAX_BYTES = 64 * 1024 * 1024
"""Maximum size of the value of a node."""


class Watch(Protocol):
    """A subscription to changes to a node."""

    def cancel(self) -> None:
        """End the watch; a running callback may still finish."""


class StateManager(Protocol):
    """Versioned nodes with ephemerals, watches, counters and locks; safe to use from any thread."""

    def create(self, path: str, data: bytes, ephemeral: bool = False) -> None:
        """Create a node with version 1. Raises NodeExistsError if the node exists."""

    def get(self, path: str) -> tuple[bytes, int] | None:
        """Return the data and version of a node; None if the node does not exist."""

    def set(self, path: str, data: bytes, version: int | None = None) -> int:
        """Write a node; returns its new version.

        Without `version` the write is unconditional and creates a missing node. Raises VersionMismatchError if the node
        has a version other than `version` (0 means that the node must not exist), and NoNodeError if the node is
        missing. An ephemeral node stays ephemeral, with the same owner.
        """

    def delete(self, path: str, version: int | None = None) -> None:
        """Remove a node. Raises NoNodeError if it is missing, and VersionMismatchError like `set`."""

    def children(self, path: str) -> list[str]:
        """Return the sorted names one level below the path that are or contain nodes; "" is the root."""

    def exists(self, path: str) -> bool:
        """Whether the node exists."""

    def watch(self, path: str, callback: Callable[[str], None]) -> Watch:
        """Call `callback(path)` each time the node has been created, changed or removed.

        The callback runs in another thread or inside the changing call, so it must be short and thread-safe; an asyncio
        program forwards the call with `call_soon_threadsafe`.
        """

    def counter(self, path: str) -> int:
        """Increment a counter and return it: 1, 2, 3, ..."""

    def lock(self, path: str, timeout_s: float = 10.0) -> AbstractContextManager[None]:
        """Hold a lock, which is released if the holder's process ends. Raises DeadlineError after the timeout.

        Locks are not re-entrant and are not nodes: `get` and `children` do not return them.
        """

    def close(self) -> None:
        """Remove this manager's ephemerals, stop its watches and refuse further calls."""


def check_version(path: str, actual: int, expected: int | None) -> None:
    """Raise an error if a node does not have the version that its writer expects; version 0 means a missing node."""
    if expected is None or actual == expected:
        return
    if actual == 0:
        raise NoNodeError(f"state node {path!r} does not exist")
    raise VersionMismatchError(f"state node {path!r} has version {actual}, not {expected}: another process changed it")


class Forked(Protocol):
    """A state manager whose resources are copied by a fork."""

    def close(self) -> None: ...

    def close_in_child(self) -> None:
        """Drop the manager's resources in the child after a fork, because they belong to the parent."""


_open_managers: Final[weakref.WeakSet[Forked]] = weakref.WeakSet()


def note_open(manager: Forked) -> None:
    """Make every child that this process forks from now on call the manager's `close_in_child`."""
    _open_managers.add(manager)


def close_at_exit(manager: Forked) -> Callable[[], None]:
    """Close the manager when the process ends; the returned function cancels this."""
    reference = weakref.ref(manager)

    def close() -> None:
        found = reference()
        if found is not None:
            found.close()

    atexit.register(close)
    return lambda: atexit.unregister(close)


def _close_in_child() -> None:
    for manager in list(_open_managers):
        manager.close_in_child()


os.register_at_fork(after_in_child=_close_in_child)
