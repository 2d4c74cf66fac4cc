"""Sessions at the scheduler's door: how long they live, which nodes are theirs, which calls were carried out. Pure.

An ephemeral of a session is an ordinary node; the *record* says whose it is, and is written before the node is made. So
it stays for all readers while the scheduler is away, and the next scheduler, which starts with the record, knows it.

Invariants:

- A node is removed only when its session has ended: by its own word, or by `session_s` of silence to which this door
  has listened. Time in which the door was stopped is no silence.
- The sessions of the record, whose answers and watches are lost, do not go on. Their nodes wait for `session_s`; a new
  session of the same container that names the old one takes them over, whole, in one change of the record.
- A path has one owner at most. One that is in the record without a node is harmless: only the door makes such nodes.
- A numbered call is begun once. Its answer is kept until the client says, by `settled`, that it will not ask again;
  from then on it is refused, so a copy that was late on its way changes nothing.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from heronpy.common.errors import DamagedStateError, StateAwayError, StateError

#: Calls `StateSessions.tick` at least this often; a longer pause means that the door was stopped.
TICK_MAX_S: Final = 2.0
SESSION_MIN_S, SESSION_MAX_S = 0.5, 300.0


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What is refused beyond."""

    sessions: int = 4096
    #: Of one container: its processes, and those of which the door has not noticed yet that they are gone.
    of_container: int = 64
    #: Of one session: numbered calls that are not settled, watched nodes, ephemerals and locks.
    calls: int = 64
    watches: int = 64
    nodes: int = 64
    locks: int = 16


class Verdict(enum.Enum):
    """What to do with a numbered call."""

    CARRY_OUT = enum.auto()
    #: It is being carried out.
    WAIT = enum.auto()
    #: It was: `StateSessions.answer_to` has its answer.
    REPEAT = enum.auto()
    #: The client has said that it does not wait for it any more.
    SETTLED = enum.auto()
    TOO_MANY = enum.auto()


@dataclass(slots=True)
class _Session:
    container: int
    session_s: float
    ends_at: float
    settled: int = 1
    #: Begun calls to their answers; None while there is none.
    calls: dict[int, Any] = field(default_factory=dict)
    #: Watched nodes to the number of their changes.
    watches: dict[str, int] = field(default_factory=dict)
    locks: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Owner:
    session: int
    container: int
    session_s: float


class StateSessions:
    """See the module. Session numbers are the caller's; they must never come again."""

    def __init__(self, now: float, record: bytes = b"", limits: SessionLimits | None = None) -> None:
        self._limits = limits or SessionLimits()
        #: The last tick or message.
        self._awake_at = now
        self._sessions: dict[int, _Session] = {}
        self._owners = _read(record)
        #: Sessions of an earlier scheduler, until when their nodes wait for them.
        self._waiting = {owner.session: now + owner.session_s for owner in self._owners.values()}

    # ---- life -------------------------------------------------------------------------------
    def open(self, now: float, number: int, container: int, session_s: float) -> None:
        """Begin a session; StateAwayError when there are too many, StateError for an impossible `session_s`."""
        self._listen(now)
        if not SESSION_MIN_S <= session_s <= SESSION_MAX_S:
            raise StateError(
                f"a session of {session_s:g} s is not possible at the scheduler's door; set"
                f" heron.statemgr.session_timeout_s between {SESSION_MIN_S:g} and {SESSION_MAX_S:g} s"
            )
        if len(self._sessions) >= self._limits.sessions:
            raise StateAwayError(
                f"the scheduler's door has {self._limits.sessions} sessions, and takes no more until one ends"
            )
        if sum(one.container == container for one in self._sessions.values()) >= self._limits.of_container:
            raise StateAwayError(
                f"container {container} has {self._limits.of_container} sessions at the scheduler's door, and gets no"
                " more until one ends"
            )
        self._sessions[number] = _Session(container, session_s, now + session_s)

    def container_of(self, number: int) -> int | None:
        """Which container opened a session; None when there is no such session."""
        session = self._sessions.get(number)
        return session.container if session is not None else None

    def heard(self, now: float, number: int) -> bool:
        """A message of a session; False when there is no such session."""
        self._listen(now)
        session = self._sessions.get(number)
        if session is not None:
            session.ends_at = now + session.session_s
        return session is not None

    def tick(self, now: float) -> list[int]:
        """The sessions that end now, because they were silent."""
        self._listen(now)
        self._waiting = {number: at for number, at in self._waiting.items() if now < at}
        return [number for number, session in self._sessions.items() if session.ends_at <= now]

    def _listen(self, now: float) -> None:
        """Time in which the door did nothing is added to what the sessions have left."""
        stopped_s = now - self._awake_at - TICK_MAX_S
        self._awake_at = now
        if stopped_s > 0:
            for session in self._sessions.values():
                session.ends_at += stopped_s
            self._waiting = {number: at + stopped_s for number, at in self._waiting.items()}

    def end(self, number: int) -> tuple[set[str], set[str]]:
        """End a session: the locks that it held and the nodes that it watched. Its ephemerals are orphans now."""
        session = self._sessions.pop(number, None)
        return (session.locks, set(session.watches)) if session is not None else (set(), set())

    # ---- calls ------------------------------------------------------------------------------
    def begin(self, number: int, call: int, settled: int) -> Verdict:
        """Whether to carry out a numbered call of a session that exists."""
        session = self._sessions[number]
        if settled > session.settled:
            session.settled = settled
            session.calls = {one: answer for one, answer in session.calls.items() if one >= settled}
        if call < session.settled:
            return Verdict.SETTLED
        if call in session.calls:
            return Verdict.WAIT if session.calls[call] is None else Verdict.REPEAT
        if call >= session.settled + self._limits.calls:
            return Verdict.TOO_MANY
        session.calls[call] = None
        return Verdict.CARRY_OUT

    def answer_to(self, number: int, call: int) -> Any:
        """The answer to a call that was carried out."""
        return self._sessions[number].calls[call]

    def finish(self, number: int, call: int, answer: Any) -> None:
        """A call was carried out."""
        session = self._sessions.get(number)
        if session is not None and call in session.calls:
            session.calls[call] = answer

    # ---- ephemerals -------------------------------------------------------------------------
    def owner_of(self, path: str) -> int | None:
        """The session whose ephemeral a node is."""
        owner = self._owners.get(path)
        return owner.session if owner is not None else None

    def own(self, path: str, number: int) -> None:
        """A node is about to be made, as an ephemeral of a session that exists; StateError when it has too many."""
        session = self._sessions[number]
        if len(self.owned_by(number)) >= self._limits.nodes:
            raise StateError(f"a process has {self._limits.nodes} ephemeral nodes at most, so {path!r} is refused")
        self._owners[path] = _Owner(number, session.container, session.session_s)

    def disown(self, path: str) -> None:
        """A node is gone, or was never made."""
        self._owners.pop(path, None)

    def owned_by(self, number: int) -> list[str]:
        """The ephemerals of a session."""
        return sorted(path for path, owner in self._owners.items() if owner.session == number)

    def take_over(self, number: int, earlier: int) -> list[str]:
        """A session gets the nodes of an earlier one of its container, which ends: also when it had not ended yet."""
        session = self._sessions[number]
        alive = earlier in self._waiting or self.container_of(earlier) == session.container
        taken = [
            path
            for path, owner in self._owners.items()
            if alive and owner.session == earlier and owner.container == session.container
        ]
        for path in taken:
            self._owners[path] = _Owner(number, session.container, session.session_s)
        if taken:
            self._waiting.pop(earlier, None)
        return sorted(taken)

    def orphans(self) -> list[str]:
        """Nodes whose session has ended: remove them, then `disown` them."""
        return sorted(
            path
            for path, owner in self._owners.items()
            if owner.session not in self._sessions and owner.session not in self._waiting
        )

    def record(self, door: str = "") -> bytes:
        """Whose each ephemeral is, as one door writes it down; what the next scheduler starts with."""
        nodes = {path: [owner.session, owner.container, owner.session_s] for path, owner in self._owners.items()}
        return json.dumps({"door": door, "nodes": nodes}, sort_keys=True).encode()

    # ---- watches and locks ------------------------------------------------------------------
    def watch(self, number: int, path: str) -> None:
        """Count the changes of a node for a session; StateError when it watches too many."""
        watches = self._sessions[number].watches
        if path not in watches and len(watches) >= self._limits.watches:
            raise StateError(f"a process watches {self._limits.watches} nodes at most, so {path!r} is refused")
        watches[path] = 0

    def unwatch(self, number: int, path: str) -> None:
        """The opposite."""
        self._sessions[number].watches.pop(path, None)

    def is_watched(self, path: str) -> bool:
        """Whether any session watches a node."""
        return any(path in session.watches for session in self._sessions.values())

    def changed(self, path: str) -> list[tuple[int, int]]:
        """A node has changed: the sessions that watch it, each with the number of changes so far."""
        heard = []
        for number, session in self._sessions.items():
            if path in session.watches:
                session.watches[path] += 1
                heard.append((number, session.watches[path]))
        return heard

    def seen(self, number: int) -> Mapping[str, int]:
        """The nodes that a session watches, with the numbers of their changes."""
        return self._sessions[number].watches

    def lock(self, number: int, path: str) -> None:
        """A session is about to get a lock; StateError when it has too many, or has ended."""
        session = self._sessions.get(number)
        if session is None:
            raise StateError(f"the session that asked for lock {path!r} has ended")
        if len(session.locks) >= self._limits.locks:
            raise StateError(f"a process holds {self._limits.locks} locks at most, so {path!r} is refused")
        session.locks.add(path)

    def unlock(self, number: int, path: str) -> bool:
        """Whether the session held the lock."""
        session = self._sessions.get(number)
        if session is None or path not in session.locks:
            return False
        session.locks.remove(path)
        return True


def writer_of(record: bytes) -> str:
    """The door that wrote a record; "" if it does not say."""
    try:
        return str(json.loads(record).get("door", ""))
    except (ValueError, AttributeError):
        return ""


def _read(record: bytes) -> dict[str, _Owner]:
    """The record of an earlier scheduler."""
    if not record:
        return {}
    try:
        found = json.loads(record)["nodes"]
        return {str(path): _Owner(int(one[0]), int(one[1]), float(one[2])) for path, one in found.items()}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise DamagedStateError(
            "the record of the ephemerals at the scheduler's door is damaged; kill the topology and submit it again"
        ) from None
