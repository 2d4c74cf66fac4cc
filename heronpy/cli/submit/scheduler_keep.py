"""`heron scheduler keep`: the first process of a pod, or of a service, from which topologies are submitted."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from types import FrameType

from heronpy.cli import exits
from heronpy.cli.output import say, warn
from heronpy.cli.submit.scheduler_start import start_one
from heronpy.clusters.session import Session
from heronpy.clusters.takedown import leftovers
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import HeronError
from heronpy.proto import plan_pb2

LOOK_S = 2.0
#: A topology whose scheduler cannot start is tried again after this long, twice as long each time.
AGAIN_S = 5.0
AGAIN_MAX_S = 300.0
END_S = 20.0


def keep(target: Target, common: Common) -> None:
    """Look for topologies without a scheduler until SIGTERM or SIGINT; then end the schedulers."""
    ended: list[int] = []

    def end(signum: int, _: FrameType | None) -> None:
        ended.append(signum)

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, end)
    Session(target, common).check_cluster()
    say(f"Keeping the schedulers of {target} running")
    again: dict[str, tuple[float, float]] = {}
    while not ended:
        with suppress(HeronError):  # the state manager is away: the schedulers know that best
            again = _look(target, common, again)
        _reap()
        time.sleep(0.1 if ended else LOOK_S)
    _end_all(Session(target, common))


def _look(target: Target, common: Common, again: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Start what is gone; `again`: per topology id when it may be tried, and how long to wait after that."""
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
    """Topologies on an engine whose launch files are here."""
    return [
        record
        for record in session.topologies()
        if not session.elsewhere(record) and os.path.exists(record.launch_file) and session.engine_of(record.topology)
    ]


def _start(session: Session, topology: str) -> None:
    try:
        start_one(session, topology)
        say(f"Started the scheduler of '{topology}'")
    except exits.Failure as failure:
        if failure.code != exits.EXISTS:
            warn(f"the scheduler of '{topology}' cannot start: {failure}")
    except HeronError as error:  # another command is at work on it, or has removed it
        warn(f"the scheduler of '{topology}' cannot start: {error}")


def _reap() -> None:
    """Schedulers, and as process 1 whatever lost its parent."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def _end_all(session: Session) -> None:
    """Ask the schedulers to end, and wait until they have: then the next ones need not wait for their permits."""
    with suppress(HeronError):
        processes = [one for record in _own(session) for one in leftovers(record.launch_file)]
        for process in processes:
            with suppress(Exception):  # it has ended
                process.terminate()
        deadline = time.monotonic() + END_S
        while any(process.is_running() for process in processes) and time.monotonic() < deadline:
            _reap()
            time.sleep(0.05)
