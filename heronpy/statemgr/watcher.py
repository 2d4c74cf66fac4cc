"""Watches files for the local state manager, with inotify if the system has it, otherwise by polling.

One thread per manager compares the fingerprint of each watched node with the last one, and calls the callback if they
differ; inotify only triggers the checks. Invariant: A change is noticed within the polling interval even if inotify is
exhausted, misses the change or does not exist.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import struct
import threading
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Final

from msgspec import Struct

from heronpy.common.errors import StateError

_log = logging.getLogger(__name__)

_POLL_S: Final = 0.1
_SAFETY_POLL_S: Final = 5.0
# The kernel reports the close of a dead owner's file just before it releases the lock on it.
_OWNER_RECHECKS_S: Final = (0.001, 0.005, 0.02, 0.1)
_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _DELETE = 0x8, 0x40, 0x80, 0x200
_OVERFLOW: Final = 0x4000
_MASK: Final = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _DELETE
_EVENT: Final = struct.Struct("iIII")


class _Inotify:
    """Wraps inotify's three system calls, for directories only."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def add(self, directory: Path) -> None:
        if self._libc.inotify_add_watch(self.descriptor, os.fsencode(directory), _MASK) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def names(self) -> set[str] | None:
        """Return the names of the files that changed since the last call; None if events were lost."""
        found: set[str] = set()
        while True:
            try:
                data = os.read(self.descriptor, 64 * 1024)
            except BlockingIOError:
                return found
            at = 0
            while at < len(data):
                _, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                if mask & _OVERFLOW:
                    return None
                found.add(os.fsdecode(data[at - length : at].rstrip(b"\0")))


class FileWatch(Struct, eq=False):
    """One watched node."""

    path: str
    file: Path
    callback: Callable[[str], None]
    seen: Hashable
    watcher: Watcher
    active: bool = True

    def cancel(self) -> None:
        """End the watch: no callback starts after this."""
        self.active = False
        self.watcher.remove(self)


class Watcher:
    """The thread that watches files, and its watches."""

    def __init__(self, fingerprint: Callable[[str], Hashable], owners: Path) -> None:
        self._fingerprint = fingerprint
        self._mutex = threading.Lock()
        self._watches: list[FileWatch] = []
        self._directories: set[Path] = set()
        self._stopping = False
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._inotify: _Inotify | None = None
        self._interval_s = _SAFETY_POLL_S
        try:
            self._inotify = _Inotify()
            self._inotify.add(owners)
        except (OSError, AttributeError) as error:
            self._poll_more(error)
        self._thread = threading.Thread(target=self._run, name="state-watch", daemon=True)
        self._thread.start()

    def add(self, path: str, file: Path, callback: Callable[[str], None]) -> FileWatch:
        """Watch a node whose directory exists."""
        with self._mutex:
            if self._inotify and file.parent not in self._directories:
                try:
                    self._inotify.add(file.parent)
                    self._directories.add(file.parent)
                except OSError as error:
                    self._poll_more(error)
            # Read after the directory is watched, so that no change is missed in between.
            watch = FileWatch(path, file, callback, self._look(path), self)
            self._watches.append(watch)
        self._wake()
        return watch

    def remove(self, watch: FileWatch) -> None:
        with self._mutex:
            if watch in self._watches:
                self._watches.remove(watch)

    def close(self) -> None:
        """Stop the thread; no callback starts after this."""
        with self._mutex:
            self._stopping = True
            for watch in self._watches:
                watch.active = False
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5.0)

    def close_in_child(self) -> None:
        """Close the descriptors that a fork has copied; the thread does not exist in the child."""
        self._close_descriptors()

    def _poll_more(self, error: Exception) -> None:
        _log.info("file notification is not available (%s); polling instead", error)
        self._interval_s = _POLL_S

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # the thread has already been woken, or has ended
            os.write(self._wake_write, b"x")

    def _run(self) -> None:
        due: list[float] = []
        while not self._stopping:
            now = time.monotonic()
            if self._watches and not due:
                due = [now + self._interval_s]
            changed, owners_changed = self._wait(max(0.0, due[0] - now) if due else None)
            now = time.monotonic()
            if owners_changed:
                due = [now + delay for delay in _OWNER_RECHECKS_S]
            if not self._stopping and (changed or (due and due[0] <= now)):
                due = [moment for moment in due if moment > now]
                self._scan()
        self._close_descriptors()

    def _wait(self, timeout_s: float | None) -> tuple[bool, bool]:
        """Wait for the next check; returns whether watched files changed, and whether owner files changed."""
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        if self._inotify:
            poll.register(self._inotify.descriptor, select.POLLIN)
        ready = dict(poll.poll(None if timeout_s is None else timeout_s * 1000 + 1))
        if self._wake_read in ready:
            os.read(self._wake_read, 1024)
        if not self._inotify or self._inotify.descriptor not in ready:
            return False, False
        names = self._inotify.names()
        if names is None:
            return True, True
        with self._mutex:
            changed = any(watch.file.name in names for watch in self._watches)
        return changed, any(name.endswith(".owner") for name in names)

    def _scan(self) -> None:
        with self._mutex:
            watches = list(self._watches)
        for watch in watches:
            now = self._look(watch.path)
            if now == watch.seen:
                continue
            watch.seen = now
            if not watch.active:
                continue
            try:
                watch.callback(watch.path)
            except Exception:
                _log.exception("the callback that watches state node %r raised", watch.path)

    def _look(self, path: str) -> Hashable:
        try:
            return self._fingerprint(path)
        except (StateError, OSError) as error:
            return str(error)

    def _close_descriptors(self) -> None:
        descriptors = [self._wake_read, self._wake_write]
        if self._inotify:
            descriptors.append(self._inotify.descriptor)
            self._inotify = None
        for descriptor in descriptors:
            os.close(descriptor)
        self._wake_write = -1
