"""`heron stop`: end a topology gracefully, after a drain or a savepoint, and report the outcome."""

from __future__ import annotations

import time

from heronpy.cli.output import print_json, say, warn, warning
from heronpy.cli.render.progress import Progress
from heronpy.clusters.killing import remove
from heronpy.clusters.session import Session
from heronpy.clusters.stopping import Stop
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import HeronError
from heronpy.common.units import counted
from heronpy.proto import checkpoint_pb2


def stop(
    target: Target, topology: str, savepoint: bool, timeout_s: float, force: bool, as_json: bool, common: Common
) -> None:
    """Drain a topology, or take a savepoint of it; then stop and remove the topology."""
    progress = Progress()
    stop = Stop(Session(target, common), topology, time.monotonic() + timeout_s, timeout_s, progress.show)
    stop.session.refuse_job(topology, f"stop {target} {topology}")
    record: checkpoint_pb2.CheckpointRecord | None = None
    try:
        stop.check(savepoint)
        with stop.spouts_at_rest():
            if savepoint:
                record = stop.take_savepoint()
            else:
                stop.drain()
    except HeronError as error:
        if not force or stop.topology_id == "":
            raise
        progress.clear()
        warning(f"{error}; killing the topology because of --force")
    finally:
        progress.clear()
    execution, outcome, newest = remove(stop.session, topology, topology_id=stop.topology_id, waits=warn)
    if outcome.replica_lacks:
        warning(outcome.replica_lacks)
    if as_json:
        print_json(
            {
                "topology": topology,
                "stopped": True,
                "how": "savepoint" if savepoint else "drain",
                "complete": stop.complete,
                "discarded_tuples": stop.discarded,
                "savepoint": record.location if record is not None else None,
                "log_dir": f"{execution.working_dir}/log-files",
            }
        )
        return
    if stop.discarded:
        warning(f"the drain of '{topology}' discarded {counted(stop.discarded, 'tuple')}")
    say(f"Successfully stopped topology '{topology}'" + ("" if stop.complete else ", but not gracefully"))
    say(f"  logs are kept in {execution.working_dir}/log-files")
    if record is not None:
        say(f"  savepoint {record.checkpoint} is {record.location}")
        say(f"  to resume:  heron submit {target} PROGRAM --restore {record.location}")
    elif newest:
        say(f"  checkpoints are kept; the newest is {newest}")
