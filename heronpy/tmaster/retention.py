"""Decides which checkpoints are removed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from heronpy.proto.checkpoint_pb2 import SAVEPOINT, CheckpointRecord


def to_drop(records: Sequence[CheckpointRecord], retained: int) -> list[int]:
    """Ids of the checkpoints to remove when the newest `retained` undamaged ones are kept.

    Savepoints stay, and so does everything newer than the oldest kept checkpoint: running tasks
    build upon the newest one, even if it is damaged.
    """
    plain = sorted((r for r in records if r.kind != SAVEPOINT), key=lambda record: record.checkpoint)
    sound = [record.checkpoint for record in plain if not (record.damaged or record.abandoned)]
    oldest = sound[-max(1, retained) :][0] if sound else 0
    return [record.checkpoint for record in plain if record.checkpoint < oldest]
