"""The contract of all engines: the scheduler's requests to a cluster, and the cluster's answers. Pure.

An engine queues containers, and limits and accounts for their resources. It never restarts a container: only the
scheduler replaces containers, so that two programs never replace the same container. Each container is one object of
the engine, whose name has the number of the *submission*, so that a successor never waits for the object of its
predecessor.

Invariants: each call has its own deadline and may be repeated. An error is either an `EngineFatalError`, which is
permanent, or an `EngineAwayError`, after which the call may or may not have been carried out. An object that is not in
`list`, or whose host is lost, is not known to have ended (see `Ended`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from heronpy.common.errors import FatalError, HeronError, RetryableError
from heronpy.procs.exit_reason import ExitReason


class EngineError(HeronError):
    """An engine refused a call, or did not answer."""


class EngineFatalError(EngineError, FatalError):
    """A permanent refusal, caused for example by an unknown partition, image or command, or a missing permission."""


class EngineAwayError(EngineError, RetryableError):
    """No answer in time, or a temporary refusal. It is unknown whether the call was carried out."""


class EngineFullError(EngineAwayError):
    """A refusal because the user or account has reached a limit on its objects."""


class Ended(Enum):
    """Whether a container has ended, as far as its engine has seen."""

    NO = "no"
    #: No process of the container is left: the engine has seen all of them end.
    CONFIRMED = "confirmed"
    #: The engine has abandoned the container, for example because its host no longer answers. Its processes may still
    #: run.
    UNCONFIRMED = "unconfirmed"


class EnginePhase(Enum):
    """The phase of an object, as reported by its engine."""

    #: It waits for resources.
    QUEUED = "queued"
    #: It has a host that is being prepared.
    STARTING = "starting"
    RUNNING = "running"
    #: It was asked to end, or its processes are being cleaned up.
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Request:
    """The request to submit one container once."""

    topology_id: str
    container: int
    #: 1 for the container's first submission; only increases, even if the scheduler restarts.
    submission: int
    #: Cores, which are requested and not enforced.
    cpu: float
    #: Bytes. The engine ends a container that uses more memory.
    ram_bytes: int
    disk_bytes: int = 0
    #: Hosts to avoid. The container may still run on one of them if no other host has room.
    avoid: tuple[str, ...] = ()
    #: Hosts of `avoid` that are excluded: the container waits if no other host has room.
    barred: tuple[str, ...] = ()
    #: Containers whose hosts it should avoid, if the engine can distinguish containers of a topology.
    apart_from: tuple[int, ...] = ()
    #: Hosts of `avoid` that are avoided only because they run containers of `apart_from`. They are preferred to the
    #: other hosts of `avoid`.
    beside: tuple[str, ...] = ()
    #: Whether the container may start on any host, without waiting for one that spreads the containers of the topology.
    anywhere: bool = False
    #: The credential for admission at the endpoint; never an argument, variable, comment or log line.
    token: str = field(default="", repr=False)


def alike(requests: Iterable[Request]) -> list[list[Request]]:
    """Group requests that differ only in their container. An engine accepts or refuses a group as a whole."""
    found: dict[Request, list[Request]] = {}
    for one in requests:
        found.setdefault(replace(one, container=0), []).append(one)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Seen:
    """One object in the engine's list."""

    engine_id: str
    container: int
    submission: int
    phase: EnginePhase
    #: Its host; empty while it has none.
    host: str = ""
    ended: Ended = Ended.NO
    #: Why it ended; None unless the end is confirmed.
    reason: ExitReason | None = None
    #: Exit code of its first process; None if unknown, or if a signal ended it.
    exit_code: int | None = None
    #: Whether a command of another user or program ended it at the engine.
    cancelled: bool = False
    #: Whether it can never start as submitted, according to the engine.
    hopeless: bool = False
    #: Whether no host allowed by its request has room now, according to the engine.
    waits: bool = False
    #: Whether the engine has chosen a host for it, in order to spread containers, and will start it on no other.
    pinned: bool = False
    #: The engine's description of its phase or end, for users.
    words: str = ""
    #: Hosts that its request excludes.
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explained:
    """The reason why an object is not running yet."""

    words: str
    #: Wall time at which the engine expects it to start; None if unknown.
    starts_at: float | None = None


@dataclass(frozen=True, slots=True)
class NodeSize:
    """The total resources of one kind of host, including resources that others are using."""

    cpu: float
    ram_bytes: int
    #: None if the engine does not count disk space. Disk space is then not requested.
    disk_bytes: int | None = None
    #: The engine's name for the group of these hosts, such as a partition.
    where: str = ""


class Untried(Enum):
    """Why a requirement was not checked."""

    #: There is no room for the check now.
    WAITS = "wait"
    #: The engine does not report it.
    SKIPPED = "skip"


@dataclass(frozen=True, slots=True)
class Found:
    """One line of `check`: a requirement, whether it is met, and the fix if it is not."""

    what: str
    #: Whether no problem is known: the requirement is met, or it could not be checked.
    ok: bool
    detail: str = ""
    fix: str = ""
    #: Why it was not checked; None if it was checked.
    untried: Untried | None = None

    @classmethod
    def waits(cls, what: str, detail: str, fix: str) -> Found:
        """A check that is postponed until the cluster has free resources; `fix` is the step to take then."""
        return cls(what, True, detail, fix, Untried.WAITS)

    @classmethod
    def skipped(cls, what: str, detail: str, fix: str) -> Found:
        """A check that is impossible from this host; `fix` names who can check it."""
        return cls(what, True, detail, fix, Untried.SKIPPED)


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties that differ between engines. An engine has the attribute `traits` unless it has the defaults."""

    #: It can keep a container away from hosts; otherwise hosts cannot be drained.
    avoids_hosts: bool = True
    #: It keeps containers apart by itself (`Request.apart_from`); otherwise their hosts have to be known first.
    keeps_apart: bool = False
    #: `cancel` asks the first process of a container to end. Otherwise the scheduler's control endpoint does so.
    tells_to_end: bool = True
    #: Containers continue when the scheduler ends.
    outlives_scheduler: bool = True
    #: Files that a container could not remove stay on its host.
    keeps_files: bool = True


def traits_of(engine: Engine) -> Traits:
    """The traits of an engine: its attribute `traits`, or the defaults."""
    found = getattr(engine, "traits", None)
    return found if isinstance(found, Traits) else Traits()


class Engine(Protocol):
    """A cluster as one topology's scheduler uses it. Any thread may call it, but only one call may run at a time."""

    def check(self) -> Sequence[Found]:
        """Check what the engine requires: commands, releases, permissions. Problems are returned, not raised."""

    def node_sizes(self) -> Sequence[NodeSize]:
        """The kinds of hosts on which a container may be placed; empty if the engine does not report them."""

    def submit(self, requests: Sequence[Request]) -> dict[tuple[int, int], str]:
        """Create an object for each request; returns a map from (container, submission) to engine id.

        After an `EngineAwayError` some or all objects may exist. They are not submitted again under the same number:
        `list` shows which exist.
        """

    def list(self) -> Sequence[Seen]:
        """All objects of this topology, including recently ended ones.
        Raises EngineAwayError instead of returning a partial list.
        """

    def cancel(self, engine_ids: Sequence[str], grace_s: float) -> None:
        """Ask the objects to end; processes that remain after `grace_s`, or the engine's own limit, are killed.

        An object that no longer exists is not an error.
        """

    def watch(self, changed: Callable[[], None]) -> AbstractContextManager[None]:
        """While the context is open, call `changed` from another thread at intervals or when `list` may change."""

    def reach(self) -> tuple[str, ...]:
        """Addresses at which the cluster's hosts may be able to reach this host, best first."""

    def ready(self, hosts: Collection[str]) -> set[str]:
        """Those of the given hosts that currently accept containers."""

    def explain(self, engine_id: str) -> Explained:
        """Why an object is waiting, and when it is expected to start."""

    def termination_report(self, engine_id: str) -> str:
        """The last output of an object's first process; empty if it was not kept or cannot be read from this host."""

    def look_command(self) -> str:
        """A command for users that lists the objects of this topology, including objects that were abandoned.
        Makes no request.
        """

    def topologies(self) -> dict[str, int]:
        """Map from the id of each topology of this user to the number of its objects that have not ended."""
