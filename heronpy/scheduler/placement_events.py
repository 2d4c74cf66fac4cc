"""What placement is told and what it decides: plain data between the machine and its shell. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from heronpy.engines.contract import Request, Seen
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.restart_policy import Charges
from heronpy.scheduler.avoided_hosts import Avoided


class Phase(Enum):
    """The life-cycle state of a submission, and of a container as users see it."""

    #: It waits for resources of the engine.
    QUEUED = "queued"
    #: It has a host and has not said hello yet.
    STARTING = "starting"
    #: It is ready and was not activated, or has stopped its tasks.
    STANDBY = "standby"
    RUNNING = "running"
    #: Its end is near: it was asked to end, or the engine will end it.
    LEAVING = "leaving"
    #: It is silent, or the engine has given it up; nobody knows whether its processes run.
    UNCONFIRMED = "unconfirmed"
    #: It is not submitted again until a user restarts it.
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container that should run; a new size counts from its next submission on."""

    container: int
    cpu: float
    ram_bytes: int
    disk_bytes: int = 0
    #: Containers whose hosts it avoids.
    apart_from: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Past:
    """The past ends of a container, for its status and for its budgets."""

    restarts: int = 0
    #: The submission whose end was counted last: the engine goes on listing it.
    judged: int = 0
    #: Why it has FAILED; empty: it has not.
    failed: str = ""
    #: It has done its work.
    finished: bool = False
    reason: ExitReason | None = None
    detail: str = ""
    #: Its own ends, and those by commands of others; times are on the clock of `handle`.
    ends: Charges = field(default_factory=Charges)
    cancels: Charges = field(default_factory=Charges)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a container was started again, or is going to be."""

    reason: ExitReason
    #: For people.
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """The record of one container that outlives the scheduler."""

    #: The highest number of a submission that may have been made.
    submitted: int = 0
    #: The submission that was activated last (0: none), and its epoch.
    holder: int = 0
    epoch: int = 0
    past: Past = Past()
    #: The host from which it is being moved away; empty: it is not.
    moves_from: str = ""
    #: Why the holder follows its predecessor; once the holder is to be replaced, why that is.
    cause: Cause | None = None


#: By container. It is kept when a container leaves the plan, so that no number or epoch is ever used again.
Ledger = Mapping[int, Entry]


# ---- events ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class PlanChanged:
    """These and only these containers should run."""

    containers: tuple[ContainerSpec, ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of the engine, whole; `asked_at` is when it was asked for, on the clock of `handle`."""

    seen: tuple[Seen, ...]
    asked_at: float
    #: Hosts that take containers, of those that queued submissions avoid.
    ready: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Heard:
    """A request of a container at the endpoint: its hello, or a renewal.

    A submission that has lost the epochs in which it acted must end: it could not tell a late activation from a new
    one.
    """

    container: int
    submission: int
    #: The epoch in which it acts; 0: it does not.
    epoch: int = 0
    #: The highest epoch in which it has acted and stopped.
    stopped: int = 0
    host: str = ""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A container was warned of its end: preemption, the end of its time, a drained host."""

    container: int
    submission: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine refused a submission: permanently, or for now, in which case it may exist."""

    container: int
    submission: int
    why: str
    fatal: bool


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """Nothing is submitted to this host for a time, and its containers are going to be moved away."""

    host: str
    by: str


@dataclass(frozen=True, slots=True)
class DrainEnded:
    """All have been moved, or, `failed`, they were not; then the host may have containers again."""

    host: str
    failed: bool


@dataclass(frozen=True, slots=True)
class HostLifted:
    """A user says that a host may have containers again."""

    host: str
    by: str


@dataclass(frozen=True, slots=True)
class MoveAsked:
    """Move a container away from this host. It continues there until its successor stands by elsewhere.

    Without a host it is replaced by one of its present size, on any host with room.
    """

    container: int
    host: str
    by: str = "a user"


@dataclass(frozen=True, slots=True)
class MoveEnded:
    """Nobody waits for the move of a container any more; one that was not asked to end yet stays where it is."""

    container: int


@dataclass(frozen=True, slots=True)
class RestartAsked:
    """Replace these containers (all if empty); their budgets are reset.

    With `force` an unconfirmed predecessor counts as ended: the user says so.
    """

    containers: tuple[int, ...] = ()
    why: str = ""
    force: bool = False


@dataclass(frozen=True, slots=True)
class KillAsked:
    """End all containers."""

    grace_s: float


@dataclass(frozen=True, slots=True)
class EngineAway:
    """A call to the engine failed, or had no answer in time."""

    why: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    PlanChanged | Listed | Heard | Leaving | Refused | DrainAsked | DrainEnded | HostLifted | MoveAsked | MoveEnded
    | RestartAsked | KillAsked | EngineAway | Tick
)  # fmt: skip


# ---- effects --------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Persist:
    """Write the ledger, at the version that this scheduler has written or read last.

    First the permit is proved: it is still the node that this scheduler has created. If it is not, or the version is
    another, this scheduler ends, and none of the effects behind this one is carried out.
    """

    ledger: Ledger
    #: The topology was killed: a successor of this scheduler goes on ending its containers.
    killing: bool = False
    hosts: tuple[Avoided, ...] = ()


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit a container; the shell adds the join token."""

    request: Request


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a submission. It is said again until the end is known."""

    container: int
    submission: int
    engine_id: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class Activate:
    """Answer the last request of a standby: act from now on, in this epoch. Only while the permit may grant."""

    container: int
    submission: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Grant:
    """Answer a container's last request with a grant. It may overtake a `Persist`. Only while the permit may grant."""

    container: int
    submission: int


@dataclass(frozen=True, slots=True)
class Fence:
    """Answer the last request of a container: stop and end. It may overtake a `Persist`."""

    container: int
    submission: int
    why: str


@dataclass(frozen=True, slots=True)
class Note:
    """Write a line to the log."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class GiveUp:
    """A container has FAILED; the others keep running. `reason` is None where the engine refuses it."""

    container: int
    reason: ExitReason | None
    detail: str


@dataclass(frozen=True, slots=True)
class AllGone:
    """The kill is over: the end of every container is confirmed, or the engine does not list it any more."""


Effect = Persist | Submit | Cancel | Activate | Grant | Fence | Note | GiveUp | AllGone


@dataclass(frozen=True, slots=True)
class ContainerView:
    """The visible state of a container."""

    container: int
    phase: Phase
    #: The submission that runs, or else the one that is to follow; 0: none.
    submission: int = 0
    epoch: int = 0
    engine_id: str = ""
    host: str = ""
    #: The engine's words while it waits; why it failed; why it ended last.
    words: str = ""
    restarts: int = 0
    exit_reason: ExitReason | None = None
    #: All submissions that may exist: (number, phase).
    submissions: tuple[tuple[int, Phase], ...] = field(default=())
    #: Why its last move was given up; empty: it was not.
    unmoved: str = ""
