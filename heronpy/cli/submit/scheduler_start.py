"""`heron scheduler start`: another scheduler for containers that run on without one."""

from __future__ import annotations

import time
from pathlib import Path

from heronpy.cli import exits
from heronpy.cli.change.lifecycle import check_engine
from heronpy.cli.output import say
from heronpy.cli.submit.submission import make_private, spawn_scheduler, wait_scheduler
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.folders import make_folders
from heronpy.common.units import counted
from heronpy.plan.launch import LaunchSpec, load_submitted, make_here

#: For the engine's first answer; the containers run on meanwhile.
FOUND_S = 10.0


def start(target: Target, topology: str, common: Common) -> None:
    """Start it from the launch file; a Failure when it runs, or the topology is another host's."""
    session = Session(target, common)
    start_one(session, topology)
    count = _adopted(session, topology)
    say(f"Started the scheduler of '{topology}'; it looks after {counted(count, 'container')} that run or wait")


def start_one(session: Session, topology: str) -> None:
    """The same, without waiting for what it finds."""
    check_engine(session, topology, "start")
    with session.operation(topology):
        record = session.find(topology)
        session.check_here(record, "its launch file and keys are")
        if session.scheduler_location(topology) is not None:
            raise exits.Failure(f"the scheduler of '{topology}' runs already", exits.EXISTS)
        submitted = load_submitted(record.launch_file)
        spec = LaunchSpec(submitted, make_here(submitted, record.launch_file))
        make_folders(spec.log_dir)
        make_private(Path(spec.sockets_dir))  # a reboot empties the folder for temporary files
        wait_scheduler(session, record, spec, spawn_scheduler(spec, record.launch_file))


def _adopted(session: Session, topology: str) -> int:
    """How many containers the scheduler has found on the engine, once its first list has come."""
    deadline = time.monotonic() + FOUND_S
    while True:
        found = session.containers(topology)
        known = found.containers if found is not None else ()
        count = len([one for one in known if one.engine_id])
        if (known and count == len(known)) or time.monotonic() > deadline:
            return count
        time.sleep(0.1)
