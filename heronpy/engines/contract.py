"""The contract of all engines: what the scheduler asks a cluster for, and what the cluster answers. Pure.

An engine queues, limits and accounts. It restarts nothing by itself: the scheduler alone replaces containers, so that
two never do it at once. Each container is one object of the engine, whose name has the number of the *submission*, so
that a successor never waits for the object of its predecessor.

Invariants: each call has a deadline of its own and may be repeated; an error is an `EngineFatalError`, which no later
attempt can cure, or an `EngineAwayError`, after which the call may or may not have been carried out. An object that
`list` does not show is not known to have ended, and one whose host is lost is not either: see `Ended`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from heronpy.common.errors import FatalError, HeronError, RetryableError
from heronpy.procs.exit_reason import ExitReason


class EngineError(HeronError):
    """An engine refuses a call, or does not answer it."""


class EngineFatalError(EngineError, FatalError):
    """A permanent refusal: an unknown partition, image or command, or a missing permission."""


class EngineAwayError(EngineError, RetryableError):
    """No answer in time, or a refusal for now. Whether the call was carried out is unknown."""


class EngineFullError(EngineAwayError):
    """Refused while a limit on this user's or account's objects is used up."""


class Ended(Enum):
    """Whether a container has ended, as far as its engine knows."""

    NO = "no"
    #: No process of it is left: the engine has seen them all end.
    CONFIRMED = "confirmed"
    #: The engine has given it up, as when its host no longer answers; its processes may run on.
    UNCONFIRMED = "unconfirmed"


class EnginePhase(Enum):
    """The phase of an object in its engine."""

    #: It waits for resources.
    QUEUED = "queued"
    #: It has a host, whose preparation goes on.
    STARTING = "starting"
    RUNNING = "running"
    #: It was asked to end, or its processes are being cleaned up.
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Request:
    """One submission of one container."""

    topology_id: str
    container: int
    #: 1 for the first of this container; it only grows, also over restarts of the scheduler.
    submission: int
    #: Cores, which are requested and not enforced.
    cpu: float
    #: Bytes. The engine ends a container that uses more memory.
    ram_bytes: int
    disk_bytes: int = 0
    #: Hosts on which it should not run: there rather than nowhere.
    avoid: tuple[str, ...] = ()
    #: Those of them on which it must not run: nowhere rather than there.
    barred: tuple[str, ...] = ()
    #: Containers whose hosts it should avoid, if the engine can distinguish containers of a topology.
    apart_from: tuple[int, ...] = ()
    #: Hosts of `avoid` that it should avoid for no other reason than these containers: rather there than on the rest.
    beside: tuple[str, ...] = ()
    #: It is not worth waiting for a host so that the containers of the topology are spread.
    anywhere: bool = False
    #: What it shows at the endpoint to be admitted: never an argument, variable, comment or line of a log.
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Seen:
    """One object as the engine lists it."""

    engine_id: str
    container: int
    submission: int
    phase: EnginePhase
    #: Empty while it has none.
    host: str = ""
    ended: Ended = Ended.NO
    #: Why it ended; None unless the end is confirmed.
    reason: ExitReason | None = None
    #: Of its first process, if it exited; None if unknown, or if a signal ended it.
    exit_code: int | None = None
    #: Somebody else ended it, by a command to the engine.
    cancelled: bool = False
    #: The engine says that it will never start as it was submitted.
    hopeless: bool = False
    #: The engine says that no host that its request allows has room now.
    waits: bool = False
    #: The engine has chosen a host for it, so that containers are spread, and will start it on no other.
    pinned: bool = False
    #: The engine's own words on its phase or end, for people.
    words: str = ""
    #: Hosts that its request excludes.
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explained:
    """Why an object is not running yet."""

    words: str
    #: Wall time at which the engine expects it to start; None if it does not say.
    starts_at: float | None = None


@dataclass(frozen=True, slots=True)
class NodeSize:
    """The total resources of one kind of host; usage by others is not subtracted."""

    cpu: float
    ram_bytes: int
    #: None if the engine does not count it: then it is not requested, either.
    disk_bytes: int | None = None
    #: The engine's name for where it is, such as a partition.
    where: str = ""


class Untried(Enum):
    """Why a requirement was not tried."""

    #: There is no room now.
    WAITS = "wait"
    #: The engine does not tell.
    SKIPPED = "skip"


@dataclass(frozen=True, slots=True)
class Found:
    """One line of `check`: a requirement, whether it is met, and what to do if not."""

    what: str
    #: Nothing is known to be wrong: it is met, or nobody could try it.
    ok: bool
    detail: str = ""
    fix: str = ""
    #: Why it was not tried, if it was not.
    untried: Untried | None = None

    @classmethod
    def waits(cls, what: str, detail: str, fix: str) -> Found:
        """A check that must wait until the cluster has room; `fix` says what to do then."""
        return cls(what, True, detail, fix, Untried.WAITS)

    @classmethod
    def skipped(cls, what: str, detail: str, fix: str) -> Found:
        """A check that is impossible from here; `fix` names who can do it."""
        return cls(what, True, detail, fix, Untried.SKIPPED)


@dataclass(frozen=True, slots=True)
class Traits:
    """Differences of an engine from most engines. An engine that differs has them as its attribute `traits`."""

    #: It can keep a container away from hosts; without it none is drained.
    avoids_hosts: bool = True
    #: It keeps containers apart by itself (`Request.apart_from`); if not, their hosts have to be known first.
    keeps_apart: bool = False
    #: `cancel` tells the first process of a container to end. If not, the scheduler's control endpoint does, at once.
    tells_to_end: bool = True
    #: Containers run on when the scheduler ends.
    outlives_scheduler: bool = True
    #: Files that a container did not come to remove stay on its host.
    keeps_files: bool = True


def traits_of(engine: Engine) -> Traits:
    """The traits of an engine; the defaults for most engines."""
    found = getattr(engine, "traits", None)
    return found if isinstance(found, Traits) else Traits()


class Engine(Protocol):
    """A cluster as one topology's scheduler uses it; safe to use from any thread, one call at a time."""

    def check(self) -> Sequence[Found]:
        """Check what the engine needs: commands, releases, permissions. It returns missing ones, and raises nothing."""

    def node_sizes(self) -> Sequence[NodeSize]:
        """The kinds of hosts on which a container may be placed; empty if the engine does not report them."""

    def submit(self, requests: Sequence[Request]) -> dict[tuple[int, int], str]:
        """Create an object per request; returns their engine ids by (container, submission).

        After an `EngineAwayError` some or all may exist. They are not submitted again under the same number:
        `list` shows those that exist.
        """

    def list(self) -> Sequence[Seen]:
        """All objects of this topology, those that ended lately too. EngineAwayError rather than half a list."""

    def cancel(self, engine_ids: Sequence[str], grace_s: float) -> None:
        """Ask the objects to end, and kill what is left after `grace_s`, or the engine's own grace where it has one.

        What is gone already is no error.
        """

    def watch(self, changed: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `changed` from another thread when a list may show something new; an engine may do so at intervals."""

    def reach(self) -> tuple[str, ...]:
        """Addresses by which hosts of the cluster may reach this one, best first."""

    def ready(self, hosts: Collection[str]) -> set[str]:
        """Those of these hosts that accept containers now."""

    def explain(self, engine_id: str) -> Explained:
        """Why an object waits, and until when."""

    def termination_report(self, engine_id: str) -> str:
        """The end of what its first process printed; empty if that is not kept, or cannot be read from here."""

    def look_command(self) -> str:
        """The command by which a person sees the objects of this topology, those given up too; nothing is asked."""

    def topologies(self) -> dict[str, int]:
        """Ids of all topologies of this user, with the number of their objects that have not ended."""
