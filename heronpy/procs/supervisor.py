"""The state machine that keeps a set of processes running: it starts, restarts and stops them in order. Pure.

The executor uses it for the processes of its container, and the scheduler uses it for its containers.

Invariants:
- A name has at most one incarnation at a time: the next Start is emitted only after the previous incarnation has
  exited.
- The incarnation numbers of a name only increase.
- No process is started once StopAsked has been handled.
- A process that has used up its budget is FAILED and is reported with the cause; the other processes keep running.
"""

from __future__ import annotations

import os
import signal
from enum import IntEnum

from msgspec import Struct, field
from msgspec.structs import replace

from heronpy.common import exit_codes
from heronpy.common.units import format_bytes
from heronpy.procs.exit_reason import ExitReason, by_user_code, classify
from heronpy.procs.restart_policy import Outlook, RestartHistory, RestartLimits, decide_restart
from heronpy.procs.supervision import (
    AllStopped,
    Changed,
    DesiredChanged,
    Effect,
    Ended,
    Event,
    Exited,
    GiveUp,
    Note,
    Overgrown,
    ProcessSpec,
    ProcessState,
    ProcessView,
    Removed,
    Reported,
    RestartAsked,
    Signal,
    Spawned,
    SpawnFailed,
    Start,
    StopAsked,
    Tick,
)

#: Time between the request for stack traces and the kill of a hung process.
DUMP_GRACE_S = 0.3
#: Seconds in which a task that is restarted on request may end its current call. If it is killed, its queue is lost.
CALL_GRACE_S = 30.0
#: If no event arrives for this long, this process was paused, so silent processes may still be healthy.
OWN_STALL_S = 5.0
#: A process ran out of memory if SIGKILL ended it above this share of its memory limit, whoever sent the signal.
AT_LIMIT = 0.95
#: Maximum number of starts of one process (16 bits of a child's epoch).
NUMBER_MAX = 0xFFFF


class _Intent(IntEnum):
    """Why a process is being stopped; a higher intent overrides a lower one."""

    NONE = 0
    HUNG = 1
    MEMORY = 2
    RESTART = 3
    REMOVE = 4
    SHUTDOWN = 5


class _Process(Struct):
    spec: ProcessSpec
    state: ProcessState = ProcessState.STARTING
    intent: _Intent = _Intent.NONE
    number: int = 0
    pid: int = 0
    restarts: int = 0
    #: BACKOFF: when to start; STOPPING: when to kill; else None.
    deadline: float | None = None
    started: float = 0.0
    last_report: float | None = None
    #: Whether the stopping process has been sent SIGKILL.
    killed: bool = False
    exit_reason: ExitReason | None = None
    exit_detail: str = ""
    #: The reason for its requested restart.
    exit_wish: str = ""
    peak_bytes: int = 0
    #: Whether its user code has run once. An exception at a later start then counts like one while running.
    has_run: bool = False
    #: Whether an exception in user code ended the current or last incarnation.
    raised: bool = False
    #: Whether user code ended the last incarnation with an exit code.
    left: bool = False
    #: Whether `exit_detail` contains a memory limit and the peak of the same measure.
    memory_told: bool = False
    outlook: Outlook = field(default_factory=Outlook)
    history: RestartHistory = field(default_factory=RestartHistory)

    @property
    def alive(self) -> bool:
        return self.state in (ProcessState.STARTING, ProcessState.RUNNING, ProcessState.STOPPING)


class Supervisor:
    """Keeps a set of processes running. `handle(event, now)` returns the effects; pass a Tick at `next_deadline()`."""

    def __init__(self, limits: RestartLimits) -> None:
        self._limits = limits
        self._processes: dict[str, _Process] = {}
        #: Numbers survive a removal, so that a reused name never repeats an epoch.
        self._numbers: dict[str, int] = {}
        #: Processes that restart together, in order of rank, and are not all down yet.
        self._wave: set[str] = set()
        self._stopping = False
        self._stopped = False
        self._gave_up = False
        self._last_now: float | None = None

    # ---- queries ----------------------------------------------------------------------------
    @property
    def stopping(self) -> bool:
        return self._stopping

    def views(self) -> list[ProcessView]:
        return [_view(process) for process in self._processes.values()]

    def view(self, name: str) -> ProcessView | None:
        return next((v for v in self.views() if v.spec.name == name), None)

    def knows(self, name: str) -> bool:
        return name in self._processes

    def current(self, name: str) -> tuple[int, int]:
        """(number, pid) of the running incarnation, or (0, 0)."""
        process = self._processes.get(name)
        return (process.number, process.pid) if process and process.alive else (0, 0)

    def next_deadline(self) -> float | None:
        deadlines = [p.deadline for p in self._processes.values() if p.deadline is not None]
        deadlines += [
            p.last_report + p.spec.hang_timeout_s
            for p in self._processes.values()
            if p.last_report is not None and self._watched(p)
        ]
        return min(deadlines, default=None)

    def validate(self) -> None:
        """Assert the invariants that hold between events."""
        for name, p in self._processes.items():
            assert p.spec.name == name
            assert (p.pid > 0) == (p.state in (ProcessState.RUNNING, ProcessState.STOPPING)), p
            if p.state is ProcessState.BACKOFF:
                assert p.deadline is not None and p.intent is _Intent.NONE and not self._stopping
            if p.state is ProcessState.STOPPING:
                assert p.intent is not _Intent.NONE
                assert p.deadline is not None or p.killed
            assert p.number == self._numbers.get(name, 0)
        if self._stopped:
            assert not any(p.alive for p in self._processes.values())

    # ---- events -----------------------------------------------------------------------------
    def handle(self, event: Event, now: float) -> list[Effect]:
        self._notice_own_stall(now)
        match event:
            case DesiredChanged(specs):
                return self._on_desired(specs, now)
            case Spawned(name, number, pid):
                return self._on_spawned(name, number, pid, now)
            case SpawnFailed(name, number, error):
                return self._on_spawn_failed(name, number, error, now)
            case Exited():
                return self._on_exited(event, now)
            case Overgrown():
                return self._on_overgrown(event, now)
            case Reported():
                return self._on_reported(event, now)
            case RestartAsked(names, why):
                return self._on_restart(names, why, now)
            case StopAsked():
                return self._on_stop(now)
            case Tick():
                return self._on_tick(now)

    def _notice_own_stall(self, now: float) -> None:
        if self._last_now is not None and now - self._last_now > OWN_STALL_S:
            for process in self._processes.values():
                if process.last_report is not None:
                    process.last_report = now
        self._last_now = now

    def _on_desired(self, specs: tuple[ProcessSpec, ...], now: float) -> list[Effect]:
        if self._stopping:
            return []
        effects: list[Effect] = []
        wanted = {spec.name: spec for spec in specs}
        for name, spec in wanted.items():
            process = self._processes.get(name)
            if process is None:
                process = self._processes[name] = _Process(spec)
                process.number = self._numbers.get(name, 0)
                effects += self._start(process)
            else:
                process.spec = spec
                if process.intent is _Intent.REMOVE:
                    starting = process.state is ProcessState.STARTING
                    process.intent = _Intent.NONE if starting else _Intent.RESTART
        for name, process in list(self._processes.items()):
            if name not in wanted:
                effects += self._stop(process, _Intent.REMOVE, now)
        return [*effects, Changed()] if effects else []

    def _on_spawned(self, name: str, number: int, pid: int, now: float) -> list[Effect]:
        process = self._processes.get(name)
        if process is None or process.number != number or process.state is not ProcessState.STARTING:
            return [Signal(name, pid, signal.SIGKILL, group=True)]
        process.pid, process.started, process.state = pid, now, ProcessState.RUNNING
        process.last_report = None
        if process.intent is not _Intent.NONE:
            intent, process.intent = process.intent, _Intent.NONE
            return [*self._stop(process, intent, now), Changed()]
        return [Changed()]

    def _on_spawn_failed(self, name: str, number: int, error: str, now: float) -> list[Effect]:
        process = self._processes.get(name)
        if process is None or process.number != number or process.state is not ProcessState.STARTING:
            return []
        process.started = now
        return self._ended(process, ExitReason.SPAWN_FAILED, error, now)

    def _on_exited(self, event: Exited, now: float) -> list[Effect]:
        process = self._processes.get(event.name)
        if process is None or process.number != event.number or not process.alive:
            return []
        hints = replace(
            event.hints,
            asked=process.intent > _Intent.MEMORY,
            hung=process.intent is _Intent.HUNG,
            overgrown=process.intent is _Intent.MEMORY,
            at_limit=0 < process.spec.memory_max_bytes * AT_LIMIT <= event.peak_bytes,
            user_code=process.spec.user_code,
        )
        process.peak_bytes = event.peak_bytes
        # A task exits with this code only for an exception after its initialisation, unless user code chose the code.
        code = os.waitstatus_to_exitcode(event.status)
        process.left = by_user_code(event.status, hints)
        process.raised = code == exit_codes.USER_EXCEPTION and not process.left
        process.has_run = process.has_run or process.raised
        # A task that ends with a MemoryError itself reports the limit and the peak of its address space.
        process.memory_told = hints.memory_told or (hints.memory_error and process.raised)
        return self._ended(process, classify(event.status, hints), event.detail, now)

    def _on_reported(self, event: Reported, now: float) -> list[Effect]:
        process = self._processes.get(event.name)
        if process is None or process.number != event.number or process.state is not ProcessState.RUNNING:
            return []
        process.last_report = now
        process.has_run = process.has_run or event.ready
        limit = process.spec.hang_timeout_s
        if self._watched(process) and event.loop_age_s > limit:
            return self._hung(process, f"its loop has been blocked for {event.loop_age_s:.1f} s", now)
        return []

    def _on_overgrown(self, event: Overgrown, now: float) -> list[Effect]:
        """Restart a process before the kernel kills it, because an orderly restart loses no tuples."""
        process = self._processes.get(event.name)
        if process is None or process.number != event.number or process.state is not ProcessState.RUNNING:
            return []
        used, limit = format_bytes(event.used_bytes), format_bytes(event.limit_bytes)
        process.exit_detail = f"its resident memory was {used}, above the limit of {limit}"
        note = Note(f"{event.name} is restarted: {process.exit_detail}", True)
        return [note, *self._stop(process, _Intent.MEMORY, now), Changed()]

    def _on_restart(self, names: tuple[str, ...], why: str, now: float) -> list[Effect]:
        if self._stopping:
            return []
        effects: list[Effect] = []
        # Processes that are about to start anyway need no further step.
        chosen = [name for name in names or tuple(self._processes) if name not in self._wave]
        asked = [process for name in chosen if (process := self._processes.get(name)) is not None]
        for process in asked:
            process.history = RestartHistory()
            effects.append(Note(f"restarting {process.spec.name}: {why or 'on request'}"))
            process.exit_wish = why or "on request"
        if len({process.spec.stop_rank for process in asked}) > 1:
            self._wave |= {process.spec.name for process in asked}
            effects += self._advance_wave(now)
        else:
            for process in asked:
                effects += self._stop(process, _Intent.RESTART, now)
        return [*effects, Changed()] if effects else []

    def _advance_wave(self, now: float) -> list[Effect]:
        """During a joint restart, stop the lowest running rank; once all ranks are down, start all of them.

        A rank stops after all lower ranks, because it passes on the last reports from lower ranks.
        """
        members = [process for name, process in self._processes.items() if name in self._wave]
        for process in members:
            if process.state is ProcessState.BACKOFF:
                process.state, process.deadline = ProcessState.STOPPED, None
        up = [process for process in members if process.alive]
        effects: list[Effect] = []
        if not up:
            self._wave = set()
            for process in members:
                process.restarts += 1
                effects += self._start(process)
            return effects
        rank = min(process.spec.stop_rank for process in up)
        for process in up:
            if process.spec.stop_rank == rank and process.intent < _Intent.RESTART:
                effects += self._stop(process, _Intent.RESTART, now)
        return effects

    def _on_stop(self, now: float) -> list[Effect]:
        self._stopping, self._wave = True, set()
        return self._advance_stop(now)

    def _on_tick(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for process in list(self._processes.values()):
            if process.deadline is not None and now >= process.deadline:
                if process.state is ProcessState.BACKOFF:
                    effects += [*self._start(process), Changed()]
                elif process.state is ProcessState.STOPPING:
                    process.deadline, process.killed = None, True
                    effects.append(Signal(process.spec.name, process.pid, signal.SIGKILL, True))
            elif self._watched(process) and process.last_report is not None:
                silent = now - process.last_report
                if silent >= process.spec.hang_timeout_s:
                    effects += self._hung(process, f"it has been silent for {silent:.1f} s", now)
        return effects

    # ---- steps ------------------------------------------------------------------------------
    @staticmethod
    def _watched(process: _Process) -> bool:
        return process.state is ProcessState.RUNNING and process.spec.hang_timeout_s > 0

    def _start(self, process: _Process) -> list[Effect]:
        name = process.spec.name
        if process.number >= NUMBER_MAX:
            return self._fail(process, ExitReason.OWN_BUG, f"started {NUMBER_MAX} times")
        process.number += 1
        self._numbers[name] = process.number
        process.state, process.pid, process.deadline = ProcessState.STARTING, 0, None
        process.intent, process.killed, process.last_report = _Intent.NONE, False, None
        process.raised = process.left = False
        return [Start(process.spec, process.number)]

    def _stop(self, process: _Process, intent: _Intent, now: float) -> list[Effect]:
        """Stop a process for `intent`; the next step is decided when it is down."""
        process.intent, grace_s = max(process.intent, intent), process.spec.stop_grace_s
        if process.state is ProcessState.STARTING:
            return []
        if process.state is ProcessState.RUNNING:
            process.state = ProcessState.STOPPING
            process.deadline = now + (CALL_GRACE_S if intent is _Intent.RESTART and process.spec.user_code else grace_s)
            return [Signal(process.spec.name, process.pid, signal.SIGTERM)]
        if process.state is ProcessState.STOPPING:
            if process.intent > _Intent.RESTART and process.deadline is not None:
                process.deadline = min(process.deadline, now + grace_s)
            return []
        return self._down(process, now)

    def _hung(self, process: _Process, why: str, now: float) -> list[Effect]:
        process.state, process.intent = ProcessState.STOPPING, _Intent.HUNG
        process.deadline = now + DUMP_GRACE_S
        process.exit_detail = why
        name = process.spec.name
        return [
            Note(f"{name} hangs: {why}; its stacks are written to its log and it is restarted", True),
            Signal(name, process.pid, signal.SIGUSR1),
            Changed(),
        ]

    def _ended(self, process: _Process, reason: ExitReason, detail: str, now: float) -> list[Effect]:
        """Handle the end of an incarnation, or a failed start."""
        if reason is not ExitReason.HUNG and process.intent is not _Intent.MEMORY:
            asked = process.intent is _Intent.RESTART and reason is ExitReason.PREEMPTED
            late = f", and killed, because a call lasted longer than {CALL_GRACE_S:g} s" if process.killed else ""
            process.exit_detail = f"restarted {process.exit_wish}{late}" if asked else detail
        process.exit_reason = reason
        process.pid, process.deadline = 0, None
        if self._stopping or process.intent > _Intent.MEMORY or process.spec.name in self._wave:
            return [*self._down(process, now), Changed()]
        if reason is ExitReason.OOM and process.peak_bytes and not process.memory_told:
            process.exit_detail = _with_peak(process)
        ended = Ended(process.spec, reason, process.exit_detail, process.raised, process.left)
        return [ended, *self._judge(process, reason, now)]

    def _judge(self, process: _Process, reason: ExitReason, now: float) -> list[Effect]:
        """Decide how to react to the end of a process that should be running."""
        name = process.spec.name
        ran_s = now - process.started
        what = f"{name} ended ({reason.value}{': ' + process.exit_detail if process.exit_detail else ''})"
        if reason is ExitReason.FINISHED:
            process.state, process.intent = ProcessState.STOPPED, _Intent.NONE
            return [Note(what), Changed()]
        again = reason is ExitReason.STARTUP_FAILURE and (process.has_run or process.spec.has_run)
        judged = ExitReason.USER_EXCEPTION if again else reason
        decision = decide_restart(self._limits, process.history, judged, ran_s, now, again or process.raised)
        process.outlook = decision.outlook
        if not decision.restart:
            return [Note(f"{what}; it is not restarted", True), *self._fail(process, reason, decision.cause)]
        process.restarts += 1
        process.state, process.intent = ProcessState.BACKOFF, _Intent.NONE
        process.deadline = now + decision.pause_s
        warning = reason is not ExitReason.REWOUND
        return [Note(f"{what}; restart in {decision.pause_s:.3g} s", warning), Changed()]

    def _fail(self, process: _Process, reason: ExitReason, cause: str) -> list[Effect]:
        process.state, process.intent, process.pid = ProcessState.FAILED, _Intent.NONE, 0
        process.deadline, process.exit_reason = None, reason
        if cause and cause != reason.value:
            process.exit_detail = f"{cause}: {process.exit_detail}" if process.exit_detail else cause
        effects: list[Effect] = [Changed()]
        if process.spec.critical and not self._gave_up:
            self._gave_up = True
            effects.append(GiveUp(process.spec.name, reason, process.exit_detail))
        return effects

    def _down(self, process: _Process, now: float) -> list[Effect]:
        """Handle a process that was stopped on request: remove it, start it or leave it stopped."""
        name = process.spec.name
        intent, process.intent, process.deadline = process.intent, _Intent.NONE, None
        process.state = ProcessState.STOPPED
        if intent is _Intent.REMOVE:
            del self._processes[name]
        if self._stopping:
            return self._advance_stop(now)
        together = name in self._wave
        effects: list[Effect] = []
        if intent is _Intent.REMOVE:
            self._wave.discard(name)
            effects.append(Removed(name))
        if together:
            return effects + self._advance_wave(now)
        if intent is _Intent.REMOVE:
            return effects
        process.restarts += 1
        return self._start(process)

    def _advance_stop(self, now: float) -> list[Effect]:
        """Stop the lowest rank that still has a living process."""
        for process in self._processes.values():
            if process.state is ProcessState.BACKOFF:
                process.state, process.deadline = ProcessState.STOPPED, None
        living = [p for p in self._processes.values() if p.alive]
        if not living:
            if self._stopped:
                return []
            self._stopped = True
            return [Changed(), AllStopped()]
        rank = min(p.spec.stop_rank for p in living)
        effects: list[Effect] = []
        for process in living:
            if process.spec.stop_rank == rank and process.intent is not _Intent.SHUTDOWN:
                effects += self._stop(process, _Intent.SHUTDOWN, now)
        return effects


def _with_peak(process: _Process) -> str:
    """The description of a process that ran out of memory, with its peak resident size and its limit."""
    peaked, limit = f"its resident memory peaked at {format_bytes(process.peak_bytes)}", process.spec.memory_max_bytes
    if process.intent is _Intent.MEMORY:
        return f"{peaked}, above the limit of {format_bytes(limit)}"
    return f"{process.exit_detail}; {peaked}" + (f", its limit is {format_bytes(limit)}" if limit else "")


def _view(process: _Process) -> ProcessView:
    resting = process.state is ProcessState.BACKOFF
    return ProcessView(
        process.spec,
        process.state,
        process.pid,
        process.number,
        process.restarts,
        process.exit_reason,
        process.exit_detail,
        process.peak_bytes,
        process.outlook if resting else Outlook(),
        process.deadline if resting else None,
    )
