"""Removes files that no complete checkpoint of an ended run needs."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from threading import Timer

from heronpy.ckpt.catalogue import Found, in_folder, missing_files, roots_of
from heronpy.ckpt.replication import Replicator
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import settings_for
from heronpy.proto import plan_pb2
from heronpy.proto.checkpoint_pb2 import SAVEPOINT
from heronpy.storage.locations import open_store
from heronpy.storage.objects.url import Place, Url
from heronpy.storage.stores import SPOOL, open_replica

#: Greater than any checkpoint id.
_EVERY = 1 << 63
#: Time limit for copying an ended run's missing checkpoints to its replica.
REPLICA_S = 60.0


def clear_leftovers(folder: Place) -> None:
    """Remove all files from an ended run's folder, except those that a complete checkpoint names."""
    store = open_store(folder)
    if not store.exists():
        return
    rest = in_folder(folder)
    known = [found.metadata for found in rest if found.metadata is not None]
    if len(known) == len(rest):
        # No process writes here any more, so work in progress is not kept.
        store.sweep(known, before=_EVERY)
    if not rest and isinstance(folder, Path):
        for part in (folder / "taskowned", folder):
            with suppress(OSError):
                part.rmdir()


def clear_checkpoints(session: Session, record: plan_pb2.ExecutionState) -> str:
    """Remove files of unfinished checkpoints. Returns the location of the newest complete checkpoint.

    Raises HeronError if an object store cannot be used.
    """
    whole = []
    if record.working_dir and not session.elsewhere(record):
        shutil.rmtree(Path(record.working_dir) / SPOOL, ignore_errors=True)
    roots: list[Place] = []
    with suppress(HeronError):  # without a launch file, nothing was written
        roots = roots_of([settings_for(session.settings_of(record), CheckpointSettings)])
    for root in roots:
        if isinstance(root, Url):
            whole += _swept(root / record.topology_id)
            continue
        with suppress(HeronError, OSError):  # without a store, nothing was written
            whole += _swept(root / record.topology_id)
    newest = max(whole, key=lambda found: found.checkpoint, default=None)
    return newest.location if newest is not None else ""


def complete_replica(session: Session, record: plan_pb2.ExecutionState) -> str:
    """Copy missing files of an ended run's newest checkpoint and savepoints to its replica.

    Returns a sentence on the checkpoints that the replica still lacks; "" if it lacks none, or if there is no replica.
    """
    try:
        settings = settings_for(session.settings_of(record), CheckpointSettings)
    except HeronError:
        return ""  # without a launch file, nothing was written
    if not settings.replica:
        return ""
    try:
        target = open_replica(record.topology_id, settings)
        folders = [root / record.topology_id for root in roots_of([settings])]
        there = {*target.checkpoints()}
        found = [one for folder in folders if open_store(folder).exists() for one in in_folder(folder)]
    except (HeronError, OSError) as error:
        return f"cannot determine which checkpoints are missing from the replica {settings.replica}: {error}"
    sound = [(one, one.metadata) for one in found if one.metadata is not None and not one.abandoned]
    newest = max((one.checkpoint for one, _ in sound), default=0)
    wanted = [(one, content) for one, content in sound if one.checkpoint == newest or content.kind == SAVEPOINT]
    missing = [(one, content) for one, content in wanted if one.checkpoint not in there]
    if not missing:
        elsewhere = not found and session.elsewhere(record)
        return (
            f"this host cannot determine which checkpoints are missing from the replica {settings.replica}"
            if elsewhere
            else ""
        )
    replicator = Replicator(target, settings.replica_threads)
    late = Timer(REPLICA_S, replicator.give_up)
    late.start()
    failed: list[str] = []
    try:
        for one, content in sorted(missing, key=lambda pair: -pair[0].checkpoint):
            try:
                replicator.copy(content, open_store(one.folder), there)
            except (HeronError, OSError) as error:
                failed.append(f"{one.name} ({error})")
    finally:
        late.cancel()
        replicator.close()
    if not failed:
        return ""
    has = f"its newest checkpoint is {max(there)}" if there else "it contains no checkpoint"
    return f"the replica {settings.replica} lacks {'; '.join(failed)}; {has}"


def _swept(folder: Place) -> list[Found]:
    """The intact checkpoints of an ended run, after removing all other files."""
    clear_leftovers(folder)
    return [found for found in in_folder(folder) if not missing_files(found)] if open_store(folder).exists() else []
