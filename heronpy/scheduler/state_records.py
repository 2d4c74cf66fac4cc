"""The control endpoint's records of sessions and node owners, and the steps of each call. Pure.

A call is a generator. It yields a `Step` for the state manager, receives the step's result (an error is thrown into
it), and returns the answer. Reads (`get`) run concurrently; all other calls run one by one.

An ephemeral of a session is an ordinary node. The *list of owners* names the ephemeral's session, and is written before
the node is created. Readers therefore find the node while no scheduler is running, and the next scheduler finds the
session in the list.

Invariants:

- A node is removed only when its session has ended, either by a message from the session or after `session_s` of
  silence that this endpoint has observed. Time in which the endpoint was stopped does not count as silence.
- If a session was opened at an earlier scheduler, its nodes are kept for `session_s`, until its container reopens it.
- A path has at most one owner. A listed owner without a node is harmless, because only the endpoint creates such nodes.
- The changes of a session are carried out in the order of their numbers, and never twice. A change with a number below
  the latest is refused, so a late copy has no effect.
- The list is written only over the version that this endpoint last read or wrote: once another scheduler has written
  it, this endpoint stops serving. The list contains the name of the endpoint that wrote it. After a write with an
  unknown outcome, for example because the disk failed, an endpoint recognises its own list and continues; no client has
  received an answer for this write.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from heronpy.common.errors import (
    DamagedStateError,
    DeadlineError,
    NodeExistsError,
    NoNodeError,
    StateAwayError,
    StateError,
    VersionMismatchError,
)
from heronpy.proto import endpoint_pb2
from heronpy.scheduler.state_rules import CLIENT, ClientRules, ContainerRules, Rules, Use
from heronpy.statemgr import paths

#: Call `StateRecords.tick` at least this often; a longer pause means that the endpoint was stopped.
TICK_MAX_S: Final = 2.0
SESSION_MIN_S, SESSION_MAX_S = 0.5, 300.0
#: Leaves room for the other fields of a control message.
VALUE_MAX_BYTES: Final = 15 << 20
#: A larger value is not included in the answer to a watch.
WATCHED_MAX_BYTES: Final = 256 << 10
PATH_MAX_CHARS: Final = 1024


class Step(NamedTuple):
    """A call of a state manager's method. A "watch" lasts until the endpoint closes, a "lock" until its "unlock"."""

    what: str
    arguments: tuple[Any, ...]


Steps = Generator[Step, Any, endpoint_pb2.StateAnswer]


class GoneError(StateError):
    """The session of a request has ended."""


class SupersededError(StateAwayError):
    """Another scheduler now serves the state."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits for all sessions. The rules of a session limit its ephemerals, watches and locks."""

    sessions: int = 4096
    #: Maximum number of sessions of one container, including sessions of ended processes whose end the endpoint has not
    #: noticed yet.
    of_container: int = 64


@dataclass(slots=True)
class _Session:
    container: int
    session_s: float
    ends_at: float
    #: Changes with lower numbers were abandoned.
    settled: int
    #: The number of its latest change.
    latest: int = -1
    watches: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Owner:
    session: int
    container: int
    session_s: float


class StateRecords:
    """The records of an endpoint with the unique name `name`. `owners` is the stored list of owners and its version."""

    def __init__(
        self,
        now: float,
        topology: str,
        name: str,
        owners: tuple[bytes, int] = (b"", 0),
        rules: Rules | None = None,
        limits: SessionLimits | None = None,
    ) -> None:
        self._topology, self._name = topology, name
        self._rules = rules or ContainerRules(topology)
        self._client_rules = ClientRules(topology)
        self._limits = limits or SessionLimits()
        #: Time of the last tick or message.
        self._awake_at = now
        self._sessions: dict[int, _Session] = {}
        self._owners = _read(owners[0])
        self._version = owners[1]
        #: Sessions of an earlier scheduler, with the time until which their nodes are kept.
        self._waiting = {owner.session: now + owner.session_s for owner in self._owners.values()}
        #: The session that holds each lock.
        self._locks: dict[str, int] = {}
        #: The change count of each watched node.
        self._changes: dict[str, int] = {}

    # ---- life -------------------------------------------------------------------------------
    def open(self, now: float, number: int, container: int, session_s: float, call: int) -> None:
        """Open or resume a session. Changes with numbers below `call` were abandoned.

        Raises StateAwayError for too many sessions, and StateError for an invalid `session_s` or another container's
        session.
        """
        self._listen(now)
        if not SESSION_MIN_S <= session_s <= SESSION_MAX_S:
            raise StateError(
                f"a session of {session_s:g} s is not possible at the scheduler's control endpoint; set"
                f" heron.statemgr.session_timeout_s between {SESSION_MIN_S:g} and {SESSION_MAX_S:g} s"
            )
        if any(owner.container != container for owner in self._owners.values() if owner.session == number):
            raise StateError(f"container {container} cannot open a session of another container")
        if self.heard(now, number):
            if self.container_of(number) != container:
                raise StateError(f"container {container} cannot open a session of another container")
            return
        if len(self._sessions) >= self._limits.sessions:
            raise StateAwayError(
                f"the scheduler's control endpoint has {self._limits.sessions} sessions and accepts no more until one"
                " ends"
            )
        if sum(one.container == container for one in self._sessions.values()) >= self._limits.of_container:
            raise StateAwayError(
                f"container {container} has {self._limits.of_container} sessions at the scheduler's control endpoint,"
                " and can open no more until one ends"
            )
        self._sessions[number] = _Session(container, session_s, now + session_s, call)
        self._waiting.pop(number, None)
        # Locks of an earlier session with this number ended with it.
        self._locks = {path: holder if holder != number else 0 for path, holder in self._locks.items()}

    def container_of(self, number: int) -> int | None:
        """The container that opened a session; None if there is no such session."""
        session = self._sessions.get(number)
        return session.container if session is not None else None

    def heard(self, now: float, number: int) -> bool:
        """Record that a session has sent a message; returns False if there is no such session."""
        self._listen(now)
        session = self._sessions.get(number)
        if session is not None:
            session.ends_at = now + session.session_s
        return session is not None

    def tick(self, now: float) -> list[tuple[int, int]]:
        """End silent sessions; returns them with their containers. Call `sweep` next."""
        self._listen(now)
        self._waiting = {number: at for number, at in self._waiting.items() if now < at}
        ended = [(number, one.container) for number, one in self._sessions.items() if one.ends_at <= now]
        for number, _ in ended:
            del self._sessions[number]
        return ended

    def _listen(self, now: float) -> None:
        """Extend all sessions by the time during which the endpoint was suspended."""
        stopped_s = now - self._awake_at - TICK_MAX_S
        self._awake_at = now
        if stopped_s > 0:
            for session in self._sessions.values():
                session.ends_at += stopped_s
            self._waiting = {number: at + stopped_s for number, at in self._waiting.items()}

    # ---- calls ------------------------------------------------------------------------------
    def begin(self, number: int, call: int) -> bool:
        """Whether a change is new for its session; False if it repeats the latest change.

        Raises StateError if the change was abandoned.
        """
        session = self._sessions[number]
        if call < max(session.settled, session.latest):
            raise StateError(f"change {call} of this session was abandoned")
        is_new, session.latest = call > session.latest, call
        return is_new

    def perform(self, request: endpoint_pb2.StateCall) -> Steps:
        """Carry out any call except `open`."""
        number, what = request.session, request.WhichOneof("what")
        if what == "put":
            return self._lead(number, request) if request.put.ephemeral else self._put(number, request)
        if what in ("get", "watch", "counter", "lock", "unlock"):
            return getattr(self, f"_{what}")(number, getattr(request, what))  # type: ignore[no-any-return]
        if what == "close":
            self._sessions.pop(number, None)
            return self.sweep()
        raise StateError("the control endpoint does not support this call; install one release of heronpy on all hosts")

    def seen(self, number: int) -> endpoint_pb2.StateAnswer:
        """The change counts of all nodes that a session watches, sent in the answer to a heartbeat."""
        watches = sorted(self._sessions[number].watches)
        return endpoint_pb2.StateAnswer(
            seen=[endpoint_pb2.StateSeen(path=path, count=self._changes[path]) for path in watches]
        )

    def changed(self, path: str) -> list[tuple[int, int]]:
        """Record that a node has changed; returns the sessions that watch the node, each with its change count."""
        if path not in self._changes:
            return []
        self._changes[path] += 1
        return [(number, self._changes[path]) for number, one in self._sessions.items() if path in one.watches]

    def _get(self, number: int, path: str) -> Steps:
        self._check(number, Use.READ, path)
        found = yield Step("get", (path,))
        if found is None:
            return endpoint_pb2.StateAnswer()
        if len(found[0]) > VALUE_MAX_BYTES:
            raise StateError(f"state node {path!r} has more than {VALUE_MAX_BYTES} bytes, the maximum for other hosts")
        return endpoint_pb2.StateAnswer(found=True, data=found[0], number=found[1])

    def _watch(self, number: int, path: str) -> Steps:
        """Set a watch. The answer contains the node's value, because the watching process would read it next."""
        self._check(number, Use.READ, path)
        if path not in self._changes:
            self._changes[path] = 0
            try:
                yield Step("watch", (path,))
            except (StateError, OSError):
                del self._changes[path]
                raise
        self._session(number).watches.add(path)
        # The count is read before the value, so that a later change is counted.
        seen = endpoint_pb2.StateSeen(path=path, count=self._changes[path])
        found = yield Step("get", (path,))
        if found is None:
            return endpoint_pb2.StateAnswer(seen=[seen])
        if len(found[0]) > WATCHED_MAX_BYTES:
            return endpoint_pb2.StateAnswer(seen=[seen], unread=True)
        return endpoint_pb2.StateAnswer(found=True, data=found[0], number=found[1], seen=[seen])

    def _counter(self, number: int, path: str) -> Steps:
        self._check(number, Use.COUNT, path)
        return endpoint_pb2.StateAnswer(number=(yield Step("counter", (path,))))

    def _put(self, number: int, request: endpoint_pb2.StateCall) -> Steps:
        put = request.put
        self._check(number, Use.WRITE, put.path)
        version = put.version if put.versioned else None
        try:
            if not put.remove:
                return endpoint_pb2.StateAnswer(number=(yield Step("set", (put.path, put.data, version))))
            yield Step("delete", (put.path, version))
        except (VersionMismatchError, NoNodeError):
            if not request.again:
                raise
            # Version and content show whether the write was done before.
            found = yield Step("get", (put.path,))
            if found != (None if put.remove else (put.data, put.version + 1)):
                raise
            if not put.remove:
                return endpoint_pb2.StateAnswer(number=put.version + 1)
        if self._owners.pop(put.path, None) is not None:
            yield from self._save()
        return endpoint_pb2.StateAnswer()

    def _lead(self, number: int, request: endpoint_pb2.StateCall) -> Steps:
        """Create an ephemeral; `again` also accepts an existing ephemeral of the same session."""
        path = request.put.path
        self._check(number, Use.EPHEMERAL, path)
        yield from self.sweep()
        if (yield Step("get", (path,))) is not None:
            if request.again and self.owner_of(path) == number:
                return endpoint_pb2.StateAnswer()
            raise NodeExistsError(f"state node {path!r} already exists")
        session = self._session(number)
        self._owners[path] = _Owner(number, session.container, session.session_s)
        try:
            yield from self._save()
            yield Step("create", (path, request.put.data))
        except NodeExistsError:  # a process on the scheduler's host was faster
            del self._owners[path]
            yield from self._save()
            raise
        return endpoint_pb2.StateAnswer()

    def _lock(self, number: int, path: str) -> Steps:
        self._check(number, Use.LOCK, path)
        if path in self._locks:
            raise DeadlineError(f"lock {path!r} is held by another process")
        yield Step("lock", (path,))
        self._locks[path] = number  # if its session has ended meanwhile, the next sweep releases it
        return endpoint_pb2.StateAnswer()

    def _unlock(self, number: int, path: str) -> Steps:
        if self._locks.get(path) == number:
            yield Step("unlock", (path,))
            del self._locks[path]
        return endpoint_pb2.StateAnswer()

    # ---- ended sessions -----------------------------------------------------------------------
    def owner_of(self, path: str) -> int | None:
        """The session that owns the ephemeral at a path; None if there is none."""
        owner = self._owners.get(path)
        return owner.session if owner is not None else None

    def left(self) -> list[str]:
        """The nodes and locks of sessions that have ended."""
        return [
            *(path for path, holder in self._locks.items() if holder not in self._sessions),
            *(
                path
                for path, owner in self._owners.items()
                if owner.session not in self._sessions and owner.session not in self._waiting
            ),
        ]

    def sweep(self) -> Steps:
        """Remove the nodes and locks that `left` returns."""
        left, has_removed = self.left(), False
        for path in left:
            if path in self._locks:
                yield Step("unlock", (path,))
                del self._locks[path]
                continue
            with suppress(NoNodeError):
                yield Step("delete", (path,))
            del self._owners[path]
            has_removed = True
        if has_removed:
            yield from self._save()
        return endpoint_pb2.StateAnswer()

    def owners(self) -> bytes:
        """The list of ephemerals' owners, which is stored for the next scheduler."""
        nodes = {path: [owner.session, owner.container, owner.session_s] for path, owner in self._owners.items()}
        return json.dumps({"endpoint": self._name, "nodes": nodes}, sort_keys=True).encode()

    def _save(self) -> Generator[Step, Any, None]:
        path = paths.ephemerals(self._topology)
        try:
            self._version = yield Step("set", (path, self.owners(), self._version))
        except (VersionMismatchError, NoNodeError):
            found = yield Step("get", (path,))
            if found is None or _writer_of(found[0]) != self._name:
                raise SupersededError(
                    f"another scheduler of topology {self._topology!r} serves its state now, or the topology was killed"
                ) from None
            # An earlier write of this endpoint was done although it failed.
            self._version = yield Step("set", (path, self.owners(), found[1]))

    # ---- help -------------------------------------------------------------------------------
    def _session(self, number: int) -> _Session:
        session = self._sessions.get(number)
        if session is None:
            raise GoneError("the session at the scheduler's control endpoint has ended")
        return session

    def _check(self, number: int, use: Use, path: str) -> None:
        if len(path) > PATH_MAX_CHARS:
            raise StateError(f"the path of a state node has at most {PATH_MAX_CHARS} characters, not {len(path)}")
        container = self._session(number).container
        refusal = (self._client_rules if container == CLIENT else self._rules).refusal(use, path, container)
        if refusal:
            raise StateError(refusal)


def _writer_of(owners: bytes) -> str:
    """The name of the endpoint that wrote a list of owners; "" if the name is missing."""
    try:
        return str(json.loads(owners).get("endpoint", ""))
    except (ValueError, AttributeError):
        return ""


def _read(owners: bytes) -> dict[str, _Owner]:
    """Parse the list of owners that an earlier scheduler wrote."""
    if not owners:
        return {}
    try:
        found = json.loads(owners)["nodes"]
        return {str(path): _Owner(int(one[0]), int(one[1]), float(one[2])) for path, one in found.items()}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise DamagedStateError(
            "the control endpoint's record of ephemerals is damaged; kill the topology and submit it again"
        ) from None
