"""One session with ZooKeeper: connection, waits, retries, readable errors, watches, and the owners of ephemerals.

Invariants: No call exceeds its timeout, and a call from an event loop's thread waits only briefly, so an outage never
blocks a loop. A write whose answer was lost is repeated only if it is known to have failed. A lost connection does not
end the session: its ephemerals and watches are kept until ZooKeeper reports that the session has expired.

Watches remain active after each change, after an outage and in a new session. ZooKeeper's own watches fire once and end
with the connection, so each event and each new connection triggers another read, and a changed value triggers a
callback. Invariants: Only `add` waits for ZooKeeper, and only briefly. Callbacks run one after another in kazoo's
callback thread. Changes that arrive faster than the callback runs are combined into one call.

The owner of an ephemeral is a process, identified by machine, pid and start time. ZooKeeper notices a killed process
when its session ends, seconds later; a process on the same machine notices it immediately. Invariant: a process counts
as dead only if this machine's kernel reports it, so processes on other machines never count as dead.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    NotReadOnlyCallError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import Callback, EventType, KazooState
from kazoo.retry import KazooRetry, RetryFailedError
from kazoo.security import CREATOR_ALL_ACL

from heronpy.common.errors import ConfigError, StateAwayError, StateError
from heronpy.common.host import pid_namespace, started_at, this_host
from heronpy.common.setting_types import StatemgrSettings
from heronpy.statemgr import znode

log = logging.getLogger("heronpy.statemgr.zookeeper")
#: kazoo's own logger; this module logs failures once instead of once per attempt.
_kazoo_log = logging.getLogger("heronpy.statemgr.kazoo")
_kazoo_log.setLevel(logging.CRITICAL)

PATIENCE_S: Final = 10.0
#: Timeouts in seconds of an answer and of a new connection, for callers in the thread of an event loop, which
#: block all other work of their process.
PATIENCE_OF_LOOP_S: Final = 2.0
PATIENCE_OF_LOOP_AWAY_S: Final = 0.1
_LOOK_CLOSED_S: Final = 0.1
_STOP_MAX_S: Final = 3.0
_RECONNECT_MAX_S: Final = 0.5
_LARGE_BYTES: Final = 64 * 1024

#: Errors about the state of the node, which the caller handles.
_ANSWERS = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)
Start = Callable[[KazooClient], Any]
"""Function that begins an operation and returns its asynchronous result."""


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Limits the wait for a server that accepts connections but does not answer, for example while it starts.

    kazoo would wait for the whole session timeout, and the session would expire. This handler reconnects in time.
    """

    def __init__(self, answer_max_s: float) -> None:
        super().__init__()
        self._answer_max_s = answer_max_s

    def create_connection(self, *arguments: Any, **options: Any) -> Any:
        options["timeout"] = min(options.get("timeout", self._answer_max_s), self._answer_max_s)
        return super().create_connection(*arguments, **options)

    def select(self, reads: Any, writes: Any, errors: Any, timeout: float | None = None) -> Any:
        # kazoo waits on one socket for an expected answer, and on two sockets for any event.
        if len(reads) == 1 and timeout is not None:
            timeout = min(timeout, self._answer_max_s)
        return super().select(reads, writes, errors, timeout)


class Session:
    """A session that stays open until `close`."""

    def __init__(self, root: str, settings: StatemgrSettings) -> None:
        hosts, self.base = znode.parse_root(root)
        login = read_login(settings.auth_file) if settings.auth_file else None
        self.hosts = hosts
        self._timeout_s = settings.session_timeout_s
        self._refusal = ""
        self._suspended = self._lost = False
        self.on_connected: list[Callable[[bool], None]] = []
        """Called for each new connection; the argument is True if the session is new. The callback must not wait."""
        self.client = KazooClient(
            hosts=hosts,
            timeout=settings.session_timeout_s,
            handler=_Handler(max(1.0, settings.session_timeout_s / 3)),
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=_RECONNECT_MAX_S),
            auth_data=[("digest", login)] if login else None,
            default_acl=[*CREATOR_ALL_ACL] if login else None,
            logger=_kazoo_log,
        )
        self.client.add_listener(self._on_state)
        self._connected = self.client.start_async()
        if not self._connected.wait(PATIENCE_S):
            self.close()
            raise self._away(PATIENCE_S)

    @property
    def number(self) -> int:
        """The id of the session, as in a znode's ephemeralOwner; 0 if there is no session."""
        found = self.client.client_id
        return int(found[0]) if found else 0

    def call(
        self, start: Start, where: str, *, size: int = 0, done: Callable[[Callable[[Start], Any]], Any] | None = None
    ) -> Any:
        """Perform one operation on a znode; returns its result.

        An interrupted operation is repeated. A write needs `done`, which is called before the operation is repeated: it
        receives a function that performs operations, and returns the result if the write has already succeeded.
        """
        self.check_open()
        patience_s = self.patience()
        deadline = time.monotonic() + patience_s
        repeated = False

        def run(operation: Start) -> Any:
            while not self._connected.wait(min(max(deadline - time.monotonic(), 0.0), _LOOK_CLOSED_S)):
                self.check_open()
                if time.monotonic() >= deadline:
                    raise KazooTimeoutError
            return operation(self.client).get(timeout=max(deadline - time.monotonic(), 0.01))

        def attempt() -> Any:
            nonlocal repeated
            if repeated and done is not None and (result := done(run)) is not None:
                return result
            repeated = True
            return run(start)

        retry = KazooRetry(
            max_tries=-1, delay=0.02, max_delay=0.5, deadline=patience_s, interrupt=lambda: bool(self._refusal)
        )
        try:
            return retry(attempt)
        except _ANSWERS:
            raise
        except (RetryFailedError, KazooTimeoutError, ConnectionLoss, ConnectionClosedError):
            self.check_open()
            raise self._away(patience_s, where, size) from None
        except (NoAuthError, AuthFailedError):
            raise StateError(
                f"ZooKeeper at {self.hosts} refuses access to {where}; set heron.statemgr.auth_file to a file"
                " with the user:password that created it"
            ) from None
        except NotReadOnlyCallError:
            raise StateError(f"ZooKeeper at {self.hosts} is read-only now; {where} was not written") from None
        except KazooException as error:
            reason = str(error) or type(error).__name__
            raise StateError(f"ZooKeeper at {self.hosts} cannot serve {where}: {reason}") from error

    def patience(self) -> float:
        """Return how many seconds a call from this thread may take."""
        asyncio = sys.modules.get("asyncio")
        if asyncio is None or asyncio._get_running_loop() is None:
            return PATIENCE_S
        return PATIENCE_OF_LOOP_S if self._connected.is_set() else PATIENCE_OF_LOOP_AWAY_S

    def check_open(self) -> None:
        """Raise an error if the session can no longer be used."""
        if self._refusal:
            raise StateError(self._refusal)

    def close(self, in_callback: bool = False) -> None:
        """End the session, which removes its ephemerals and watches."""
        if self._refusal:
            return
        self._refusal = "this state manager is closed"
        # Close in a thread: without a server this takes long, and a callback cannot wait for itself.
        stopper = threading.Thread(target=self._stop, name="state-close", daemon=True)
        stopper.start()
        if not in_callback:
            stopper.join(_STOP_MAX_S)

    def close_in_child(self) -> None:
        """Drop the parent's connection after a fork, without notifying ZooKeeper."""
        if self._refusal:
            return
        self._refusal = "this state manager was opened before a fork; open a new one"
        connection = self.client._connection
        for name in ("_socket", "_read_sock", "_write_sock"):
            sock = getattr(connection, name, None)
            if sock is not None:
                sock.close()

    def _stop(self) -> None:
        # An unreachable server gets no message, and ends the session itself after the timeout.
        with contextlib.suppress(Exception):
            self.client.stop()
        with contextlib.suppress(Exception):
            self.client.close()

    def _on_state(self, state: str) -> None:
        """Handle a change of the connection state; kazoo calls this from its own thread."""
        if self._refusal:
            return
        if state == KazooState.SUSPENDED:
            self._suspended = True
            log.warning(
                "lost the connection to ZooKeeper at %s; reconnecting; the process continues normally unless its"
                " session of %g s ends first",
                self.hosts,
                self._timeout_s,
            )
        elif state == KazooState.LOST:
            self._lost = True
            log.warning("the session with ZooKeeper at %s has ended; starting a new session", self.hosts)
        elif state == KazooState.CONNECTED:
            fresh, self._lost = self._lost, False
            if self._suspended:
                which = "a new" if fresh else "the same"
                log.info("reconnected to ZooKeeper at %s, in %s session", self.hosts, which)
            for listener in list(self.on_connected):
                listener(fresh)

    def _away(self, patience_s: float, where: str = "", size: int = 0) -> StateAwayError:
        what = f"{where} was not served" if where else "no session"
        hint = "check that it is running, and that heron.statemgr.root is correct"
        if size > _LARGE_BYTES:
            hint += f"; if it runs, its jute.maxbuffer is too small for the {size} bytes of this node: raise it"
        return StateAwayError(f"ZooKeeper at {self.hosts} does not answer ({what} within {patience_s:g} s): {hint}")


def read_login(file: str) -> str:
    """Read the line `user:password` from a file that only its owner may read."""
    path = os.path.expanduser(file)
    if not os.path.isabs(path):
        raise ConfigError(f"{file} (heron.statemgr.auth_file) must be an absolute path or begin with ~")
    try:
        with open(path, encoding="utf-8") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"cannot read {path} (heron.statemgr.auth_file): {reason}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"{path} (heron.statemgr.auth_file) can be read by other users; run chmod 600 {path}")
    user, colon, password = text.partition(":")
    if not (user and colon and password) or "\n" in text:
        raise ConfigError(f"{path} (heron.statemgr.auth_file) must contain one line user:password")
    return text


_NEVER: Final = object()
"""The value of a watch before its first read."""


@dataclass(slots=True, eq=False)
class NodeWatch:
    path: str
    callback: Callable[[str], None]
    place: _Place
    owner: Watches
    seen: object = _NEVER
    overdue: bool = False
    """Whether the first read was so late that earlier changes must also be reported."""
    queued: bool = False
    active: bool = True
    armed: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """End the watch: no callback starts after this."""
        self.active = False
        self.owner.remove(self)


@dataclass(slots=True, eq=False)
class _Place:
    znode: str
    owner: Watches
    watches: list[NodeWatch] = field(default_factory=list)

    def on_event(self, event: Any) -> None:
        # Ignore events of type NONE, which report the end of the connection: a new connection triggers a new read.
        if event.type != EventType.NONE and self.watches:
            self.owner.look(self)


class Watches:
    """All watches of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._mutex = threading.Lock()
        self._places: dict[str, _Place] = {}
        self._delivering = 0
        session.on_connected.append(self._on_connected)

    def add(self, path: str, znode: str, callback: Callable[[str], None]) -> NodeWatch:
        """Watch a znode; all changes after this call returns are reported, including changes during an outage."""
        with self._mutex:
            place = self._places.get(znode)
            if place is None:
                place = self._places[znode] = _Place(znode, self)
            watch = NodeWatch(path, callback, place, self)
            place.watches.append(watch)
        self.look(place)
        if not watch.armed.wait(self._session.patience()):
            with self._mutex:
                watch.overdue = watch.seen is _NEVER
        return watch

    def remove(self, watch: NodeWatch) -> None:
        with self._mutex:
            if watch in watch.place.watches:
                watch.place.watches.remove(watch)
            if not watch.place.watches and self._places.get(watch.place.znode) is watch.place:
                del self._places[watch.place.znode]

    def close(self) -> None:
        """End all watches: no callback starts after this."""
        with self._mutex:
            for place in self._places.values():
                for watch in place.watches:
                    watch.active = False
            self._places.clear()

    def is_callback(self) -> bool:
        """Whether the caller is running in a callback."""
        return self._delivering == threading.get_ident()

    def look(self, place: _Place) -> None:
        """Request the current state of a znode, and a notification when it next changes."""
        result = self._session.client.exists_async(place.znode, watch=place.on_event)
        result.rawlink(partial(self._looked, place))

    def _on_connected(self, fresh: bool) -> None:
        with self._mutex:
            places = list(self._places.values())
        for place in places:
            self.look(place)

    def _looked(self, place: _Place, result: Any) -> None:
        error = result.exception
        if error is not None:
            # The next connection triggers the next read.
            if not isinstance(error, (ConnectionLoss, SessionExpiredError, ConnectionClosedError)):
                log.error("cannot watch ZooKeeper node %s: %s", place.znode, error or type(error).__name__)
            return
        status = result.value
        now = (status.czxid, status.mzxid) if status is not None else None
        with self._mutex:
            changed = []
            for watch in place.watches:
                if watch.seen != now and (watch.overdue or watch.seen is not _NEVER) and not watch.queued:
                    watch.queued = True
                    changed.append(watch)
                watch.seen, watch.overdue = now, False
                watch.armed.set()
        for watch in changed:
            self._session.client.handler.dispatch_callback(Callback("watch", self._deliver, (watch,)))

    def _deliver(self, watch: NodeWatch) -> None:
        watch.queued = False
        if not watch.active:
            return
        self._delivering = threading.get_ident()
        try:
            watch.callback(watch.path)
        except Exception:
            log.exception("the callback that watches state node %r raised", watch.path)
        finally:
            self._delivering = 0


def own_token() -> str:
    """Return a text that identifies this process, for `is_dead`."""
    pid = os.getpid()
    return f"{_machine()}:{pid}:{started_at(pid)}"


def is_dead(token: str) -> bool:
    """Whether the process with this token ran on this machine and has ended."""
    machine, _, process = token.partition(":")
    if machine != _machine():
        return False
    pid, _, started = process.partition(":")
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return started != "0" and str(started_at(int(pid))) != started


def describe(token: str) -> str:
    """Describe the process with this token, for messages."""
    machine, _, process = token.partition(":")
    where = "" if machine == _machine() else " on another machine"
    return f"process {process.partition(':')[0]}{where}"


@cache
def _machine() -> str:
    """Return the id of the machine's current boot and, in a container, of the pid namespace."""
    boot, numbers = this_host().boot, pid_namespace()
    # Without these ids, return a unique name, so that no process counts as dead.
    known = f"{boot} {numbers}" if boot and numbers else os.urandom(16).hex()
    return hashlib.sha256(known.encode()).hexdigest()[:16]
