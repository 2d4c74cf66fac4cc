"""The data types of the supervisor: specifications, events that it handles, and effects that it returns. Pure."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field

from heronpy.procs.exit_reason import ExitHints, ExitReason
from heronpy.procs.restart_policy import Outlook
from heronpy.proto import control_pb2


class ProcessSpec(Struct, frozen=True):
    """The specification of a process that should be running."""

    name: str
    #: The kind of process, which the launcher turns into a command.
    role: str
    task_id: int = 0
    component: str = ""
    #: Processes are stopped in ascending order of rank: a rank is asked to stop when all lower ranks are down.
    stop_rank: int = 0
    #: Whether its permanent failure ends the supervisor itself.
    critical: bool = False
    user_code: bool = False
    #: Whether its user code ran under an earlier supervisor. An exception at its start then counts like a later one.
    has_run: bool = False
    #: Time without a report after which it counts as hung; 0: not checked for hanging.
    hang_timeout_s: float = 0.0
    stop_grace_s: float = 2.0
    #: Resident memory above which it is restarted; 0: no limit.
    memory_max_bytes: int = 0


class ProcessState(Enum):
    """The life-cycle state of a process."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    BACKOFF = "backoff"
    FAILED = "failed"
    STOPPED = "stopped"


#: The states as values in records for the topology master.
STATES = {
    ProcessState.STARTING: control_pb2.PROC_STARTING,
    ProcessState.RUNNING: control_pb2.PROC_RUNNING,
    ProcessState.STOPPING: control_pb2.PROC_RUNNING,
    ProcessState.BACKOFF: control_pb2.PROC_BACKOFF,
    ProcessState.FAILED: control_pb2.PROC_FAILED,
    ProcessState.STOPPED: control_pb2.PROC_STOPPED,
}
#: The exit reasons as values in records for the topology master.
EXITS: dict[ExitReason | None, control_pb2.ExitReason] = {
    None: control_pb2.EXIT_NONE,
    ExitReason.OK: control_pb2.EXIT_OK,
    ExitReason.FINISHED: control_pb2.EXIT_FINISHED,
    ExitReason.STARTUP_FAILURE: control_pb2.EXIT_STARTUP_FAILURE,
    ExitReason.USER_EXCEPTION: control_pb2.EXIT_USER_EXCEPTION,
    ExitReason.OOM: control_pb2.EXIT_OOM,
    ExitReason.KILLED: control_pb2.EXIT_KILLED,
    ExitReason.CRASHED: control_pb2.EXIT_CRASHED,
    ExitReason.HUNG: control_pb2.EXIT_HUNG,
    ExitReason.PREEMPTED: control_pb2.EXIT_PREEMPTED,
    ExitReason.REWOUND: control_pb2.EXIT_REWOUND,
    ExitReason.LOST_HOST: control_pb2.EXIT_LOST_HOST,
    ExitReason.FENCED: control_pb2.EXIT_FENCED,
    ExitReason.OWN_BUG: control_pb2.EXIT_OWN_BUG,
    ExitReason.SPAWN_FAILED: control_pb2.EXIT_SPAWN_FAILED,
    ExitReason.GAVE_UP: control_pb2.EXIT_GAVE_UP,
    ExitReason.MOVED: control_pb2.EXIT_MOVED,
    ExitReason.RESTARTED: control_pb2.EXIT_RESTARTED,
}


class ProcessView(Struct, frozen=True):
    """The state of a process that is shown to users."""

    spec: ProcessSpec
    state: ProcessState
    pid: int
    #: The number of this start; 1 is the first.
    number: int
    restarts: int
    #: None before its first exit.
    exit_reason: ExitReason | None
    exit_detail: str
    #: Peak resident memory of the incarnation that ended last; 0 if unknown.
    peak_bytes: int = 0
    #: In BACKOFF: the state of its restart budget, and the time of the next restart (monotonic).
    outlook: Outlook = field(default_factory=Outlook)
    restart_at: float | None = None

    def record(self, started_at: float, epoch: int) -> control_pb2.ProcessRecord:
        """The record of the process for the topology master; `started_at` is wall time."""
        return control_pb2.ProcessRecord(
            name=self.spec.name,
            pid=self.pid,
            state=STATES[self.state],
            restarts=self.restarts,
            exit_reason=self.exit_reason.value if self.exit_reason is not None else "",
            exit=EXITS[self.exit_reason],
            exit_detail=self.exit_detail,
            started_at=started_at,
            epoch=epoch,
        )


# ---- events ---------------------------------------------------------------------------------
class DesiredChanged(Struct, frozen=True):
    """Exactly these processes should run."""

    specs: tuple[ProcessSpec, ...]


class Spawned(Struct, frozen=True):
    name: str
    number: int
    pid: int


class SpawnFailed(Struct, frozen=True):
    name: str
    number: int
    error: str


class Exited(Struct, frozen=True):
    name: str
    number: int
    status: int
    hints: ExitHints = field(default_factory=ExitHints)
    detail: str = ""
    #: Peak resident memory of the process; 0 if unknown.
    peak_bytes: int = 0


class Overgrown(Struct, frozen=True):
    """A process exceeds its memory limit."""

    name: str
    number: int
    used_bytes: int
    limit_bytes: int


class Reported(Struct, frozen=True):
    """A report from a process, which shows that the process is alive."""

    name: str
    number: int
    loop_age_s: float
    #: Whether it has initialised, so that a later end is not a failure to start.
    ready: bool = False


class RestartAsked(Struct, frozen=True):
    """Restart these processes (all processes if empty), whatever their state; no budget is charged."""

    names: tuple[str, ...]
    why: str = ""


class StopAsked(Struct, frozen=True):
    """Stop all processes in order of rank."""

    why: str = ""


class Tick(Struct, frozen=True):
    """Time has passed."""


Event = DesiredChanged | Spawned | SpawnFailed | Exited | Overgrown | Reported | RestartAsked | StopAsked | Tick


# ---- effects --------------------------------------------------------------------------------
class Start(Struct, frozen=True):
    spec: ProcessSpec
    number: int


class Signal(Struct, frozen=True):
    name: str
    pid: int
    signum: int
    #: Also signal everything in the session of the process.
    group: bool = False


class Note(Struct, frozen=True):
    """A message for the log."""

    text: str
    warning: bool = False


class Changed(Struct, frozen=True):
    """The view of a process has changed; report it immediately."""


class Removed(Struct, frozen=True):
    """A process is permanently gone; discard its data."""

    name: str


class GiveUp(Struct, frozen=True):
    """A critical process has failed permanently."""

    name: str
    reason: ExitReason
    detail: str


class Ended(Struct, frozen=True):
    """A process that should be running has ended for this reason, which must be reported."""

    spec: ProcessSpec
    reason: ExitReason
    detail: str
    #: Whether an exception of user code ended it. The process has reported the exception.
    raised: bool = False
    #: Whether user code ended it with an exit code.
    left: bool = False


class AllStopped(Struct, frozen=True):
    """All processes have ended after a StopAsked."""


Effect = Start | Signal | Note | Changed | Removed | GiveUp | Ended | AllStopped
