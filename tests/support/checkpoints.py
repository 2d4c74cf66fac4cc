"""Checkpoints on disk for tests, written through the real store."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

from heronpy.proto import checkpoint_pb2
from heronpy.storage.checkpoints import CheckpointStore, files_of


def new_id(topology: str) -> str:
    return f"{topology}{uuid.uuid4()}"


def write_checkpoint(
    folder: Path,
    number: int,
    topology: str = "wordy",
    parallelism: Mapping[str, int] | None = None,
    taken_at: float = 1e9,
    savepoint: bool = False,
    shared: bytes = b"old keys",
    keyed: bool = True,
    key_groups: int = 1024,
    publishes: bool = False,
) -> checkpoint_pb2.Metadata:
    """Write a complete checkpoint of a spout with plain State and a bolt with keyed state.

    Each bolt task has a shared segment, and a segment that only this checkpoint uses.
    """
    store = CheckpointStore(folder, fsync=False)
    last = store.checkpoints()[-1:]
    known = {ref.sha256: ref for one in last for ref in files_of(store.load_metadata(one))}
    tasks = dict(parallelism or {"word": 1, "count": 2})
    metadata = checkpoint_pb2.Metadata(
        version=1,
        checkpoint=number,
        kind=checkpoint_pb2.SAVEPOINT if savepoint else checkpoint_pb2.CHECKPOINT,
        topology=topology,
        topology_id=folder.name,
        taken_at=taken_at,
        key_groups=key_groups,
        parallelism=tasks,
        duration_s=0.25,
        release="1",
    )
    for component, count in tasks.items():
        for index in range(count):
            task = metadata.tasks.add(
                task_id=len(metadata.tasks) + 1,
                component=component,
                component_index=index,
                total_bytes=100,
                publishes=publishes,
            )
            task.uploaded_bytes = 40
            if component == "word":
                task.stateful = True
                task.state_inline = b"offset"
                continue
            exclusive = store.put_exclusive(number, f"task-{task.task_id}-state", f"new {number} {index}".encode())
            if not keyed:
                continue
            state = task.keyed.add(name="counts", keys=5)
            state.segments.add(file=store.put_shared(number, shared, known), entries=4, last_group=1023)
            state.segments.add(file=exclusive, entries=1, last_group=1023)
    store.write_metadata(metadata)
    return metadata
