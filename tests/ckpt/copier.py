"""A process that copies checkpoints until it is killed: `python copier.py SOURCE TARGET`."""

from __future__ import annotations

import sys

from heronpy.ckpt.replication import Replicator
from heronpy.proto.checkpoint_pb2 import CheckpointRecord
from heronpy.storage.checkpoints import CheckpointStore
from heronpy.storage.locations import location_of


def records_of(source: CheckpointStore) -> list[CheckpointRecord]:
    return [
        CheckpointRecord(checkpoint=number, location=location_of(source.folder, number))
        for number in source.checkpoints()
    ]


if __name__ == "__main__":
    origin = CheckpointStore(sys.argv[1])
    replicator = Replicator(CheckpointStore(sys.argv[2], fsync=False), threads=2)
    print("begins", flush=True)
    while replicator.follow(records_of(origin)) is not None:
        pass
    replicator.finish(records_of(origin))
    replicator.close()
