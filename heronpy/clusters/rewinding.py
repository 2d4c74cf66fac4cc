"""Asks for the rewind of a running topology and waits for its end."""

from __future__ import annotations

import time

from heronpy.ckpt import catalogue
from heronpy.clusters.errors import ClusterError, NotThereError
from heronpy.clusters.session import Session
from heronpy.common.errors import DeadlineError, HeronError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import settings_for
from heronpy.common.states import has_failed
from heronpy.proto import control_pb2

ASK_S = 5.0
LOOK_S = 0.1


def _check(session: Session, topology: str, known: control_pb2.CheckpointsReply, checkpoint: int) -> None:
    """A rewind abandons newer checkpoints, so check first that this one is intact and fits."""
    packing = session.packing_plan(topology)
    groups = settings_for(session.launch_of(session.find(topology)), CheckpointSettings).key_groups
    for record in known.complete:
        wrong = catalogue.misfits(record.location, packing, groups) if record.checkpoint == checkpoint else []
        if wrong:
            raise ClusterError("; ".join(wrong))


def rewind(session: Session, topology: str, checkpoint: int, timeout_s: float) -> str:
    """Restore every region; returns what was done, in one line. A ClusterError when it fails or is late."""
    deadline = time.monotonic() + timeout_s
    before = session.ask(topology, control_pb2.GetCheckpoints(), ASK_S)
    _check(session, topology, before, checkpoint)
    attempts = {tuple(region.components): region.attempt for region in before.regions}
    session.ask(topology, control_pb2.RestoreCheckpoint(checkpoint=checkpoint), min(timeout_s, 30.0))
    while True:
        reply = _checkpoints(session, topology)
        if (
            reply is not None
            and reply.regions
            and all(
                region.started and region.attempt > attempts.get(tuple(region.components), 0)
                for region in reply.regions
            )
        ):
            numbers = sorted({region.checkpoint for region in reply.regions})
            told = ", ".join(f"checkpoint {number}" if number else "empty state" for number in numbers)
            return f"Topology '{topology}' has resumed from {told}"
        status = session.poll(topology)
        if status is not None and has_failed(status):
            raise ClusterError(f"topology '{topology}' failed while it was restored: {status.cause or 'see its logs'}")
        if time.monotonic() > deadline:
            raise DeadlineError(
                f"topology '{topology}' was not restored after {timeout_s:g} s;"
                f" see 'heron status {session.target} {topology}'"
            )
        time.sleep(LOOK_S)


def _checkpoints(session: Session, topology: str) -> control_pb2.CheckpointsReply | None:
    """None while the topology master is being restarted; NotThereError when the topology is gone."""
    try:
        reply = session.ask(topology, control_pb2.GetCheckpoints(), ASK_S)
        return reply
    except NotThereError:
        raise
    except HeronError:
        return None
