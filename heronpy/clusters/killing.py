"""Stops a topology and removes it; its logs and checkpoints stay."""

from __future__ import annotations

from heronpy.clusters import takedown
from heronpy.clusters.checkpoint_log import newest_location
from heronpy.clusters.errors import ClusterError, PartlyDoneError
from heronpy.clusters.session import Session
from heronpy.clusters.takedown import Outcome
from heronpy.proto import plan_pb2


def remove(
    session: Session, topology: str, timeout_s: float, topology_id: str = ""
) -> tuple[plan_pb2.ExecutionState, Outcome, str]:
    """Stop and remove a topology; its record, what happened, and its newest checkpoint. PartlyDoneError if
    something is left.

    With an id, another topology of the same name is left alone.
    """
    session.find(topology)
    with session.operation(topology, timeout_s + 30.0):
        # Looked up again: another kill may have held the lock until now.
        record = session.find(topology)
        if topology_id not in ("", record.topology_id):
            raise ClusterError(f"topology '{topology}' was killed and submitted again meanwhile; nothing was stopped")
        newest = newest_location(session, topology)
        outcome = takedown.take_down(session, record, timeout_s)
        newest = outcome.checkpoint or newest
    if outcome.remains:
        raise PartlyDoneError(
            f"topology '{topology}' is not removed, because {', '.join(outcome.remains)} cannot be stopped;"
            " stop it and run the command again",
        )
    return record, outcome, newest
