"""The saved state of one task in its instance: restored, captured, and written to checkpoints.

`capture` is the part that blocks the task: it freezes the content of the checkpoint without copying it.
`Capture.persist` encodes and writes, in a thread or in a forked child, and returns the TaskSnapshot. The
parent records the snapshot with `persisted`, and the outcome of the checkpoint with `completed` or `aborted`.
Keyed state is written incrementally (chain.py), and a plain State as a whole.

Invariants: a snapshot names only files that this topology instance has written with the current parallelism; after a
restore from other files, everything is written in full. A capture superseded by a newer one never yields a snapshot.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, field

from heronpy.api.state.keyed_state import Cut, KeyedState, KeyedStates, KeyOwner, PartitionedState, PartitionOwner
from heronpy.api.state.state import HashMapState
from heronpy.ckpt.chain import Chain, Plan
from heronpy.ckpt.restoring import Loader
from heronpy.ckpt.state_bytes import BASE, DELTA, SEGMENT_BYTES, encode_plain, encode_segments
from heronpy.common.errors import HeronError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.proto.checkpoint_pb2 import FileRef, Segment, TaskSnapshot
from heronpy.proto.checkpoint_pb2 import KeyedState as KeyedRecord
from heronpy.storage.checkpoints import CheckpointStore, StoreError
from heronpy.storage.locations import open_location, same_place
from heronpy.storage.stores import Stores
from heronpy.wire.codec import encode

#: Assumed size of an entry in bytes before any entry was measured.
_ENTRY_BYTES: Final = 64.0


class CheckpointSuperseded(HeronError):
    """The task was captured for a newer checkpoint, so this checkpoint is dropped."""


class TaskState:
    """All saved state of a task."""

    def __init__(
        self,
        component: str,
        index: int,
        parallelism: int,
        settings: CheckpointSettings,
        stores: Stores,
        *,
        task_id: int,
        allow_pickle: bool = True,
        grouping_width: int = 1,
    ) -> None:
        self.component = component
        self.index = index
        self.parallelism = parallelism
        self.settings = settings
        self.stores = stores
        self.store: CheckpointStore = stores.store
        self.task_id = task_id
        self.allow_pickle = allow_pickle
        self.attempt = 0
        self.owner = KeyOwner(component, index, parallelism, settings.key_groups, grouping_width)
        self.plain = HashMapState()
        self.restored: TaskSnapshot | None = None
        """This task's own part of the restored checkpoint; None without a checkpoint, or after a rescale."""
        self.keyed = KeyedStates(self.owner, allow_pickle, PartitionOwner(component, lambda: (index, parallelism)))
        """The keyed and partitioned states by name, with their restored content."""
        self._chains: dict[str, Chain] = {}
        self._pieces = Pieces()
        self._entry_bytes: dict[str, float] = {}
        self._plain_bytes = 0
        self._capture: Capture | None = None

    @property
    def uploads(self) -> CheckpointStore | None:
        """The store, if its files wait on this host to be uploaded; otherwise None."""
        return self.store if self.store.is_remote else None

    @property
    def is_empty(self) -> bool:
        """Whether the state has no content now, so that a task restored from it starts from the beginning."""
        return not self.plain and not any(self.keyed.states.values())

    def keys(self) -> int | None:
        """The number of keys in keyed state; None without keyed state. Safe to read in any thread."""
        states = [state for state in list(self.keyed.states.values()) if not isinstance(state, PartitionedState)]
        return sum(state.held for state in states) if states else None

    # ---- restore ------------------------------------------------------------------------------

    def restore(self, location: str, attempt: int) -> list[bytes]:
        """Load the state of a checkpoint ("": start empty) before user code sees it.

        Returns the frames in flight to this task, as received. Raises DamagedFileError if a file differs from the
        content that was written.
        """
        self.attempt = attempt
        if not location:
            return []
        # An outage of the store does not mean that the checkpoint is damaged.
        store, metadata = open_location(location, patience_s=self.settings.savepoint_timeout_s)
        loader = Loader(store, metadata, self.owner, self.allow_pickle)
        self.restored = loader.mine
        self.plain.update(loader.plain())
        if loader.mine is not None:
            snapshot = loader.mine
            self._plain_bytes = len(snapshot.state_inline) or snapshot.state_file.bytes
        # Files of another topology instance, or of other tasks, are read but never named in new snapshots.
        ours = loader.mine is not None and same_place(store.folder, self.store.folder)
        if ours and loader.mine is not None:
            self._pieces = Pieces(pieces_of(loader.mine))
        for name, partitioned in loader.keyed_names().items():
            state = self.keyed.restored(name, partitioned)
            base, deltas = loader.keyed(name, state)
            self._chains[name] = Chain.restored(base, deltas) if ours else Chain()
            segments = [*base, *(segment for segment, _ in deltas)]
            self._note_size(name, segments)
        return loader.channel()

    # ---- capture ------------------------------------------------------------------------------

    def capture(self, checkpoint: int) -> Capture:
        """Freeze the content of the checkpoint between two tuples. Takes milliseconds, even if the state is large."""
        if self._capture is not None:
            self._capture.cancel()
        self._follow_store()
        settings = self.settings
        pieces = []
        for name, state in self.keyed.states.items():
            chain = self._sound_chain(name)
            entry_bytes = self._entry_bytes.get(name, _ENTRY_BYTES)
            small = state.held * entry_bytes <= settings.inline_max_bytes
            plan = chain.plan(checkpoint, state.take_changes(), state.held, settings.compact_ratio, small)
            cut = state.cut(plan.keys) if plan.keys is None or plan.keys else None
            estimate = entry_bytes * (state.held if plan.keys is None else plan.entries)
            pieces.append(Piece(state, plan, cut, state.held, int(estimate)))
        capture = self._capture = Capture(
            self, checkpoint, pieces, self._plain_bytes, self.store, self._pieces.complete
        )
        if not capture.needs_fork:
            capture.settle()
        return capture

    def _sound_chain(self, name: str) -> Chain:
        """Return the chain, or a new one if a file that later checkpoints would reuse is missing or damaged."""
        chain = self._chains.setdefault(name, Chain())
        files = (s.file for link in chain.links or () for s in link.segments if s.file.path)
        if not all(map(self.store.has, files)):
            chain = self._chains[name] = Chain()
        return chain

    def _follow_store(self) -> None:
        """If checkpoints now go to another store, stop reusing files of the old store."""
        store = self.stores.store
        if store is not self.store:
            self.store = store
            self._chains = {name: Chain() for name in self._chains}
            self._pieces = Pieces()

    def write_channel(self, checkpoint: int, snapshot: TaskSnapshot, frames: list[bytes], tuples: int) -> None:
        """Add to a snapshot the frames in flight to the task (for unaligned checkpoints)."""
        data = encode(list(frames))
        before = self.store.bytes_written
        name = f"task-{self.task_id}-channel-{self.attempt}"
        snapshot.channel_file.CopyFrom(self.store.put_exclusive(checkpoint, name, data))
        snapshot.channel_tuples = tuples
        snapshot.total_bytes += len(data)
        snapshot.uploaded_bytes += self.store.bytes_written - before

    def persisted(self, checkpoint: int, snapshot: TaskSnapshot) -> None:
        """Record that the task's part of the checkpoint has been written."""
        self._end(checkpoint)
        self._plain_bytes = len(snapshot.state_inline) or snapshot.state_file.bytes
        self._pieces.pending[checkpoint] = pieces_of(snapshot)
        for record in snapshot.keyed:
            segments = list(record.segments)
            if record.name in self._chains:
                self._chains[record.name].persisted(checkpoint, segments)
            self._note_size(record.name, segments)

    def completed(self, checkpoint: int) -> None:
        """Record that the whole topology's checkpoint is complete, so that later checkpoints build on this one."""
        for chain in self._chains.values():
            chain.completed(checkpoint)
        self._pieces.completed(checkpoint)

    def aborted(self, checkpoint: int) -> None:
        """Record that the checkpoint will not complete."""
        self._end(checkpoint)
        for chain in self._chains.values():
            chain.aborted(checkpoint)
        self._pieces.pending.pop(checkpoint, None)
        if self.uploads is not None:
            # The cause may be a missing file that was reused: check the files, so that `_sound_chain` detects that.
            links = [link for chain in self._chains.values() for link in chain.links or ()]
            self.uploads.look_for([segment.file for link in links for segment in link.segments])

    def _end(self, checkpoint: int) -> None:
        if self._capture is not None and self._capture.checkpoint == checkpoint:
            self._capture.cancel()
            self._capture = None

    def _note_size(self, name: str, segments: list[Segment]) -> None:
        entries = sum(segment.entries for segment in segments)
        if entries:
            self._entry_bytes[name] = sum(map(size_of_segment, segments)) / entries


class Pieces(Struct):
    """The shared files of a task's checkpoints by hash, so that equal content is not written again."""

    complete: dict[bytes, FileRef] = {}
    """The files of the last complete checkpoint."""
    pending: dict[int, dict[bytes, FileRef]] = {}

    def completed(self, checkpoint: int) -> None:
        """Keep the pieces that this checkpoint names, so that later checkpoints may name them."""
        if checkpoint in self.pending:
            self.complete = self.pending[checkpoint]
            self.pending = {number: found for number, found in self.pending.items() if number > checkpoint}


def pieces_of(snapshot: TaskSnapshot) -> dict[bytes, FileRef]:
    """Return a map from hash to file with the shared files that a task's part of a checkpoint names."""
    refs = [segment.file for record in snapshot.keyed for segment in record.segments] + [snapshot.state_file]
    return {ref.sha256: ref for ref in refs if ref.path}


class Piece(Struct, frozen=True):
    """One keyed state in a capture."""

    state: KeyedState
    plan: Plan
    cut: Cut | None
    """The keys to write; None if nothing changed."""
    held: int
    estimate_bytes: int

    @property
    def group_of(self) -> Callable[[Any], int]:
        assert self.state.owner is not None
        return self.state.owner.group_of


class Capture(Struct):
    """The content of a task's part of a checkpoint, frozen but not yet written."""

    task: TaskState
    checkpoint: int
    pieces: list[Piece]
    plain_bytes: int
    """Size of the plain State in the previous checkpoint, in bytes."""
    store: CheckpointStore
    complete: dict[bytes, FileRef]
    """The pieces of the task in the last complete checkpoint, by their hashes."""
    _plain: bytes | None = None
    _cancelled: bool = False
    _origin: tuple[int, int] = field(default_factory=lambda: (os.getpid(), threading.get_ident()))

    @property
    def estimate_bytes(self) -> int:
        """Estimate the number of bytes that `persist` encodes."""
        return self.plain_bytes + sum(piece.estimate_bytes for piece in self.pieces)

    @property
    def needs_fork(self) -> bool:
        """Whether the plain State is large and not yet encoded, so that `persist` must run in a forked child, or
        after `settle`.
        """
        return self._plain is None and self.plain_bytes > self.task.settings.fork_above_bytes

    def settle(self) -> None:
        """Encode, in the task's thread, the data that cannot be read while the task runs."""
        if self._plain is None:
            self._plain = encode_plain(self.task.plain, self.task.allow_pickle, self.task.component)

    def forked(self) -> None:
        """Record that the forked child has a copy of the state, so that the task need not keep old values."""
        for piece in self.pieces:
            if piece.cut is not None:
                piece.state.end_cut(piece.cut)

    def cancel(self) -> None:
        """Make a running `persist` drop its result."""
        self._cancelled = True
        self.forked()

    def persist(self) -> TaskSnapshot:
        """Encode and write; return this task's part of the checkpoint."""
        try:
            return self._persist()
        except StoreError:
            self.task.stores.failed()
            raise

    def _persist(self) -> TaskSnapshot:
        pid, thread = self._origin
        if self._plain is None and os.getpid() == pid and threading.get_ident() != thread:
            raise RuntimeError("a large plain State must be written in a forked child, or settled in the task's thread")
        self.settle()
        task = self.task
        store = self.store
        before = store.bytes_written
        snapshot = TaskSnapshot(
            task_id=task.task_id, component=task.component, component_index=task.index, attempt=task.attempt
        )
        room = task.settings.inline_max_bytes - sum(
            len(segment.inline) for piece in self.pieces for segment in piece.plan.segments
        )
        plain = self._plain or b""
        snapshot.stateful = bool(plain)
        if len(plain) > room:
            snapshot.state_file.CopyFrom(store.put_shared(self.checkpoint, plain, self.complete))
        else:
            snapshot.state_inline = plain
            room -= len(plain)
        for piece in self.pieces:
            room = self._persist_piece(piece, snapshot, room)
        if self._cancelled:
            raise CheckpointSuperseded(
                f"checkpoint {self.checkpoint} of {task.component}[{task.index}] was abandoned during writing"
            )
        inline = [len(s.inline) for piece, k in zip(self.pieces, snapshot.keyed) for s in _new(piece, k)]
        segments = [segment for record in snapshot.keyed for segment in record.segments]
        snapshot.total_bytes = len(plain) + sum(map(size_of_segment, segments))
        snapshot.uploaded_bytes = store.bytes_written - before + len(snapshot.state_inline) + sum(inline)
        return snapshot

    def _persist_piece(self, piece: Piece, snapshot: TaskSnapshot, room: int) -> int:
        """Write one keyed state; return how many bytes remain for inline content."""
        task, plan = self.task, piece.plan
        record = KeyedRecord(
            name=piece.state.name,
            segments=plan.segments,
            keys=piece.held,
            partitioned=isinstance(piece.state, PartitionedState),
        )
        if piece.cut is None:
            snapshot.keyed.append(record)
            return room
        kind = BASE if plan.keys is None else DELTA
        parts = encode_segments(
            kind, piece.cut.keys(), piece.group_of, piece.cut.entry, task.allow_pickle, SEGMENT_BYTES
        )
        keys = 0
        for part in parts:
            segment = record.segments.add(
                entries=part.entries, first_group=part.first_group, last_group=part.last_group
            )
            keys += part.entries
            if len(part.data) <= room:
                segment.inline = part.data
                room -= len(part.data)
            else:
                segment.file.CopyFrom(self.store.put_shared(self.checkpoint, part.data, self.complete))
        if kind == BASE:
            record.keys = keys
        snapshot.keyed.append(record)
        return room


def _new(piece: Piece, record: KeyedRecord) -> list[Segment]:
    return list(record.segments)[len(piece.plan.segments) :]


def size_of_segment(segment: Segment) -> int:
    """Return the size of a segment's content in bytes."""
    return int(segment.file.bytes) or len(segment.inline)
