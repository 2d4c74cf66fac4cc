"""The events and effects of placement: plain data between the state machine and its shell. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from heronpy.engines.contract import Request, Seen
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.restart_policy import Charges
from heronpy.scheduler.avoided_hosts import Avoided


class Phase(Enum):
    """The life-cycle state of a submission; for a container, the state that is shown to users."""

    #: It waits until the engine has resources for it.
    QUEUED = "queued"
    #: It has a host but has not sent a hello yet.
    STARTING = "starting"
    #: It is ready but not activated, or has stopped its tasks.
    STANDBY = "standby"
    RUNNING = "running"
    #: Its end is near: it was asked to end, or the engine will end it.
    LEAVING = "leaving"
    #: It is silent, or the engine has abandoned it. Its processes may still be running.
    UNCONFIRMED = "unconfirmed"
    #: It is not submitted again until a user restarts it.
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container that should be running; a new size takes effect with its next submission."""

    container: int
    cpu: float
    ram_bytes: int
    disk_bytes: int = 0
    #: Containers whose hosts it avoids.
    apart_from: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Past:
    """How a container has ended so far, for its status and its restart budgets."""

    restarts: int = 0
    #: The submission whose end was counted last, because the engine continues to list it.
    judged: int = 0
    #: Why it has FAILED; empty if it has not.
    failed: str = ""
    #: Whether it has finished its work.
    finished: bool = False
    reason: ExitReason | None = None
    detail: str = ""
    #: Its own ends, and ends by external commands; times are on the clock that `handle` uses.
    ends: Charges = field(default_factory=Charges)
    cancels: Charges = field(default_factory=Charges)


@dataclass(frozen=True, slots=True)
class Cause:
    """The reason for a past or planned restart of a container."""

    reason: ExitReason
    #: For users.
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """The record of one container that outlives the scheduler."""

    #: The highest submission number that may have been used.
    submitted: int = 0
    #: The last activated submission (0 if there was none), and its epoch.
    holder: int = 0
    epoch: int = 0
    past: Past = Past()
    #: The host from which it is being moved away; empty if it is not being moved.
    moves_from: str = ""
    #: Why the holder replaced its predecessor or, if the holder itself has to be replaced, why it has to be replaced.
    cause: Cause | None = None


#: The records by container. A record is kept when a container leaves the plan, so that no number or epoch is ever used
#: again.
Ledger = Mapping[int, Entry]


# ---- events ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class PlanChanged:
    """Exactly these containers should run."""

    containers: tuple[ContainerSpec, ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """A complete list from the engine; `asked_at` is the time of the request on the clock that `handle` uses."""

    seen: tuple[Seen, ...]
    asked_at: float
    #: Hosts that accept containers, among those that queued submissions avoid.
    ready: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Heard:
    """A container's request at the endpoint: its hello, or a renewal.

    A submission that has lost its record of past epochs must end, because it could not distinguish a late activation
    from a new one.
    """

    container: int
    submission: int
    #: The epoch in which it acts; 0 if it does not act.
    epoch: int = 0
    #: The highest epoch in which it has acted and stopped.
    stopped: int = 0
    host: str = ""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A container was warned that its engine will end it because of preemption, a time limit or a drained host."""

    container: int
    submission: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine refused a submission permanently or temporarily. After a temporary refusal, the object may exist."""

    container: int
    submission: int
    why: str
    fatal: bool


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """Submit no containers to this host for a time, and move its containers away."""

    host: str
    by: str


@dataclass(frozen=True, slots=True)
class DrainEnded:
    """The drain of a host has ended. If `failed`, containers remain on the host, which may get containers again."""

    host: str
    failed: bool


@dataclass(frozen=True, slots=True)
class HostLifted:
    """A user has allowed a host to receive containers again."""

    host: str
    by: str


@dataclass(frozen=True, slots=True)
class MoveAsked:
    """Move a container away from this host. The container keeps running there until its successor stands by elsewhere.

    If no host is given, the container is replaced by one with its current size, on any host with enough free resources.
    """

    container: int
    host: str
    by: str = "a user"


@dataclass(frozen=True, slots=True)
class MoveEnded:
    """End a request to move a container. A container that has not been asked to end yet stays on its host."""

    container: int


@dataclass(frozen=True, slots=True)
class RestartAsked:
    """Replace these containers (all containers if empty); their budgets are reset.

    With `force`, a predecessor counts as ended without confirmation, at the user's risk.
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
    """A call to the engine failed, or was not answered in time."""

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
    """Write the ledger over the version that this scheduler last wrote or read.

    Before the write, the permit is proved: its node must still be the one that this scheduler has created. If it is
    not, or if the version differs, this scheduler ends, and no later effect is carried out.
    """

    ledger: Ledger
    #: The topology was killed: a successor of this scheduler continues to end its containers.
    killing: bool = False
    hosts: tuple[Avoided, ...] = ()


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit a container; the shell adds the join token."""

    request: Request


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a submission. The command is repeated until the end is known."""

    container: int
    submission: int
    engine_id: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class Activate:
    """Answer a standby's last request: from now on the standby acts, in this epoch. Sent only while the permit allows
    grants.
    """

    container: int
    submission: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Grant:
    """Answer a container's last request with a grant. The answer may overtake a `Persist`. Sent only while the permit
    allows grants.
    """

    container: int
    submission: int


@dataclass(frozen=True, slots=True)
class Fence:
    """Answer a container that was replaced: it must stop and end. The answer may overtake a `Persist`."""

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
    """A container has FAILED; the other containers keep running. `reason` is None if the engine refused it."""

    container: int
    reason: ExitReason | None
    detail: str


@dataclass(frozen=True, slots=True)
class AllGone:
    """The topology is killed: each container is confirmed to have ended, or is no longer in the engine's list."""


Effect = Persist | Submit | Cancel | Activate | Grant | Fence | Note | GiveUp | AllGone


@dataclass(frozen=True, slots=True)
class ContainerView:
    """The state of a container that is shown to users."""

    container: int
    phase: Phase
    #: The submission that is running, or else the next submission; 0 if there is neither.
    submission: int = 0
    epoch: int = 0
    engine_id: str = ""
    host: str = ""
    #: Why the container waits (from the engine), has failed, or last ended.
    words: str = ""
    restarts: int = 0
    exit_reason: ExitReason | None = None
    #: All submissions that may exist: (number, phase).
    submissions: tuple[tuple[int, Phase], ...] = field(default=())
    #: Why its last move was abandoned; empty if it was not abandoned.
    unmoved: str = ""
