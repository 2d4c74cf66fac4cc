"""`heron checkpoints`: list, show, take, restore, copy, verify and delete the checkpoints of a topology.

Read-only verbs work on folders and need no running topology. Changes to the checkpoints of a running topology go
through its topology master, because only the topology master tracks the checkpoints in progress.

A file that another checkpoint needs is never deleted. The topology master deletes checkpoints of the current run; this
module deletes those of other runs. Shared files are deleted when no checkpoint of their folder refers to them. No
shared file is deleted while the metadata of a remaining checkpoint cannot be read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from heronpy.ckpt import catalogue
from heronpy.ckpt.catalogue import Found
from heronpy.ckpt.replication import Replicator
from heronpy.cli import exits
from heronpy.cli.output import clean, print_json, say, warning
from heronpy.cli.render import checkpoints as render_checkpoints
from heronpy.cli.render.checkpoints import Row
from heronpy.clusters.checkpoint_log import checkpoint_log, used_locations
from heronpy.clusters.leftovers import clear_leftovers
from heronpy.clusters.places import by_id, found_of
from heronpy.clusters.rewinding import rewind
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import HeronError
from heronpy.common.folders import check_root
from heronpy.common.nearest import suggestion
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import HasSettings, settings_for
from heronpy.common.units import counted, format_bytes
from heronpy.plan.component_config import reliability_mode
from heronpy.proto import checkpoint_pb2, control_pb2, plan_pb2
from heronpy.storage.checkpoint_files import StoreError
from heronpy.storage.locations import location_of, open_store
from heronpy.storage.objects.port import ObjectsError
from heronpy.storage.objects.url import Place, place_of
from heronpy.storage.stores import replica_of
from heronpy.views.saved import kind_name

#: Extra time for the answer of the topology master, beyond the timeout of the checkpoint itself.
ANSWER_S = 10.0
DELETE_S = 60.0
ASK_S = 5.0
EFFECTIVELY_ONCE = "EFFECTIVELY_ONCE"


class View:
    """The checkpoints of one topology: read from disk and, when the topology runs, from its topology master.

    The topology master reports which checkpoints are in progress, in use or damaged. The folders contain everything
    else, including earlier runs of the topology. Both sources identify a checkpoint by its location.
    """

    def __init__(self, session: Session, topology: str, store: Place | None = None) -> None:
        self.session = session
        self.topology = topology
        #: A store or replica to read instead of the topology's own stores.
        self.store = store
        self.record: plan_pb2.ExecutionState | None = session.record(topology)
        if self.record is not None:
            self.record = session.find(topology)  # refuses a topology of another role

    @cached_property
    def mode(self) -> str:
        """The reliability mode of the current run; "" if the topology does not run."""
        return reliability_mode(self.session.topology(self.topology)) if self.record is not None else ""

    @cached_property
    def reply(self) -> control_pb2.CheckpointsReply | None:
        """The topology master's answer; None when the topology does not run or does not answer."""
        if self.mode != EFFECTIVELY_ONCE:
            return None
        with suppress(HeronError):
            return self.session.ask(self.topology, control_pb2.GetCheckpoints(), ASK_S)
        return None

    @cached_property
    def log(self) -> checkpoint_pb2.CheckpointLog:
        """The record in the state manager, which exists even while no topology master answers."""
        return checkpoint_log(self.session, self.topology)

    @cached_property
    def found(self) -> list[Found]:
        """The checkpoints on disk, newest first."""
        if self.store is not None:
            return catalogue.of_topology([self.store], self.topology)
        return found_of(self.session, self.topology)

    def rows(self) -> list[Row]:
        """Return all complete checkpoints, newest first; records without files come last, marked as damaged."""
        records = {record.location: record for record in self.records()}
        used, rows = used_locations(self.session), []
        try:
            listed = self.found
        except (ObjectsError, StoreError) as error:
            if not records:
                raise
            warning(f"{clean(str(error))}; showing the topology master's records")
            return [_row_of_record(record) for record in reversed(records.values())]
        for found in listed:
            row = row_of(found)
            record = records.pop(row.location, None)
            if row.damage and catalogue.is_gone(found):
                continue  # the checkpoint was retired while it was read
            row.current = self.record is not None and found.folder.name == self.record.topology_id
            row.in_use = row.location in used
            row.abandoned = record.abandoned if record is not None else found.abandoned
            if record is not None and record.damaged and not row.damage:
                row.damage = [record.damage]
            rows.append(row)
        for location, record in records.items():
            if self._passed(record):
                continue
            row = _row_of_record(record)
            row.in_use = location in used
            if not row.damage:
                row.damage = [f"{location} cannot be read on this host"]
            rows.append(row)
        return rows

    def _passed(self, record: checkpoint_pb2.CheckpointRecord) -> bool:
        """Whether a checkpoint lacks files only because it was completed or retired after the files were listed."""
        if catalogue.at_place(place_of(record.location)):
            return True
        with suppress(HeronError):
            now = self.session.ask(self.topology, control_pb2.GetCheckpoints(), ASK_S)
            return record.checkpoint not in {one.checkpoint for one in now.complete}
        return False

    def records(self) -> list[checkpoint_pb2.CheckpointRecord]:
        if self.store is not None:
            return []  # the topology's records name other places
        return list(self.reply.complete if self.reply is not None else self.log.complete)

    def require(self) -> None:
        """Raise a Failure if neither the topology nor any checkpoint of the topology exists."""
        if self.record is None and not self.found:
            cluster = self.session.target.cluster
            hint = suggestion(self.topology, self.session.names())
            raise exits.Failure(
                f"cluster {cluster} has no topology '{self.topology}' and no checkpoints of it{hint}", exits.NOT_FOUND
            )


def row_of(found: Found) -> Row:
    row = Row(found.checkpoint, found.location, found.kind, damage=list(found.damage), topology_id=found.folder.name)
    if found.metadata is not None:
        row.taken_at, row.duration_s = found.metadata.taken_at, found.metadata.duration_s
        row.total_bytes, row.uploaded_bytes = found.total_bytes, found.uploaded_bytes
        row.unaligned, row.tasks = found.metadata.unaligned, len(found.metadata.tasks)
        row.topology_id = found.metadata.topology_id
        row.damage = catalogue.missing_files(found)
    return row


def _row_of_record(record: checkpoint_pb2.CheckpointRecord) -> Row:
    return Row(
        record.checkpoint,
        record.location,
        kind_name(record.kind),
        record.taken_at,
        record.total_bytes,
        record.uploaded_bytes,
        record.duration_s,
        topology_id=place_of(record.location).parent.name,
        current=True,
        damage=[record.damage] if record.damaged else [],
    )


def older(view: View, age_s: float) -> list[Found]:
    """Return the checkpoints at least `age_s` seconds old; for 0, all checkpoints, even if their age is unknown."""
    limit = time.time() - age_s
    return [
        found for found in view.found if age_s == 0 or (found.metadata is not None and found.metadata.taken_at <= limit)
    ]


def remove(view: View, chosen: Iterable[Found], refuse: bool) -> tuple[list[Found], list[tuple[Found, str]]]:
    """Delete checkpoints; return the deleted checkpoints, and the kept checkpoints with the reasons.

    If `refuse` is true, a checkpoint in use raises a Failure; otherwise it is kept.
    """
    deleted: list[Found] = []
    kept: list[tuple[Found, str]] = []
    used = used_locations(view.session)
    current: list[Found] = []
    others: dict[Place, list[Found]] = {}
    for found in chosen:
        if found.location in used:
            why = "a running topology would be restored from this checkpoint"
            if refuse:
                raise exits.Failure(f"{found.name} is not deleted, because {why}; kill the topology first")
            kept.append((found, why))
        elif view.record is not None and found.folder.name == view.record.topology_id:
            current.append(found)
        else:
            others.setdefault(found.folder, []).append(found)
    if current:
        request = control_pb2.DeleteCheckpoints(checkpoints=sorted(found.checkpoint for found in current))
        view.session.ask(view.topology, request, DELETE_S)
        deleted += current
    for folder, doomed in others.items():
        store = open_store(folder)
        for number in sorted(found.checkpoint for found in doomed):
            store.delete(number)
        clear_leftovers(folder)
        deleted += doomed
    return deleted, kept


def show_list(target: Target, topology: str, store: Place | None, as_json: bool, common: Common) -> None:
    """Print the checkpoints of a topology, as a table or JSON."""
    view = View(Session(target, common), topology, store)
    view.require()
    rows = view.rows()
    if as_json:
        print_json(render_checkpoints.list_json(topology, view.record is not None, rows, view.reply))
    else:
        render_checkpoints.show_list(topology, view.mode, rows, view.reply)


def show(target: Target, topology: str, checkpoint: str, files: bool, as_json: bool, common: Common) -> None:
    """Show the content of one checkpoint."""
    [found] = _select(View(Session(target, common), topology), checkpoint)
    if found.metadata is None:
        raise exits.Failure(f"{found.name} cannot be read: {found.damage[0]}")
    if as_json:
        print_json(render_checkpoints.show_json(found, found.metadata))
    else:
        render_checkpoints.show_one(found, found.metadata, files)


def take(
    target: Target, topology: str, savepoint: bool, timeout_s: float | None, as_json: bool, common: Common
) -> None:
    """Take a checkpoint or savepoint and wait until it is complete."""
    session = Session(target, common)
    settings = settings_for(_stateful(session, topology), CheckpointSettings)
    # The new checkpoint may have to wait for the checkpoint in progress.
    limit_s = settings.timeout_s + (settings.savepoint_timeout_s if savepoint else settings.timeout_s)
    request = control_pb2.TakeCheckpoint(savepoint=savepoint)
    record = session.ask(topology, request, timeout_s or limit_s + ANSWER_S).record
    if as_json:
        print_json({"topology": topology, **render_checkpoints.record_json(record)})
        return
    say(f"{'Savepoint' if savepoint else 'Checkpoint'} {record.checkpoint} of '{topology}' is complete")
    say(f"  {render_checkpoints.figures(record)}")
    say(f"  {record.location}")


def _stateful(session: Session, topology: str) -> HasSettings:
    """Return the settings of a running topology; raises a Failure if the topology takes no checkpoints."""
    launch = session.settings_of(session.find_begun(topology))
    mode = reliability_mode(session.topology(topology))
    if mode != "EFFECTIVELY_ONCE":
        raise exits.Failure(
            f"topology '{topology}' is {mode} and has no checkpoints;"
            " set topology.reliability.mode to EFFECTIVELY_ONCE and submit it again",
            exits.USAGE,
        )
    return launch


def restore(target: Target, topology: str, checkpoint: int | None, timeout_s: float, common: Common) -> None:
    """Rewind a running topology to a checkpoint."""
    session = Session(target, common)
    _stateful(session, topology)
    say(rewind(session, topology, checkpoint or 0, timeout_s))


def delete(
    target: Target, topology: str, checkpoint: str | None, older_than: float | None, as_json: bool, common: Common
) -> None:
    """Delete one checkpoint, all checkpoints above an age, or all checkpoints; checkpoints in use are kept."""
    session = Session(target, common)
    # A concurrent submit --restore of the same name must not choose a checkpoint that is being deleted.
    with session.operation(topology):
        view = View(session, topology)
        if checkpoint is not None:
            chosen = _select(view, checkpoint)
        else:
            view.require()
            chosen = older(view, older_than or 0.0)
        deleted, kept = remove(view, chosen, refuse=checkpoint is not None)
    for found, why in kept:
        warning(f"kept {clean(found.name)}, because {why}")
    if as_json:
        places = {"deleted": [one.location for one in deleted], "kept": [one.location for one, _ in kept]}
        print_json({"topology": topology, **places})
        return
    for found in deleted:
        say(f"  - {clean(found.name)}")
    say(f"Deleted {counted(len(deleted), 'checkpoint')} of '{topology}'")


def copy(
    target: Target, topology: str, checkpoint: str, store: Place, threads: int, as_json: bool, common: Common
) -> None:
    """Copy one checkpoint to another store; raises a Failure when it is damaged, or is already in that store."""
    session = Session(target, common)
    view = View(session, topology)
    [found] = _select(view, checkpoint)
    if found.metadata is None:
        raise exits.Failure(f"{found.name} cannot be read: {found.damage[0]}")
    folder = store / found.folder.name
    if str(folder) == str(found.folder):
        raise exits.Failure(f"{found.name} is already in {store}; name another store", exits.USAGE)
    if view.record is not None:
        settings = settings_for(session.settings_of(view.record), CheckpointSettings)
        if replica_of(settings) == store and found.folder.name == view.record.topology_id:
            raise exits.Failure(
                f"{store} is the replica of '{topology}', which is updated automatically; name another store",
                exits.USAGE,
            )
    if isinstance(store, Path):
        check_root(store, "The store")
    copied = open_store(folder)
    replicator = Replicator(copied, threads)
    try:
        sets = replicator.copy(found.metadata, open_store(found.folder), copied.checkpoints())
        copied.mark_abandoned(found.checkpoint, found.abandoned)
    finally:
        replicator.close()
    size, location = sum(ref.bytes for ref in sets.copy), location_of(folder, found.checkpoint)
    if as_json:
        figures = {"files": len(sets.copy), "bytes": size, "files_there": len(sets.skip)}
        print_json({"topology": topology, "checkpoint": found.checkpoint, "location": location, **figures})
        return
    say(f"Copied {clean(found.name)}: {counted(len(sets.copy), 'file')}, {format_bytes(size)}")
    say(f"  {location}")


def verify(target: Target, source: str | Place, checkpoint: str | None, as_json: bool, common: Common) -> None:
    """Compare every file of the checkpoints with its checksum; raises a Failure when one is damaged."""
    listed = _from_source(Session(target, common), source, checkpoint)
    read = [(found, catalogue.verify(found)) for found in listed]
    # A running topology may retire checkpoints during the check.
    checked = [(found, wrong) for found, wrong in read if not wrong or not catalogue.is_gone(found)]
    if as_json:
        print_json([render_checkpoints.verified_json(found, wrong) for found, wrong in checked])
    else:
        render_checkpoints.show_verified(checked)
    bad = [found for found, wrong in checked if wrong]
    if bad:
        names = ", ".join(found.location for found in bad)
        raise exits.Failure(f"{len(bad)} of {counted(len(checked), 'checkpoint')} cannot be restored: {names}")


def _select(view: View, wanted: str) -> list[Found]:
    """Return the checkpoint with this id, or at this path or URL, as the only item of a list."""
    if wanted.isascii() and wanted.isdigit():
        view.require()
        return [by_id(view.found, int(wanted), view.topology)]
    listed = catalogue.at_place(place_of(wanted))
    if len(listed) != 1:
        raise exits.Failure(
            f"'{wanted}' does not name a checkpoint; give an id, or the path or URL of a folder chk-<id>",
            exits.NOT_FOUND,
        )
    return listed


def _from_source(session: Session, source: str | Place, checkpoint: str | None) -> list[Found]:
    """Return the checkpoints of a topology or at a path; with an id, only the checkpoint with this id."""
    if not isinstance(source, str):
        listed = catalogue.at_place(source) or catalogue.in_store(source)
        if not listed:
            raise exits.Failure(f"'{source}' contains no checkpoint", exits.NOT_FOUND)
    else:
        view = View(session, source)
        view.require()
        listed = view.found
    if checkpoint is None:
        return listed
    if not (checkpoint.isascii() and checkpoint.isdigit()):
        raise exits.Failure(f"'{checkpoint}' is not a checkpoint id; an id is a number", exits.USAGE)
    return [by_id(listed, int(checkpoint), str(source))]
