"""The state manager for containers on hosts that cannot reach the scheduler's files: uses the scheduler's control
endpoint.

The root is the file with the join token; the container's session credential is in the same folder (`join_token.py`). A
killed process loses its ephemerals and locks after the session timeout; a process that closes its manager loses them
immediately. After the scheduler has restarted, or after the process itself has been silent, the process reopens its
session. It keeps the ephemerals that still exist, and recreates missing ephemerals unless another process has created
them. A lock is not restored; its holder gets a warning.

If a write got no answer because the scheduler ended, it is repeated. The endpoint then recognises a successful first
attempt by version and content. If two processes write the same bytes over the same version at that moment, the endpoint
reports success to both.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final, NoReturn

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
from heronpy.net.endpoint_calls import Result
from heronpy.net.endpoint_link import EndpointLink, FullError
from heronpy.net.endpoint_watch import EndpointWatch, Watches
from heronpy.net.join_token import TEXT_MAX_CHARS, JoinToken, SessionCredential
from heronpy.net.private import read_private
from heronpy.proto import endpoint_pb2
from heronpy.statemgr.base import close_at_exit, note_open
from heronpy.statemgr.paths import check_path

log = logging.getLogger("heronpy.net")

#: Maximum size of a value. Leaves room for the other fields of a control message.
MAX_BYTES: Final = 15 << 20
#: Interval of requests for a lock that another process holds.
_LOCK_AGAIN_S: Final = 0.05

_KINDS: Final[dict[int, type[HeronError]]] = {
    endpoint_pb2.STATE_NODE_EXISTS: NodeExistsError,
    endpoint_pb2.STATE_NO_NODE: NoNodeError,
    endpoint_pb2.STATE_VERSION: VersionMismatchError,
    endpoint_pb2.STATE_DEADLINE: DeadlineError,
    endpoint_pb2.STATE_AWAY: StateAwayError,
    endpoint_pb2.STATE_DAMAGED: DamagedStateError,
    endpoint_pb2.STATE_NO_SPACE: NoSpaceError,
}


class EndpointStateManager:
    """A state manager that uses the control endpoint named by a join token."""

    def __init__(self, root: str, settings: StatemgrSettings | None = None) -> None:
        file = Path(root)
        token = JoinToken.from_text(read_private(file, TEXT_MAX_CHARS).decode(errors="replace"), str(file))
        self._open(token, SessionCredential.load(file.parent), settings)

    @classmethod
    def of(
        cls, token: JoinToken, credential: SessionCredential, settings: StatemgrSettings | None = None
    ) -> EndpointStateManager:
        """Open the state with a join token and a session credential that are already in memory."""
        manager = cls.__new__(cls)
        manager._open(token, credential, settings)
        return manager

    def _open(self, token: JoinToken, credential: SessionCredential, settings: StatemgrSettings | None) -> None:
        self._abandoned = False
        self._mutex = Lock()
        #: Ephemerals of this manager, with their last written values.
        self._mine: dict[str, bytes] = {}
        self._watches = Watches()
        session_s = (settings or StatemgrSettings()).session_timeout_s
        try:
            self._link = EndpointLink(token, credential, session_s, self._on_session, self._watches.changed, self._arm)
        except (HeronError, ConfigError):
            self._watches.close()
            raise
        self._stay_open = close_at_exit(self)
        note_open(self)

    def create(self, path: str, data: bytes, ephemeral: bool = False) -> None:
        try:
            self._put(path, data, 0, ephemeral=ephemeral)
        except VersionMismatchError:
            raise NodeExistsError(f"state node {path!r} already exists") from None
        if ephemeral:
            with self._mutex:
                self._mine[path] = bytes(data)

    def get(self, path: str) -> tuple[bytes, int] | None:
        """Data and version of a node; if the node is watched, they may come from memory (see `endpoint_watch`)."""
        self._check(path)
        known, value, stamp = self._watches.known(path)
        if known and self._link.is_sure():
            return value
        answer = _checked(self._link.call(endpoint_pb2.StateCall(get=path), path))
        found = (answer.data, answer.number) if answer.found else None
        self._watches.learned(path, found, stamp)
        return found

    def set(self, path: str, data: bytes, version: int | None = None) -> int:
        written = self._put(path, data, version)
        with self._mutex:
            if path in self._mine:
                self._mine[path] = bytes(data)
        return written

    def delete(self, path: str, version: int | None = None) -> None:
        with self._mutex:
            # Removed before the request, so that a session that is reopened meanwhile does not restore the node.
            mine = self._mine.pop(path, None)
        try:
            self._put(path, b"", version, remove=True)
        except VersionMismatchError:
            if mine is not None:
                with self._mutex:
                    self._mine.setdefault(path, mine)
            raise

    def children(self, path: str) -> NoReturn:
        """Not supported: containers do not list nodes."""
        self._link.check_open()
        raise StateError(f"the nodes below {path or 'the root'!r} are not listed at the scheduler's control endpoint")

    def exists(self, path: str) -> bool:
        return self.get(path) is not None

    def watch(self, path: str, callback: Callable[[str], None]) -> EndpointWatch:
        """Call the callback, in another thread, after each change to the node."""
        self._check(path)
        watch, is_armed = self._watches.add(path, callback)
        if is_armed:
            return watch
        stamp = self._watches.stamp(path)
        try:
            self._watches.armed(path, stamp, _checked(self._link.call(endpoint_pb2.StateCall(watch=path), path)))
        except FullError:
            watch.cancel()
            raise
        except StateAwayError as error:
            log.warning("changes to state node %r will be reported late: %s", path, error)
            self._arm()
        except StateError:
            watch.cancel()
            raise
        return watch

    def counter(self, path: str) -> int:
        """The next number of a counter. If an answer is lost, its number may stay unused."""
        return self._change(path, counter=path).number

    @contextmanager
    def lock(self, path: str, timeout_s: float = 10.0) -> Iterator[None]:
        """Hold a lock, which ends with the session."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._change(path, lock=path)
                break
            except DeadlineError:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise DeadlineError(
                        f"lock {path!r} is still held by another process after {timeout_s:g} s"
                    ) from None
                time.sleep(min(left_s, _LOCK_AGAIN_S))
            except StateAwayError:
                self._start_unlock(path)  # the lock may have been granted after all
                raise
        opened = self._link.opened
        try:
            yield
        finally:
            self._unlock(path, opened)

    def close(self) -> None:
        """End the session, which removes its ephemerals, and stop all watches."""
        self._stay_open()
        self._watches.close()
        self._link.close()

    def abandon(self) -> None:
        """Close without a message, because the endpoint is permanently gone together with its locks and ephemerals."""
        self._abandoned = True
        self._stay_open()
        self._watches.close()
        self._link.close_silently()

    def close_in_child(self) -> None:
        """Stop using the session in a forked child, because it belongs to the parent."""
        self._link.close_in_child()

    # ---- requests -----------------------------------------------------------------------------
    def _check(self, path: str, data: bytes = b"") -> None:
        self._link.check_open()
        check_path(path)
        if len(data) > MAX_BYTES:
            raise StateError(f"value of state node {path!r} exceeds {MAX_BYTES} bytes")

    def _put(self, path: str, data: bytes, version: int | None, remove: bool = False, ephemeral: bool = False) -> int:
        self._check(path, data)
        put = endpoint_pb2.StatePut(path=path, data=bytes(data), remove=remove, ephemeral=ephemeral)
        put.versioned, put.version = version is not None, version or 0
        return self._change(path, put=put).number

    def _change(self, path: str, **what: Any) -> endpoint_pb2.StateAnswer:
        self._check(path)
        self._watches.forget(path)
        try:
            return _checked(self._link.call(endpoint_pb2.StateCall(**what), path))
        finally:
            self._watches.forget(path)

    def _unlock(self, path: str, opened: int) -> None:
        if self._abandoned:
            return
        if opened != self._link.opened:
            log.warning("lock %r was lost while it was held: the session at the control endpoint had ended", path)
            return
        if not self._start_unlock(path).wait(self._link.patience()):
            log.warning("lock %r could not be released yet; it ends with this process", path)

    def _start_unlock(self, path: str) -> Event:
        ended = Event()
        with suppress(StateError):
            self._link.start(endpoint_pb2.StateCall(unlock=path), lambda _: ended.set())
        return ended

    # ---- watches, and sessions that are opened again; all in the link's thread ----------------
    def _arm(self) -> None:
        """Set the watches that the endpoint does not have yet."""
        for path, stamp in self._watches.unasked():
            with suppress(StateError):
                self._link.start(endpoint_pb2.StateCall(watch=path), partial(self._armed_late, path, stamp))

    def _armed_late(self, path: str, stamp: int, result: Result) -> None:
        """Record that a watch was set late and call its callback, because earlier changes may have been missed."""
        if not isinstance(result, StateError):
            self._watches.armed(path, stamp, result, late=True)

    def _on_session(self) -> None:
        self._watches.renew()
        self._arm()
        with self._mutex:
            mine = dict(self._mine)
        for path, data in mine.items():
            # The node may still exist.
            put = endpoint_pb2.StateCall(again=True, put=endpoint_pb2.StatePut(path=path, data=data, ephemeral=True))
            with suppress(StateError):
                self._link.start(put, partial(self._put_back, path))

    def _put_back(self, path: str, result: Result) -> None:
        self._watches.forget(path)
        if isinstance(result, StateError):
            return  # this process ends, or the endpoint does not admit it
        if result.error == endpoint_pb2.STATE_NODE_EXISTS:
            with self._mutex:
                self._mine.pop(path, None)
            log.error("state node %r, lost with the session, now belongs to another process", path)
        elif result.error:
            log.error("state node %r, lost with the session, cannot be restored: %s", path, result.text)


def _checked(answer: endpoint_pb2.StateAnswer) -> endpoint_pb2.StateAnswer:
    if answer.error:
        raise _KINDS.get(answer.error, StateError)(answer.text)
    return answer
