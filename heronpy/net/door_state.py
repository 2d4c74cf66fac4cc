"""State at the door of the scheduler: for containers on hosts that do not reach its files.

The root is the file of the ticket; the container's membership lies next to it (`ticket.py`). A process that is killed
loses its ephemerals and locks once it was silent for a session; one that closes its manager, at once. After a restart
of the scheduler, or a silence of its own, a process gets a new session and with it the ephemerals that are left of the
old one; it makes the others again unless another process has them now. A lock is not restored: its holder gets a
warning.

A write that the scheduler's end left without an answer is looked up: version and content say whether it was done. So
when two processes write the same bytes over the same version in that moment, both are told that theirs was.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final

from heronpy.common.errors import (
    ConfigError,
    DamagedStateError,
    DeadlineError,
    HeronError,
    NodeExistsError,
    NoNodeError,
    NoSpaceError,
    StateAwayError,
    StateError,
    VersionMismatchError,
)
from heronpy.common.setting_types import StatemgrSettings
from heronpy.net.door_link import Call, DoorLink, FullError, UncertainError
from heronpy.net.door_watch import DoorWatch, Watches
from heronpy.net.private import read_private
from heronpy.net.ticket import TEXT_MAX_CHARS, Membership, Ticket
from heronpy.proto import door_pb2
from heronpy.statemgr.base import check_version
from heronpy.statemgr.paths import check_path

log = logging.getLogger("heronpy.net")

#: Leaves room in a control message for the rest of it.
MAX_BYTES: Final = 15 << 20
#: A longer wait for a lock is several calls, so that no call is under way for long.
_LOCK_STEP_S: Final = 2.0
#: How often a write whose answer was lost with its session is begun anew.
_TRIES_MAX: Final = 20

_KINDS: Final[dict[int, type[HeronError]]] = {
    door_pb2.STATE_NODE_EXISTS: NodeExistsError,
    door_pb2.STATE_NO_NODE: NoNodeError,
    door_pb2.STATE_VERSION: VersionMismatchError,
    door_pb2.STATE_DEADLINE: DeadlineError,
    door_pb2.STATE_AWAY: StateAwayError,
    door_pb2.STATE_DAMAGED: DamagedStateError,
    door_pb2.STATE_NO_SPACE: NoSpaceError,
}


class DoorStateManager:
    """A state manager over the door that a ticket names."""

    def __init__(self, root: str, settings: StatemgrSettings | None = None) -> None:
        file = Path(root)
        ticket = Ticket.from_text(read_private(file, TEXT_MAX_CHARS).decode(errors="replace"), str(file))
        self._open(ticket, Membership.load(file.parent), settings)

    @classmethod
    def of(cls, ticket: Ticket, member: Membership, settings: StatemgrSettings | None = None) -> DoorStateManager:
        """For whoever has a ticket and a membership without files."""
        manager = cls.__new__(cls)
        manager._open(ticket, member, settings)
        return manager

    def _open(self, ticket: Ticket, member: Membership, settings: StatemgrSettings | None) -> None:
        self._abandoned = False
        self._mutex = Lock()
        #: Ephemerals of this manager, as last written.
        self._mine: dict[str, bytes] = {}
        #: Those that the present session got from an earlier one.
        self._kept: frozenset[str] = frozenset()
        self._watches = Watches(self._unwatch)
        session_s = (settings or StatemgrSettings()).session_timeout_s
        try:
            self._link = DoorLink(ticket, member, session_s, self._on_session, self._watches.changed)
        except (HeronError, ConfigError):
            self._watches.close()
            raise
        self._at_exit = partial(_close_at_exit, weakref.ref(self))
        atexit.register(self._at_exit)
        _open_managers.add(self)

    def create(self, path: str, data: bytes, ephemeral: bool = False) -> None:
        """Make a new node."""
        self._check(path, data)
        body = door_pb2.StateCall(create=door_pb2.StateCreate(path=path, data=bytes(data), ephemeral=ephemeral))
        for _ in range(_TRIES_MAX):
            try:
                self._write(body, path)
            except UncertainError:
                if ephemeral and path in self._kept:
                    break
                if not ephemeral and self.get(path) == (data, 1):
                    raise StateAwayError(
                        f"the scheduler's door restarted while it made state node {path!r}: whether it is this"
                        " process's is unknown"
                    ) from None
                continue
            break
        else:
            raise _too_often(path)
        if ephemeral:
            with self._mutex:
                self._mine[path] = bytes(data)

    def get(self, path: str) -> tuple[bytes, int] | None:
        """Data and version of a node; of a watched one perhaps from memory (see `door_watch`)."""
        self._check(path)
        known, value, stamp = self._watches.known(path)
        if known and self._link.is_sure():
            return value
        answer = self._ask(door_pb2.StateCall(get=path), path)
        found = (answer.data, answer.number) if answer.found else None
        self._watches.learned(path, found, stamp)
        return found

    def set(self, path: str, data: bytes, version: int | None = None) -> int:
        """Write a node and return its new version."""
        self._check(path, data)
        request = door_pb2.StateSet(path=path, data=bytes(data), versioned=version is not None, version=version or 0)
        for _ in range(_TRIES_MAX):
            try:
                written = self._write(door_pb2.StateCall(set=request), path).number
            except UncertainError:
                found = self.get(path)
                if version is None:
                    continue
                if found != (data, version + 1):
                    check_version(path, found[1] if found is not None else 0, version)
                    continue
                written = version + 1
            with self._mutex:
                if path in self._mine:
                    self._mine[path] = bytes(data)
            return written
        raise _too_often(path)

    def delete(self, path: str, version: int | None = None) -> None:
        """Remove a node."""
        self._check(path)
        request = door_pb2.StateDelete(path=path, versioned=version is not None, version=version or 0)
        for _ in range(_TRIES_MAX):
            try:
                self._write(door_pb2.StateCall(delete=request), path)
            except UncertainError:
                found = self.get(path)
                if found is not None:
                    check_version(path, found[1], version)
                    continue
            with self._mutex:
                self._mine.pop(path, None)
            return
        raise _too_often(path)

    def children(self, path: str) -> list[str]:
        """Names one level below the path."""
        if path:
            self._check(path)
        return list(self._ask(door_pb2.StateCall(children=path), path or "the root").names)

    def exists(self, path: str) -> bool:
        """Whether the node exists."""
        return self.get(path) is not None

    def watch(self, path: str, callback: Callable[[str], None]) -> DoorWatch:
        """Call back from a thread after each change of the node."""
        self._check(path)
        watch, ask, leaving = self._watches.add(path, callback)
        if leaving is not None:
            leaving.done.wait(self._link.patience())
        try:
            if ask:
                self._arm(path)
        except FullError:
            watch.cancel()
            raise
        except StateAwayError as error:
            log.warning("changes of state node %r are reported later: %s", path, error)
        except StateError:
            watch.cancel()
            raise
        return watch

    def counter(self, path: str) -> int:
        """The next number of a counter."""
        self._check(path)
        for _ in range(_TRIES_MAX):
            # One whose answer was lost may have taken a number, which is then nobody's.
            with suppress(UncertainError):
                return self._write(door_pb2.StateCall(counter=path), path).number
        raise _too_often(path)

    @contextmanager
    def lock(self, path: str, timeout_s: float = 10.0) -> Iterator[None]:
        """Hold a lock, which ends with the session."""
        self._check(path)
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            step_s = min(left_s, _LOCK_STEP_S)
            request = door_pb2.StateLock(path=path, timeout_s=step_s)
            try:
                self._write(door_pb2.StateCall(lock=request), path, step_s, partial(self._locked_late, path))
                break
            except DeadlineError:
                if left_s <= _LOCK_STEP_S:
                    raise DeadlineError(f"lock {path!r} is still held by another after {timeout_s:g} s") from None
            except UncertainError:
                continue
        session = self._link.session
        try:
            yield
        finally:
            self._unlock(path, session)

    def close(self) -> None:
        """Remove this manager's ephemerals, by ending the session, and stop its watches."""
        atexit.unregister(self._at_exit)
        self._watches.close()
        self._link.close()

    def abandon(self) -> None:
        """Close, but without a word to the door, which is gone for good, and its locks and ephemerals with it."""
        self._abandoned = True
        atexit.unregister(self._at_exit)
        self._watches.close()
        self._link.close_silently()

    def close_in_child(self) -> None:
        """After a fork: the session belongs to the parent."""
        self._link.close_in_child()

    # ---- asking -------------------------------------------------------------------------------
    def _check(self, path: str, data: bytes = b"") -> None:
        self._link.check_open()
        check_path(path)
        if len(data) > MAX_BYTES:
            raise StateError(f"value of state node {path!r} exceeds {MAX_BYTES} bytes")

    def _ask(self, body: door_pb2.StateCall, what: str) -> door_pb2.StateAnswer:
        return _checked(self._link.call(body, what))

    def _write(
        self,
        body: door_pb2.StateCall,
        path: str,
        wait_s: float = 0.0,
        lasting: Callable[[door_pb2.StateAnswer], None] | None = None,
    ) -> door_pb2.StateAnswer:
        self._watches.forget(path)
        try:
            return _checked(self._link.call(body, path, numbered=True, wait_s=wait_s, lasting=lasting))
        finally:
            self._watches.forget(path)

    # ---- locks and watches --------------------------------------------------------------------
    def _locked_late(self, path: str, answer: door_pb2.StateAnswer) -> None:
        """The answer to a lock for which nobody waits any more."""
        if not answer.error:
            with suppress(StateError):
                self._link.start(door_pb2.StateCall(unlock=path), numbered=True, lasting=_ignore, given_up=True)

    def _unlock(self, path: str, session: int) -> None:
        if self._abandoned:
            return
        if session != self._link.session:
            log.warning("lock %r was lost while it was held: the session at the scheduler's door had ended", path)
            return
        try:
            with suppress(UncertainError):
                self._link.call(door_pb2.StateCall(unlock=path), path, numbered=True, lasting=_ignore)
        except StateError as error:
            log.warning("lock %r ends later, at the latest with this process: %s", path, error)

    def _arm(self, path: str) -> None:
        stamp = self._watches.arming(path)
        body = door_pb2.StateCall(watch=path)
        late = partial(self._armed_late, path)
        try:
            answer = _checked(self._link.call(body, path, numbered=True, lasting=late))
        except UncertainError:
            return  # the new session asks for all watches
        value = (answer.data, answer.number) if answer.found else None
        self._watches.armed(path, stamp, value if answer.seen else ...)

    def _armed_late(self, path: str, answer: door_pb2.StateAnswer) -> None:
        """The answer came after the caller was told that changes are reported later: some may have been missed."""
        if not answer.error:
            self._watches.armed(path, -1, ...)
            self._watches.fire(path)

    def _unwatch(self, path: str) -> Call | None:
        with suppress(StateError):
            return self._link.start(door_pb2.StateCall(unwatch=path), numbered=True, lasting=_ignore, given_up=True)
        return None

    # ---- sessions -----------------------------------------------------------------------------
    def _on_session(self, kept: list[str]) -> None:
        """A new session after one that has ended; in the link's thread, before any other call is served."""
        self._kept = frozenset(kept)
        again = self._watches.renew()
        self._watches.later(partial(self._restore, again))

    def _restore(self, watched: list[str]) -> None:
        """Make the ephemerals that are gone again, and ask for all watches."""
        for path in watched:
            with suppress(StateError):  # that one goes on, or the next session does it
                self._arm(path)
            self._watches.fire(path)
        with self._mutex:
            mine = dict(self._mine)
        for path, data in mine.items():
            if path not in self._kept:
                self._put_back(path, data)

    def _put_back(self, path: str, data: bytes) -> None:
        request = door_pb2.StateCreate(path=path, data=data, ephemeral=True)
        late = partial(self._put_back_answered, path)
        try:
            late(self._link.call(door_pb2.StateCall(create=request), path, numbered=True, lasting=late))
        except UncertainError:
            return  # the next session tries it again
        except StateError as error:
            log.warning("cannot put state node %r back yet: %s", path, error)

    def _put_back_answered(self, path: str, answer: door_pb2.StateAnswer) -> None:
        self._watches.forget(path)
        if answer.error == door_pb2.STATE_NODE_EXISTS:
            with self._mutex:
                self._mine.pop(path, None)
            log.error("state node %r, lost with the session, belongs to another now", path)
        elif answer.error:
            log.error("state node %r, lost with the session, cannot be put back: %s", path, answer.text)
        else:
            log.info("put state node %r back in the new session", path)


def _ignore(_: door_pb2.StateAnswer) -> None:
    """For calls that go on although nobody waits for their answer."""


def _checked(answer: door_pb2.StateAnswer) -> door_pb2.StateAnswer:
    if answer.error:
        raise _KINDS.get(answer.error, StateError)(answer.text)
    return answer


def _too_often(path: str) -> StateError:
    return StateAwayError(f"the scheduler's door restarts again and again; state node {path!r} was not written")


def _close_at_exit(reference: weakref.ref[DoorStateManager]) -> None:
    manager = reference()
    if manager is not None:
        manager.close()


_open_managers: weakref.WeakSet[DoorStateManager] = weakref.WeakSet()


def _close_in_child() -> None:
    for manager in list(_open_managers):
        manager.close_in_child()


os.register_at_fork(after_in_child=_close_in_child)
