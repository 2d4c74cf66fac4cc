"""`heron scheduler`: restarts the lost scheduler of a topology, or keeps all schedulers of a cluster running.

`keep` is the main process of a pod, or of a service, from which topologies are submitted.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

from heronpy.cli import exits
from heronpy.cli.change.lifecycle import check_engine
from heronpy.cli.output import say, warn
from heronpy.clusters.session import Session
from heronpy.clusters.takedown import leftovers
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import HeronError
from heronpy.common.folders import make_folders
from heronpy.common.units import counted
from heronpy.launching.spawning import spawn_scheduler, wait_scheduler
from heronpy.launching.submission import make_private
from heronpy.plan.launch import LaunchSpec, load_submitted, make_here
from heronpy.proto import plan_pb2

#: Timeout for the engine's first answer; containers keep running meanwhile.
FOUND_S = 10.0
LOOK_S = 2.0
#: Pause before the next attempt when a scheduler cannot start; the pause doubles each time.
AGAIN_S = 5.0
AGAIN_MAX_S = 300.0
END_S = 20.0


def start(target: Target, topology: str, common: Common) -> None:
    """Start the scheduler from the launch file; raises a Failure if it is running or belongs to another host."""
    session = Session(target, common)
    start_one(session, topology)
    count = _adopted(session, topology)
    say(f"Started the scheduler of '{topology}'; it manages {counted(count, 'container')}, running or waiting")


def start_one(session: Session, topology: str) -> None:
    """Start the scheduler, without waiting for the engine's first list of containers."""
    check_engine(session, topology, "start")
    with session.operation(topology):
        record = session.find(topology, pools=True)
        session.check_here(record, "its launch file and keys are")
        if session.scheduler_location(topology) is not None:
            raise exits.Failure(f"the scheduler of '{topology}' is already running", exits.EXISTS)
        submitted = load_submitted(record.launch_file)
        spec = LaunchSpec(submitted, make_here(submitted, record.launch_file))
        make_folders(spec.log_dir)
        make_private(Path(spec.sockets_dir))  # a reboot empties the folder for temporary files
        wait_scheduler(session, record, spec, spawn_scheduler(spec, record.launch_file))


def _adopted(session: Session, topology: str) -> int:
    """Wait for the engine's first list of containers, and return their number."""
    deadline = time.monotonic() + FOUND_S
    while True:
        found = session.containers(topology)
        known = found.containers if found is not None else ()
        count = len([one for one in known if one.engine_id])
        if (known and count == len(known)) or time.monotonic() > deadline:
            return count
        time.sleep(0.1)


def keep(target: Target, common: Common) -> None:
    """Start schedulers for topologies that lack one, until SIGTERM or SIGINT; then stop all schedulers."""
    ended: list[int] = []

    def end(signum: int, _: FrameType | None) -> None:
        ended.append(signum)

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, end)
    Session(target, common).check_cluster()
    say(f"Keeping the schedulers of {target} running")
    again: dict[str, tuple[float, float]] = {}
    while not ended:
        with suppress(HeronError):  # the state manager is unreachable; the schedulers handle that
            again = _look(target, common, again)
        _reap()
        time.sleep(0.1 if ended else LOOK_S)
    _end_all(Session(target, common))


def _look(target: Target, common: Common, again: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Start missing schedulers. `again` maps a topology id to the time of the next attempt and the pause after it."""
    session = Session(target, common)
    try:
        kept: dict[str, tuple[float, float]] = {}
        for record in _own(session):
            if session.scheduler_location(record.topology) is not None:
                continue
            at, pause_s = again.get(record.topology_id, (0.0, AGAIN_S))
            if time.monotonic() >= at:
                at, pause_s = time.monotonic() + pause_s, min(2 * pause_s, AGAIN_MAX_S)
                _start(session, record.topology)
            kept[record.topology_id] = at, pause_s
        return kept
    finally:
        session.state.close()


def _own(session: Session) -> list[plan_pb2.ExecutionState]:
    """Return the topologies on an engine whose launch files are on this host."""
    return [
        record
        for record in session.topologies(pools=True)
        if not session.elsewhere(record) and os.path.exists(record.launch_file) and session.engine_of(record.topology)
    ]


def _start(session: Session, topology: str) -> None:
    try:
        start_one(session, topology)
        say(f"Started the scheduler of '{topology}'")
    except exits.Failure as failure:
        if failure.code != exits.EXISTS:
            warn(f"the scheduler of '{topology}' cannot start: {failure}")
    except HeronError as error:  # another command works on the topology, or has removed it
        warn(f"the scheduler of '{topology}' cannot start: {error}")


def _reap() -> None:
    """Reap ended schedulers and, as process 1, orphans."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def _end_all(session: Session) -> None:
    """Stop the schedulers and wait until they have ended, so that their successors need not wait for permits."""
    with suppress(HeronError):
        processes = [one for record in _own(session) for one in leftovers(record.launch_file)]
        for process in processes:
            with suppress(Exception):  # it has ended
                process.terminate()
        deadline = time.monotonic() + END_S
        while any(process.is_running() for process in processes) and time.monotonic() < deadline:
            _reap()
            time.sleep(0.05)
