"""The checkpoints of one topology as a command sees them: from disk, and from its topology master when it runs.

The topology master knows what is in progress, in use or found damaged; the folders hold everything else,
including earlier runs of the topology. Both name a checkpoint by its location.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property

from heronpy.ckpt import catalogue
from heronpy.ckpt.catalogue import Found
from heronpy.cli import exits
from heronpy.cli.output import clean, warning
from heronpy.cli.render.checkpoints import Row, kind_name
from heronpy.clusters.checkpoint_log import checkpoint_log, used_locations
from heronpy.clusters.places import found_of
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.nearest import suggestion
from heronpy.plan.component_config import reliability_mode
from heronpy.proto import checkpoint_pb2, control_pb2, plan_pb2
from heronpy.storage.checkpoint_files import StoreError
from heronpy.storage.objects.port import ObjectsError
from heronpy.storage.objects.url import Place, place_of

ASK_S = 5.0
EFFECTIVELY_ONCE = "EFFECTIVELY_ONCE"


class View:
    """Everything known about the checkpoints of a topology, running or not."""

    def __init__(self, session: Session, topology: str, store: Place | None = None) -> None:
        self.session = session
        self.topology = topology
        #: A store or replica to look at instead of those of the topology.
        self.store = store
        self.record: plan_pb2.ExecutionState | None = session.record(topology)
        if self.record is not None:
            self.record = session.find(topology)  # refuses a topology of another role

    @cached_property
    def mode(self) -> str:
        """The reliability mode of the current run; "" when there is none."""
        return reliability_mode(self.session.topology(self.topology)) if self.record is not None else ""

    @cached_property
    def reply(self) -> control_pb2.CheckpointsReply | None:
        """What the topology master says; None when the topology does not run or does not answer."""
        if self.mode != EFFECTIVELY_ONCE:
            return None
        with suppress(HeronError, exits.Failure):
            reply = self.session.ask(self.topology, control_pb2.GetCheckpoints(), ASK_S)
            return reply
        return None

    @cached_property
    def log(self) -> checkpoint_pb2.CheckpointLog:
        """The record in the state manager; it is there also while no topology master answers."""
        return checkpoint_log(self.session, self.topology)

    @cached_property
    def found(self) -> list[Found]:
        """What is on disk, newest first."""
        if self.store is not None:
            return catalogue.of_topology([self.store], self.topology)
        return found_of(self.session, self.topology)

    def rows(self) -> list[Row]:
        """Every complete checkpoint, newest first; records without files come last and are damaged."""
        records = {record.location: record for record in self.records()}
        used, rows = used_locations(self.session), []
        try:
            listed = self.found
        except (ObjectsError, StoreError) as error:
            if not records:
                raise
            warning(f"{clean(str(error))}; this is what the topology master knows")
            return [_row_of_record(record) for record in reversed(records.values())]
        for found in listed:
            row = row_of(found)
            record = records.pop(row.location, None)
            if row.damage and catalogue.is_gone(found):
                continue  # it was retired while it was read
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
                row.damage = [f"{location} cannot be read here"]
            rows.append(row)
        return rows

    def _passed(self, record: checkpoint_pb2.CheckpointRecord) -> bool:
        """Whether a checkpoint without files is not damaged: it completed, or was retired, since the listing."""
        if catalogue.at_place(place_of(record.location)):
            return True
        with suppress(HeronError, exits.Failure):
            now = self.session.ask(self.topology, control_pb2.GetCheckpoints(), ASK_S)
            return record.checkpoint not in {one.checkpoint for one in now.complete}
        return False

    def records(self) -> list[checkpoint_pb2.CheckpointRecord]:
        if self.store is not None:
            return []  # the topology's records name other places
        return list(self.reply.complete if self.reply is not None else self.log.complete)

    def require(self) -> None:
        """A Failure when there is neither such a topology nor a checkpoint of one."""
        if self.record is None and not self.found:
            cluster = self.session.target.cluster
            hint = suggestion(self.topology, self.session.names())
            raise exits.Failure(
                f"cluster {cluster} has no topology '{self.topology}' and no checkpoint of one{hint}", exits.NOT_FOUND
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
