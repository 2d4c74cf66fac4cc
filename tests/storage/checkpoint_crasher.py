"""A process that works on a checkpoint store until it is killed: `python checkpoint_crasher.py FOLDER`.

It prints a line for each checkpoint that it was told is complete.
"""

from __future__ import annotations

import random
import sys

from heronpy.proto import checkpoint_pb2
from heronpy.storage.checkpoints import CheckpointStore, files_of

RETAINED = 3
SIZE = 3000


def piece(number: int) -> bytes:
    """Some pieces are shared by several checkpoints."""
    return random.Random(number).randbytes(SIZE)


def pieces_of_last(store: CheckpointStore) -> dict[bytes, checkpoint_pb2.FileRef]:
    """The shared files of the newest complete checkpoint, by their hashes."""
    last = store.checkpoints()[-1:]
    refs = [ref for number in last for ref in files_of(store.load_metadata(number))]
    return {ref.sha256: ref for ref in refs if ref.path.startswith("shared/")}


def metadata_of(store: CheckpointStore, number: int) -> checkpoint_pb2.Metadata:
    """Write the files of a checkpoint: two shared ones, one of which the last one may have, too, and one of its own."""
    known = pieces_of_last(store)
    metadata = checkpoint_pb2.Metadata(version=1, checkpoint=number, topology="wordy", topology_id=store.folder.name)
    task = metadata.tasks.add(task_id=1, component="count")
    keyed = task.keyed.add(name="counts")
    for shared in (number, number // 2):
        keyed.segments.add(file=store.put_shared(number, piece(shared), known))
    task.state_file.CopyFrom(store.put_exclusive(number, "task-1-state-1", piece(-number)))
    return metadata


def work(store: CheckpointStore, first: int, last: int, told: object = None) -> None:
    kept = [store.load_metadata(number) for number in store.checkpoints()]
    store.sweep(kept, before=first)
    for number in range(first, last):
        metadata = metadata_of(store, number)
        store.write_metadata(metadata)
        if callable(told):
            told(number)
        kept.append(metadata)
        dropped, kept = kept[:-RETAINED], kept[-RETAINED:]
        store.discard(dropped, kept)
        if number % 5 == 0:
            store.sweep(kept)


if __name__ == "__main__":
    target = CheckpointStore(sys.argv[1])
    begin = max(target.checkpoints(), default=0) + 1
    work(target, begin, 1 << 40, lambda number: print(number, flush=True))
