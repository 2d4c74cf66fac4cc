"""Taking a topology down: through its scheduler, or by hand when the scheduler is dead.

Used by `kill` and by a `submit` that fails. Safe to repeat. A process counts as the topology's only
when it is this user's, and either runs one of our modules on this topology's launch file or was started
by one that does (see `belongs`); it is signalled by pid and start time together, so a reused pid is never
hit. Log files stay.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil

from heronpy.ckpt.catalogue import in_folder, missing_files, roots_of
from heronpy.clusters.leftovers import clear_leftovers
from heronpy.clusters.session import Session
from heronpy.common.errors import DeadlineError, HeronError
from heronpy.common.ids import short_hash
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import settings_for
from heronpy.net import curve
from heronpy.net.rpc import RpcClient
from heronpy.proto import control_pb2, plan_pb2
from heronpy.scheduler import teardown

#: Every process of a topology has the path of its launch file in this variable of its environment.
LAUNCH_VARIABLE = "HERON_LAUNCH"
#: What a topology consists of.
_CONTROL = ("heronpy.scheduler", "heronpy.executor", "heronpy.tmaster", "heronpy.spark", "heronpy.ckpt.replicator")
OUR_MODULES = frozenset((*_CONTROL, "stmgr", "instance"))
TERM_GRACE_S = 2.0
KILL_GRACE_S = 5.0
ASK_AGAIN_S = 2.0


@dataclass(slots=True)
class Outcome:
    """Result of a takedown; `remains` lists what could not be removed."""

    by_scheduler: bool = False
    processes_killed: int = 0
    remains: list[str] = field(default_factory=list)
    checkpoint: str = ""
    """Where the newest intact checkpoint lies; one may have completed since the state manager was last read."""


def sockets_dir(topology_id: str) -> Path:
    """Folder of a topology's sockets: short, because a socket's path may have at most 107 bytes."""
    base = tempfile.gettempdir()
    base = base if len(base) <= 40 else "/tmp"
    return Path(base) / f"heron-{os.getuid()}" / short_hash(topology_id)


def take_down(session: Session, record: plan_pb2.ExecutionState, timeout_s: float) -> Outcome:
    """Stop the topology's processes and remove its state; returns what happened."""
    outcome = Outcome()
    deadline = time.monotonic() + timeout_s
    try:
        scheduler = session.scheduler(record.topology)
        if scheduler is not None:
            with scheduler:
                while not outcome.by_scheduler:
                    outcome.by_scheduler = _asked_to_kill(session, record, scheduler, deadline)
            _wait_gone(record.launch_file, timeout_s)
    except HeronError:
        pass  # whatever the scheduler could not do is done by hand below
    outcome.processes_killed = kill_leftovers(record.launch_file)
    left = leftovers(record.launch_file)
    outcome.remains = [f"process {process.pid}" for process in left]
    if not left:
        outcome.checkpoint = _clear_checkpoints(session, record)
        remove_state(session, record)
        remove_sockets(session, record)
    return outcome


def _asked_to_kill(session: Session, record: plan_pb2.ExecutionState, client: RpcClient, deadline: float) -> bool:
    """Ask, and ask again when there is no answer: the scheduler may have ended without its answer arriving."""
    left_s = deadline - time.monotonic()
    try:
        client.call(control_pb2.KillTopology(), max(min(left_s, ASK_AGAIN_S), 0.001))
        return True
    except DeadlineError:
        current = session.record(record.topology)
        if current is None or current.topology_id != record.topology_id:
            return True
        if left_s <= ASK_AGAIN_S or session.scheduler_location(record.topology) is None:
            raise
        return False


def _wait_gone(launch_file: str, timeout_s: float) -> None:
    """The scheduler answers before it ends; give its process time to end."""
    deadline = time.monotonic() + min(timeout_s, KILL_GRACE_S)
    while leftovers(launch_file) and time.monotonic() < deadline:
        time.sleep(0.05)


def belongs(argv: list[str], inherited: str | None, terminal: bool, launch_file: str) -> bool:
    """Whether a process with this command line belongs to the topology of a launch file. Pure.

    Either it runs one of our modules on the file: `python -m MODULE ... --launch FILE`. Or it was started
    with the file in its environment (`inherited`) and without a terminal: a forked process (its command
    line is only a title), a JVM, or a process that user code started. A process with a terminal is a
    person's: an editor on the file, or a shell that has the variable.
    """
    if inherited == launch_file and not terminal:
        return True
    if not argv or not _is_python(argv[0]):
        return False
    module, rest = _module_of(argv[1:])
    return module in OUR_MODULES and (f"--launch={launch_file}" in rest or ("--launch", launch_file) in pairwise(rest))


def _is_python(program: str) -> bool:
    return program == sys.executable or os.path.basename(program).startswith(("python", "pypy"))


def _module_of(words: list[str]) -> tuple[str, list[str]]:
    """The module that these arguments make Python run, and the arguments after it."""
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        if words[0] == "-m":
            return (words[1] if len(words) > 1 else ""), words[2:]
        words = words[2 if words[0] in ("-X", "-W") else 1 :]
    return "", []


def leftovers(launch_file: str) -> list[psutil.Process]:
    """Live processes of this user that belong to the launch file, except this one and its parents."""
    if not launch_file:
        return []
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        if process.pid in own:
            continue
        try:
            if process.uids().real != os.getuid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            inherited = process.environ().get(LAUNCH_VARIABLE)
            if belongs(process.cmdline(), inherited, process.terminal() is not None, launch_file):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
    return found


def kill_leftovers(launch_file: str) -> int:
    """End what is left: SIGTERM, then SIGKILL. Repeats, because an executor may have just forked."""
    killed: set[int] = set()
    deadline = time.monotonic() + TERM_GRACE_S + KILL_GRACE_S
    terminated = False
    while processes := leftovers(launch_file):
        if time.monotonic() > deadline:
            break
        for process in processes:
            try:
                # psutil compares the start time before it signals.
                process.kill() if terminated else process.terminate()
                killed.add(process.pid)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        psutil.wait_procs(processes, timeout=0.5 if terminated else TERM_GRACE_S)
        terminated = True
    return len(killed)


def remove_state(session: Session, record: plan_pb2.ExecutionState) -> None:
    """Remove the topology's keys and nodes, unless they belong to a later topology of the same name."""
    current = session.record(record.topology)
    if current is None or current.topology_id == record.topology_id:
        if record.working_dir:
            curve.remove(record.working_dir)
        teardown.remove_state(session.state, record.topology)


def _clear_checkpoints(session: Session, record: plan_pb2.ExecutionState) -> str:
    """Remove what unfinished checkpoints have written; complete ones stay. Returns where the newest lies."""
    whole = []
    with contextlib.suppress(HeronError, OSError):  # no launch file, or no store: nothing was written, either
        for root in roots_of([settings_for(session.launch_of(record), CheckpointSettings)]):
            folder = root / record.topology_id
            clear_leftovers(folder)
            if folder.is_dir():
                whole += [found for found in in_folder(folder) if not missing_files(found)]
    newest = max(whole, key=lambda found: found.checkpoint, default=None)
    return newest.location if newest is not None else ""


def remove_sockets(session: Session, record: plan_pb2.ExecutionState) -> None:
    """Remove the folder of the topology's sockets."""
    folder = str(sockets_dir(record.topology_id))
    with contextlib.suppress(HeronError):  # without a launch file the folder follows from the topology's id
        folder = session.launch_of(record).sockets_dir
    teardown.remove_sockets(folder)
