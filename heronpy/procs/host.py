"""Connects the supervisor to a fork server: turns effects into forks and signals, and exits into events.

The owner chooses the program for each specification and the destination of the program's output. Invariants: the
supervisor gets each exit once; a single timer is set to the supervisor's next deadline, and no code polls.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.units import format_bytes
from heronpy.procs.exit_reason import ExitHints, detail_of
from heronpy.procs.forkserver import (
    ChildExited,
    ChildFailed,
    ChildSpawned,
    Command,
    ForkServer,
    Ready,
    ServerEvent,
    ServerGone,
)
from heronpy.procs.linux import number_in
from heronpy.procs.supervision import (
    AllStopped,
    Changed,
    Effect,
    Ended,
    Event,
    Exited,
    GiveUp,
    Note,
    ProcessSpec,
    Removed,
    Reported,
    Signal,
    Spawned,
    SpawnFailed,
    Start,
    Tick,
)
from heronpy.procs.supervisor import Supervisor

log = logging.getLogger("heronpy.procs")
#: Limit and peak of a control group, in both versions; both cover the memory of all its processes.
_FIGURES = (("memory.max", "memory.peak"), ("memory.limit_in_bytes", "memory.max_usage_in_bytes"))
#: Version 1 reports "no limit" as a value close to the largest integer.
_NO_LIMIT = 1 << 60


class OomCounter:
    """Reads the out-of-memory kills and the memory figures of this process's control group (versions 1 and 2).

    `moved()` returns whether the number of kills has increased since the last call. If so, a SIGKILL that the
    supervisor did not send was an out-of-memory kill.
    """

    def __init__(self, paths: Iterable[str] | None = None) -> None:
        self._paths = list(paths) if paths is not None else counter_files()
        self._last = self._read()

    def moved(self) -> bool:
        count = self._read()
        moved = count > self._last
        self._last = count
        return moved

    def figures(self) -> str:
        """The memory limit and peak of the control group as text; "" if the limit is missing or unknown."""
        for folder in (Path(path).parent for path in self._paths):
            for limit_name, peak_name in _FIGURES:
                limit, peak = number_in(folder / limit_name), number_in(folder / peak_name)
                if limit is not None and limit < _NO_LIMIT:
                    said = f", its peak {format_bytes(peak)}" if peak is not None else ""
                    return f"the control group's limit is {format_bytes(limit)}{said}, for all its processes"
        return ""

    def _read(self) -> int:
        return sum(_oom_kills(path) for path in self._paths)


def _oom_kills(path: str) -> int:
    try:
        with open(path, encoding="ascii") as counters:
            for line in counters:
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
    except (OSError, ValueError):
        return 0
    return 0


def counter_files(cgroup_file: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> list[str]:
    """The files of this process's control group that contain a line `oom_kill N`."""
    found = []
    try:
        with open(cgroup_file, encoding="utf-8") as groups:
            lines = groups.read().splitlines()
    except OSError:
        return []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        path = path.lstrip("/")
        if not controllers:
            candidates = [os.path.join(root, path), os.path.join(root, "unified", path), root]
            name = "memory.events"
        elif "memory" in controllers.split(","):
            candidates = [os.path.join(root, controllers, path), os.path.join(root, "memory")]
            name = "memory.oom_control"
        else:
            continue
        existing = [os.path.join(c, name) for c in candidates if os.path.exists(os.path.join(c, name))]
        found += existing[:1]
    return found


class Owner(Protocol):
    """The callbacks that a process host needs from its program."""

    def command_of(self, spec: ProcessSpec, number: int) -> Command: ...

    def open_output(self, name: str) -> int:
        """A file descriptor for a new child's stdout and stderr; the host closes it."""
        ...

    def termination_report(self, name: str, killed: bool) -> tuple[str, bool]:
        """Why the child ended, as shown by its log, and whether it ran out of memory.

        A child that was killed by a signal could not write a last line into its log.
        """
        ...

    def on_changed(self) -> None: ...

    def on_removed(self, name: str) -> None: ...

    def on_give_up(self, effect: GiveUp) -> None: ...

    def on_ended(self, effect: Ended) -> None: ...

    def on_all_stopped(self) -> None: ...

    def on_server_gone(self) -> None: ...


class _Child(Struct):
    name: str
    number: int
    user_code: bool


class ProcessHost:
    """Runs a supervisor on the running event loop."""

    def __init__(self, server: ForkServer, supervisor: Supervisor, owner: Owner) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._supervisor = supervisor
        self._owner = owner
        self._requests: dict[int, _Child] = {}
        self._children: dict[int, _Child] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._oom = OomCounter()
        #: Wall time of the start of each running process, for display.
        self.started_at: dict[str, float] = {}
        server.attach(self._on_server)

    def handle(self, event: Event) -> None:
        """Pass an event to the supervisor and perform its effects."""
        for effect in self._supervisor.handle(event, time.monotonic()):
            self._apply(effect)
        self._arm()

    def reported(self, name: str, number: int, loop_age_s: float, ready: bool = False) -> None:
        """Record a report from a process. The timer usually stays unchanged: a report only postpones a deadline."""
        effects = self._supervisor.handle(Reported(name, number, loop_age_s, ready), time.monotonic())
        for effect in effects:
            self._apply(effect)
        if effects or self._timer is None:
            self._arm()

    def close(self) -> None:
        """Kill all remaining processes and end the fork server."""
        if self._timer is not None:
            self._timer.cancel()
        self._server.close()

    # ---- effects ----------------------------------------------------------------------------
    def _apply(self, effect: Effect) -> None:
        match effect:
            case Start(spec, number):
                self._start(spec, number)
            case Signal(_, pid, signum, group):
                self._server.signal(pid, signum, group)
            case Note(text, warning):
                log.log(logging.WARNING if warning else logging.INFO, "%s", text)
            case Changed():
                self._owner.on_changed()
            case Removed(name):
                self.started_at.pop(name, None)
                self._owner.on_removed(name)
            case GiveUp():
                self._owner.on_give_up(effect)
            case Ended():
                self._owner.on_ended(effect)
            case AllStopped():
                self._owner.on_all_stopped()

    def _start(self, spec: ProcessSpec, number: int) -> None:
        try:
            fd = self._owner.open_output(spec.name)
            try:
                command = replace(self._owner.command_of(spec, number), announces=spec.user_code)
                request = self._server.spawn(command, fd)
            finally:
                os.close(fd)
        except Exception as error:
            text = f"cannot start {spec.name}: {error}"
            self._loop.call_soon(self.handle, SpawnFailed(spec.name, number, text))
            return
        self._requests[request] = _Child(spec.name, number, spec.user_code)

    def _arm(self) -> None:
        at = self._supervisor.next_deadline()
        if at is None:
            return
        if self._timer is not None:
            if at >= self._timer_at:
                return  # the timer fires too early, finds nothing to do, and is set again
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_later(max(at - time.monotonic(), 0.0), self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        self.handle(Tick())

    # ---- the fork server --------------------------------------------------------------------
    def _on_server(self, event: ServerEvent) -> None:
        match event:
            case Ready(problems, threads):
                for name, problem in problems.items():
                    log.info("%s is not preloaded: %s", name, problem)
                if threads > 1:
                    log.warning("the fork server has %d threads; set heron.executor.preload to false", threads)
            case ChildSpawned(request, pid):
                child = self._requests.pop(request)
                self._children[pid] = child
                self.started_at[child.name] = time.time()
                self.handle(Spawned(child.name, child.number, pid))
            case ChildFailed(request, error):
                child = self._requests.pop(request)
                self.handle(SpawnFailed(child.name, child.number, error))
            case ChildExited():
                self._on_exit(event)
            case ServerGone():
                log.error("the fork server and all its processes died")
                self._owner.on_server_gone()

    def _on_exit(self, event: ChildExited) -> None:
        status = event.status
        child = self._children.pop(event.pid, None)
        if child is None:
            return
        killed = os.WIFSIGNALED(status)
        words, memory_error = self._owner.termination_report(child.name, killed)
        known = ExitHints(user_code=child.user_code, announced=event.announced)
        detail = detail_of(status, known, words)
        oom_moved = killed and self._oom.moved()
        figures = self._oom.figures() if oom_moved else ""
        if figures:
            detail = f"{detail}; {figures}"
        hints = replace(known, oom_moved=oom_moved, memory_error=memory_error, memory_told=bool(figures))
        self.handle(Exited(child.name, child.number, status, hints, detail, event.rss_bytes))
