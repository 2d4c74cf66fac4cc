"""Stops a topology and removes it; its logs and checkpoints are kept."""

from __future__ import annotations

from collections.abc import Callable

from heronpy.clusters import takedown
from heronpy.clusters.checkpoint_log import newest_location
from heronpy.clusters.errors import ClusterError, PartlyDoneError
from heronpy.clusters.records import Doing
from heronpy.clusters.session import Session
from heronpy.clusters.takedown_outcome import Outcome, what_remains
from heronpy.proto import plan_pb2


def remove(
    session: Session,
    topology: str,
    timeout_s: float | None = None,
    topology_id: str = "",
    force: bool = False,
    waits: Callable[[str], None] = lambda text: None,
) -> tuple[plan_pb2.ExecutionState, Outcome, str]:
    """Stop and remove a topology; return its record, the outcome, and its newest checkpoint. Raises PartlyDoneError if
    anything is left.

    If an id is given, a topology with this name but another id is not touched. See `takedown.take_down` for the other
    parameters.
    """
    session.find(topology)
    timeout_s = timeout_s or takedown.limit_s(session, topology)
    with session.operation(topology, timeout_s + 30.0, Doing.KILLING, waits):
        # Looked up again: another kill may have held the lock until now.
        record = session.find(topology)
        if topology_id not in ("", record.topology_id):
            raise ClusterError(f"topology '{topology}' was replaced by a new submission; nothing was stopped")
        newest = newest_location(session, topology)
        outcome = takedown.take_down(session, record, timeout_s, force, waits)
        newest = outcome.checkpoint or newest
    if outcome.remains:
        raise PartlyDoneError(f"topology '{topology}' is not removed, because {what_remains(outcome)}")
    return record, outcome, newest
