"""Takes a topology down: through its scheduler, or directly when the scheduler is dead.

Used by `kill` and by a failed `submit`. A takedown may be repeated. Log files are kept.

A process belongs to the topology only if this user owns the process, and if it runs one of heronpy's modules on the
topology's launch file or was started by such a process (see `belongs`). A process is identified by pid and start time,
so a process that reuses the pid is never signalled.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from heronpy.clusters.errors import ClusterError
from heronpy.clusters.session import Session
from heronpy.clusters.takedown_outcome import RECORD, Outcome, away_text, some
from heronpy.common.errors import DeadlineError, HeronError, StateAwayError
from heronpy.net import curve
from heronpy.net.access_place import folder_of, origin_of
from heronpy.net.rpc import RpcClient
from heronpy.plan.component_config import reliability_mode
from heronpy.plan.launch import LAUNCH_VARIABLE, Submitted, sockets_dir
from heronpy.procs import container_group
from heronpy.proto import control_pb2, plan_pb2
from heronpy.scheduler import teardown

if TYPE_CHECKING:
    import psutil

#: Modules that the processes of a topology run.
_CONTROL = ("heronpy.scheduler", "heronpy.executor", "heronpy.tmaster", "heronpy.spark", "heronpy.ckpt.replicator")
OUR_MODULES = frozenset((*_CONTROL, "stmgr", "instance"))
TERM_GRACE_S = 2.0
KILL_GRACE_S = 5.0
#: Time limit for a topology's processes to end after its scheduler has reported their end.
SOON_S = 0.5
ASK_AGAIN_S = 2.0
#: Time, in seconds, by which the scheduler's own deadline for a request is shorter than this command's deadline.
ANSWER_S = 0.5
ENGINE_END_S = 20.0
#: Time limit, in seconds, for a scheduler on this host. After that, this command itself ends the topology's processes.
LIMIT_S = 30.0
#: Time for the last request to an engine and its answer.
ENGINE_SLACK_S = 10.0
#: Time for a scheduler to remove its records from the state manager.
FORCE_S = 30.0


def limit_s(session: Session, topology: str) -> float:
    """Time limit for a takedown in seconds; with an engine, long enough for silent containers to count as lost."""
    with contextlib.suppress(HeronError):
        submitted = session.submitted(topology)
        if submitted is not None and submitted.engine:
            from heronpy.clusters.engines import lease_times

            times = lease_times(submitted)
            return times.stop_grace_s + times.lost_s + ENGINE_SLACK_S
    return LIMIT_S


def take_down(
    session: Session,
    record: plan_pb2.ExecutionState,
    timeout_s: float,
    force: bool = False,
    waits: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Stop the topology's processes and remove its state; return the outcome.

    If the end of an engine's containers takes a while, `waits` is called with the reason. With `force`, a topology is
    removed even if the end of some containers is unconfirmed.
    """
    outcome = Outcome(unseen_host=session.elsewhere(record))
    if session.scheduler_location(record.topology) is not None and session.by_endpoint(record) is not None:
        outcome.unseen_host = outcome.unseen_host or origin_of(session.target.cluster)
        _kill_by_endpoint(session, record, timeout_s, force, waits, outcome)
        return outcome
    if outcome.unseen_host:
        if session.scheduler_location(record.topology) is not None:
            session.check_here(record, "its scheduler and processes are")
        outcome.remains = _end_on_engine(session, record, outcome, timeout_s, force, waits)
        if not outcome.remains:
            remove_state(session, record)
        return outcome
    deadline = time.monotonic() + timeout_s
    stateful = _has_checkpoints(session, record)
    gone = False
    try:
        scheduler = session.scheduler(record.topology)
        if scheduler is not None:
            with scheduler:
                _ask_until_gone(session, record, scheduler, deadline, force, waits, outcome)
            if outcome.scheduler_lives:
                return outcome
            gone = _wait_gone(record.launch_file, timeout_s)
    except HeronError:
        pass  # work that the scheduler could not do is done below
    if not gone:
        outcome.processes_killed = kill_leftovers(record.launch_file)
        outcome.remains = [f"process {process.pid}" for process in leftovers(record.launch_file)]
    container_group.remove(container_group.prefix_of(record.topology_id))
    if not outcome.by_scheduler:
        outcome.remains += _end_on_engine(session, record, outcome, timeout_s, force, waits)
    if not outcome.remains:
        if stateful:
            _settle_checkpoints(session, record, outcome)
        remove_state(session, record)
        remove_sockets(session, record)
    return outcome


def _has_checkpoints(session: Session, record: plan_pb2.ExecutionState) -> bool:
    """Whether the run may have written checkpoints; True if its mode is unknown."""
    try:
        return reliability_mode(session.topology(record.topology)) == "EFFECTIVELY_ONCE"
    except HeronError:
        return True


def _settle_checkpoints(session: Session, record: plan_pb2.ExecutionState, outcome: Outcome) -> None:
    from heronpy.clusters.leftovers import clear_checkpoints, complete_replica  # heavy; only stateful runs need them

    try:
        outcome.replica_lacks = complete_replica(session, record)
        outcome.checkpoint = clear_checkpoints(session, record)
    except HeronError as error:
        outcome.unswept = str(error)


def _ask_until_gone(
    session: Session,
    record: plan_pb2.ExecutionState,
    scheduler: RpcClient,
    deadline: float,
    force: bool,
    waits: Callable[[str], None],
    outcome: Outcome,
) -> None:
    while not outcome.by_scheduler:
        outcome.by_scheduler = _asked_to_kill(session, record, scheduler, deadline, outcome, waits)
        if outcome.may_run and not outcome.by_scheduler and time.monotonic() >= deadline:
            if session.scheduler_location(record.topology) is None:
                return  # it was killed meanwhile
            if not force:
                # The scheduler continues to end the processes, and the next command finds the scheduler.
                outcome.remains, outcome.scheduler_lives = outcome.may_run, True
                outcome.look = _look_command(session, record)
                return
            scheduler.call(control_pb2.KillTopology(force=True), FORCE_S)
            outcome.by_scheduler = True


def _kill_by_endpoint(
    session: Session,
    record: plan_pb2.ExecutionState,
    timeout_s: float,
    force: bool,
    waits: Callable[[str], None],
    outcome: Outcome,
) -> None:
    """Kill the topology from another host: its scheduler ends the containers, and removes state, keys and files."""
    scheduler = session.scheduler(record.topology)
    if scheduler is None:
        return
    with scheduler:
        try:
            _ask_until_gone(session, record, scheduler, time.monotonic() + timeout_s, force, waits, outcome)
        except StateAwayError as error:
            raise ClusterError(
                f"the scheduler of '{record.topology}' got the request to kill the topology, and its control endpoint"
                f" no longer answers, which is normal after a kill; check with 'heron list {session.target}' on the"
                f" scheduler's host ({error})"
            ) from None
    if outcome.by_scheduler:
        session.forget(record)
    elif not outcome.remains:
        outcome.remains = [f"the scheduler on host {session.elsewhere(record) or 'of the topology'}"]


def _end_on_engine(
    session: Session,
    record: plan_pb2.ExecutionState,
    outcome: Outcome,
    timeout_s: float,
    force: bool,
    waits: Callable[[str], None],
) -> list[str]:
    """End the containers on an engine without a scheduler; return the containers that may still be running."""
    submitted = session.submitted(record.topology)
    if submitted is None or submitted.topology_id != record.topology_id or not submitted.engine:
        return []
    if submitted.pool:
        return _in_pool(session, submitted, outcome, force)
    return _end_submitted(submitted, outcome, timeout_s, force, waits)


def _in_pool(session: Session, submitted: Submitted, outcome: Outcome, force: bool) -> list[str]:
    """A topology's containers that may still be running in the slots of a pool while the pool's scheduler is down."""
    from heronpy.pools.nodes import read_pool  # only topologies of a pool need it

    pool = read_pool(session.state, submitted.pool)
    if pool is None or pool.members.get(submitted.topology) != submitted.topology_id:
        return []
    outcome.may_run = [f"containers in pool '{submitted.pool}'"]
    outcome.why_waits = f"the scheduler of pool '{submitted.pool}' is not running"
    return [] if force else outcome.may_run


def _end_submitted(
    submitted: Submitted, outcome: Outcome, timeout_s: float, force: bool, waits: Callable[[str], None]
) -> list[str]:
    from heronpy.clusters.engines import end_all, engine_of  # not needed where this host runs the containers

    try:
        engine = engine_of(submitted)
        outcome.look = engine.look_command()
        ends = end_all(engine, timeout_s, waits=waits)
        outcome.ended_on_engine, outcome.files_on = ends.asked, ends.hosts
        outcome.may_run = [*ends.left, *ends.unconfirmed]
    except HeronError as error:
        outcome.may_run = [f"containers on engine {submitted.engine}"]
        outcome.why_waits = str(error)
    return [] if force else outcome.may_run


def _look_command(session: Session, record: plan_pb2.ExecutionState) -> str:
    with contextlib.suppress(HeronError):
        submitted = session.submitted(record.topology)
        if submitted is not None and submitted.engine:
            from heronpy.clusters.engines import engine_of

            return engine_of(submitted).look_command()
    return ""


def end_unstarted(submitted: Submitted, waits: Callable[[str], None] = lambda text: None) -> Outcome:
    """End containers that a failed submit may have started on its engine; `remains` lists those that may be running."""
    outcome = Outcome()
    outcome.remains = _end_submitted(submitted, outcome, ENGINE_END_S, False, waits)
    return outcome


def _asked_to_kill(
    session: Session,
    record: plan_pb2.ExecutionState,
    client: RpcClient,
    deadline: float,
    outcome: Outcome,
    waits: Callable[[str], None],
) -> bool:
    """Request the kill; return whether it is done. If no answer comes, the state manager shows whether it is done."""
    left_s = deadline - time.monotonic()
    within_s = max(min(left_s, ASK_AGAIN_S), 0.001)
    try:
        answer = client.call(control_pb2.KillTopology(wait_s=max(within_s - ANSWER_S, 0.001)), within_s)
        if not isinstance(answer, control_pb2.KillUnderWay):
            outcome.may_run, outcome.why_waits = [], ""
            return True
        if not outcome.may_run or outcome.why_waits != answer.engine_away:
            waits(f"waiting for {some(answer.left)} to end{away_text(answer.engine_away)}")
        outcome.may_run, outcome.why_waits = list(answer.left) or [RECORD], answer.engine_away
        return False
    except DeadlineError:
        current = session.record(record.topology)
        if current is None or current.topology_id != record.topology_id:
            outcome.may_run, outcome.why_waits = [], ""
            return True
        if outcome.may_run:
            return False  # it has answered before, so it is alive
        if left_s <= ASK_AGAIN_S or session.scheduler_location(record.topology) is None:
            raise
        if not outcome.silent:
            outcome.silent = True
            waits(
                f"waiting for the scheduler of '{record.topology}', which has not yet ended all of its processes;"
                f" in {left_s - within_s:.0f} s this command will kill them"
            )
        return False


def _wait_gone(launch_file: str, timeout_s: float) -> bool:
    """Wait for the scheduler's process, which answers before it ends; return whether all processes have ended."""
    deadline = time.monotonic() + min(timeout_s, KILL_GRACE_S)
    if launch_file and os.environ.get(LAUNCH_VARIABLE) != launch_file:  # otherwise it would wait for its own shell
        _await_ends(_naming(launch_file), SOON_S)
    while leftovers(launch_file):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def _naming(launch_file: str) -> list[int]:
    """Processes that name the file in their arguments or environment. Some may not belong to the topology."""
    found, name = [], os.fsencode(launch_file)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for what in ("cmdline", "environ"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/{what}", "rb") as file:
                if name in file.read():
                    found.append(int(pid))
                    break
    return found


def _await_ends(pids: list[int], timeout_s: float) -> None:
    """Wait up to `timeout_s` for these processes to end; some may not belong to the topology."""
    deadline, living, waits = time.monotonic() + timeout_s, select.poll(), 0
    with contextlib.ExitStack() as opened:
        for pid in pids:
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(pid)
                opened.callback(os.close, descriptor)
                living.register(descriptor, select.POLLIN)
                waits += 1
        while waits and (left_s := deadline - time.monotonic()) > 0:
            for descriptor, _ in living.poll(left_s * 1000):
                living.unregister(descriptor)
                waits -= 1


def belongs(argv: list[str], inherited: str | None, terminal: bool, launch_file: str) -> bool:
    """Whether a process with this command line belongs to the topology of a launch file. Pure.

    Either it runs one of heronpy's modules on the file: `python -m MODULE ... --launch FILE`. Or it was started
    with the file in its environment (`inherited`) and without a terminal: a forked process (its command
    line is only a title), a JVM, or a process that user code started. A process with a terminal belongs to a person:
    an editor on the file, or a shell that has the variable.
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
    """The module that Python runs with these arguments, and the arguments after it."""
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        if words[0] == "-m":
            return (words[1] if len(words) > 1 else ""), words[2:]
        words = words[2 if words[0] in ("-X", "-W") else 1 :]
    return "", []


def leftovers(launch_file: str) -> list[psutil.Process]:
    """Live processes of this user that belong to the launch file, except this process and its parents."""
    pids = _naming(launch_file) if launch_file else []
    if not pids:
        return []
    import psutil  # imported here, because usually no processes are left

    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for pid in set(pids) - own:
        try:
            process = psutil.Process(pid)
            if process.uids().real != os.getuid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            inherited = process.environ().get(LAUNCH_VARIABLE)
            if belongs(process.cmdline(), inherited, process.terminal() is not None, launch_file):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
    return found


def kill_leftovers(launch_file: str) -> int:
    """End the remaining processes with SIGTERM, then SIGKILL; repeated, because an executor may have just forked."""
    import psutil

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
    """Remove the topology's keys and nodes, unless they belong to a later topology with the same name."""
    current = session.record(record.topology)
    if current is None or current.topology_id == record.topology_id:
        if record.working_dir and not session.elsewhere(record):
            curve.remove(record.working_dir)
            if folder_of(session.target.cluster).is_dir():
                from heronpy.net.access import forget_endpoint

                forget_endpoint(session.target.cluster, record.topology, record.topology_id)
        teardown.remove_state(session.state, record.topology)


def remove_sockets(session: Session, record: plan_pb2.ExecutionState) -> None:
    """Remove the topology's socket folder."""
    folder = str(sockets_dir(record.topology_id))
    with contextlib.suppress(HeronError):  # without a launch file the folder follows from the topology's id
        folder = session.launch_of(record).sockets_dir
    teardown.remove_sockets(folder)
