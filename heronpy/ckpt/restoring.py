"""Reads one task's state from a checkpoint, even if the number of tasks of the component has changed.

With the same number of tasks, a task reads the files of the task with its index. Otherwise the task reads
all partitioned state and every segment of keyed state that overlaps its key groups, and keeps only its own keys. A
plain State and tuples in flight belong to single tasks and cannot be divided.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from heronpy.api.state.keyed_state import ABSENT, KeyedState, KeyOwner, PartitionedState
from heronpy.ckpt.compatibility import problems
from heronpy.ckpt.state_bytes import BASE, decode_plain, decode_segment
from heronpy.common.errors import HeronError, RemoteWireError, TopologyError
from heronpy.proto.checkpoint_pb2 import Metadata, Segment, TaskSnapshot
from heronpy.storage.checkpoint_files import DamagedFileError
from heronpy.storage.checkpoint_layout import path_in
from heronpy.storage.checkpoints import CheckpointStore
from heronpy.wire.codec import MSGPACK, decoder

T = TypeVar("T")
Deltas = list[tuple[Segment, set[Any]]]


class Loader:
    """Reads the content of a checkpoint for one task."""

    def __init__(self, store: CheckpointStore, metadata: Metadata, owner: KeyOwner, allow_pickle: bool) -> None:
        self._store = store
        self._number = metadata.checkpoint
        self._owner = owner
        self._allow_pickle = allow_pickle
        self._decode = decoder(allow_pickle=allow_pickle)
        tasks = [task for task in metadata.tasks if task.component == owner.component]
        self._tasks = sorted(tasks, key=lambda task: task.component_index)
        before = metadata.parallelism.get(owner.component, len(tasks))
        if [task.component_index for task in self._tasks] != list(range(before)):
            path = store.folder / path_in(metadata.checkpoint)
            raise DamagedFileError(str(path), f"does not contain all {before} tasks of component {owner.component}")
        self.mine: TaskSnapshot | None = self._tasks[owner.index] if before == owner.parallelism else None
        wrong = problems(metadata, {owner.component: owner.parallelism}, owner.key_groups, allow_dropped=True)
        if wrong:
            raise TopologyError(wrong[0])

    def plain(self) -> dict[Any, Any]:
        """Return the plain State of the task."""
        task = self.mine
        if task is None:
            return {}
        data = self._store.read(task.state_file) if task.state_file.path else task.state_inline
        return dict(self._guarded("State", lambda: decode_plain(data, self._allow_pickle)))

    def keyed_names(self) -> dict[str, bool]:
        """Return a map from the name of each keyed state of the component to whether the state is partitioned."""
        return {record.name: record.partitioned for task in self._sources() for record in task.keyed}

    def _sources(self) -> list[TaskSnapshot]:
        return self._tasks if self.mine is None else [self.mine]

    def keyed(self, name: str, state: KeyedState) -> tuple[list[Segment], Deltas]:
        """Fill a keyed state with the task's own keys; return its segments: bases, and deltas with their keys."""
        base: list[Segment] = []
        deltas: Deltas = []
        assert state.owner is not None
        groups = state.owner.groups
        for task in self._sources():
            for segment in (s for record in task.keyed if record.name == name for s in record.segments):
                if segment.last_group < groups.start or segment.first_group >= groups.stop:
                    continue
                kind, keys = self._guarded(f"keyed state {name!r}", partial(self._apply, segment, state, groups))
                if kind == BASE:
                    base.append(segment)
                else:
                    deltas.append((segment, keys))
        if self.mine is None and isinstance(state, PartitionedState):
            for key in [key for key, _, _ in state.dump() if not state.owns(key)]:
                state.unload(key)
        return base, deltas

    def _apply(self, segment: Segment, state: KeyedState, groups: range) -> tuple[int, set[Any]]:
        data = self._store.read(segment.file) if segment.file.path else segment.inline
        kind, entries = decode_segment(data, self._decode)
        keys = set()
        for entry in entries:
            if entry.group not in groups:
                continue
            if kind != BASE:
                keys.add(entry.key)
            state.unload(entry.key)
            if entry.value is not ABSENT:
                state.load(entry.key, entry.value, entry.expires)
        return kind, keys

    def channel(self) -> list[bytes]:
        """Return the frames that were in flight to the task when the checkpoint was taken."""
        task = self.mine
        if task is None or not task.channel_file.path:
            return []
        data = self._store.read(task.channel_file)
        # Frames stay bytes here; their values are decoded later, as for every frame.
        frames: list[bytes] = self._guarded("input", lambda: decoder(allow_pickle=False)(data, MSGPACK))
        return frames

    def _guarded(self, what: str, read: Callable[[], T]) -> T:
        """Call `read`; turn any error except DamagedFileError into a one-sentence error."""
        owner = self._owner
        try:
            return read()
        except DamagedFileError:
            raise
        except RemoteWireError as error:
            where = f"{what} of {owner.component} in checkpoint {self._number}"
            raise HeronError(f"{where} cannot be read: {error}") from error
        except HeronError:
            raise
        # unpickling runs user code, which may raise anything, for example for a missing class
        except Exception as error:
            raise HeronError(
                f"{what} of {owner.component} in checkpoint {self._number} cannot be read"
                f" ({type(error).__name__}: {error}); submit the code that defines the classes of its values"
            ) from error
