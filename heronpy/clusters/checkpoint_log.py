"""Checkpoint records of topologies in the state manager."""

from __future__ import annotations

from collections.abc import Iterable

from heronpy.clusters.session import Session
from heronpy.proto import checkpoint_pb2
from heronpy.statemgr import paths


def checkpoint_log(session: Session, topology: str) -> checkpoint_pb2.CheckpointLog:
    """The checkpoints of a topology, as recorded in the state manager; may be empty."""
    found = session.state.get(paths.checkpoints(topology))
    return checkpoint_pb2.CheckpointLog.FromString(found[0]) if found else checkpoint_pb2.CheckpointLog()


def newest_location(session: Session, topology: str) -> str:
    """Location of the newest intact checkpoint of a topology; "" if there is none."""
    log = checkpoint_log(session, topology)
    newest = newest_whole(log.complete)
    return newest.location if newest is not None else log.restore_from


def used_locations(session: Session) -> set[str]:
    """Locations of the checkpoints from which the cluster's running topologies may be started or restored.

    A topology that was restored from another topology's checkpoint needs the files of this checkpoint until its own run
    has completed a checkpoint.
    """
    folder = paths.execution_state("x").rsplit("/", 1)[0]
    used: set[str] = set()
    for name in session.state.children(folder):
        log = checkpoint_log(session, name)
        newest = newest_whole(log.complete)
        if newest is not None:
            used.add(newest.location)
        plan = session.physical_plan(name)
        if plan is not None:
            # A region whose tasks have started needs only the checkpoint that a restore would read.
            used.update(region.location for region in plan.regions if newest is None or not region.started)
        if newest is None:
            used.add(log.restore_from)
    return used - {""}


def newest_whole(records: Iterable[checkpoint_pb2.CheckpointRecord]) -> checkpoint_pb2.CheckpointRecord | None:
    """The newest intact checkpoint, from which a restore starts; None if there is none."""
    whole = [record for record in records if not (record.damaged or record.abandoned)]
    return max(whole, key=lambda record: record.checkpoint, default=None)
