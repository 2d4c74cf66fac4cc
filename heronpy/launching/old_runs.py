"""Removes old batch runs with their savepoints. A savepoint from which a running topology would be restored is kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from heronpy.batch.finalise import savepoint_folder
from heronpy.batch.record import RunRecord
from heronpy.batch.run import Run, Runs, run_folders
from heronpy.clusters.checkpoint_log import used_locations
from heronpy.clusters.leftovers import clear_leftovers
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.connectors.durable_files import run_token
from heronpy.ingest.ledger.reaching import forget_pipelines
from heronpy.scheduler.teardown import KeptFile, outdated
from heronpy.storage.locations import open_store


def forget(session: Session, folder: Path, topology: str, keep: int, like: str) -> None:
    """Remove the runs below a folder that are too old, and all but the newest runs of one topology.

    The caller holds the lock of this topology. The run `like` is kept, because another run takes its input from `like`.
    If a run cannot be removed now, the next call tries again.
    """
    with suppress(HeronError, OSError):
        _forget(session, folder, topology, keep, like)


def _forget(session: Session, folder: Path, topology: str, keep: int, like: str) -> None:
    found = list(run_folders(folder))
    old = too_old(found, topology, keep, time.time())
    if not old:
        return
    used, lives = used_locations(session), {one.topology_id for one in session.topologies()}
    inputs = {like, *(record.like for record, _ in found if not record.has_ended)}
    for record, path in old:
        if record.savepoint in used or record.run in inputs or not lives.isdisjoint(record.topology_ids):
            continue
        # The caller holds the lock of its own topology.
        lock = nullcontext() if record.topology == topology else Runs(folder, record.topology).locked()
        with suppress(HeronError, OSError), lock:
            if Run(path).record == record:  # otherwise another command continues this run
                remove(record, path)


def too_old(
    found: Sequence[tuple[RunRecord, Path]], topology: str, keep: int, now: float
) -> list[tuple[RunRecord, Path]]:
    """Return the runs beyond the retention time of the history, and all but the newest runs of one topology.

    In `found`, the newest run of each topology comes first.
    """
    aged = {
        one.path
        for one in outdated([KeptFile(record.ended_at or record.submitted_at, 0, path) for record, path in found], now)
    }
    more = {path for _, path in [one for one in found if one[0].topology == topology][keep:]}
    return [one for one in found if one[1] in aged | more]


def remove(record: RunRecord, path: Path) -> None:
    """Remove a run with its savepoint and with its units in a ledger that several runs share."""
    place = savepoint_folder(record)
    if record.saves and (store := open_store(place)).exists():
        for number in store.checkpoints():
            store.delete(number)
        clear_leftovers(place)
    if record.ledger:
        forget_pipelines(record.ledger, run_token(record.id))
    Runs(path.parents[1], record.topology).remove(Run(path))
