"""The rows of VerifiedSink are those of the restored checkpoint, in the order in which the runtime calls (F23)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np

from heronpy.verify import InputSpec, VerifiedSink, records
from heronpy.verify.stream import Partition

SPEC = InputSpec(partitions=1, count=100, keys=5)


class Context:
    """What the sink asks of its context."""

    def get_task_id(self) -> int:
        return 3

    def keyed_state(self, name: str) -> dict[str, Any]:
        return {}


class Tup:
    def __init__(self, seq: int) -> None:
        self.values = [*Partition(SPEC, 0).tuple(seq), 0]


def sink_from(out: Path, checkpoint: int) -> VerifiedSink:
    """A process of the sink that starts from a checkpoint: pre_restore comes before initialize."""
    sink = VerifiedSink.__new__(VerifiedSink)
    sink.logger = logging.getLogger("test")
    sink.ack = lambda tup: None  # type: ignore[method-assign]
    sink.init_state(None)
    sink.pre_restore(str(checkpoint))
    sink.initialize({**SPEC.config(str(out)), "topology.reliability.mode": "EFFECTIVELY_ONCE"}, Context())
    return sink


def committed(out: Path) -> list[int]:
    found = records.read_segments(out / records.ROWS, "*.committed")
    return sorted(int(seq) for seq in np.concatenate(found)["seq"]) if found else []


def test_rows_follow_the_checkpoint_that_is_restored(tmp_path: Path) -> None:
    first = sink_from(tmp_path, 0)
    for checkpoint in (1, 2, 3):
        for seq in range(checkpoint * 10, checkpoint * 10 + 10):
            first.process(Tup(seq))
        first.pre_save(str(checkpoint))
        if checkpoint < 3:
            first.post_save(str(checkpoint))
    first.process(Tup(99))
    first.close()
    assert committed(tmp_path) == list(range(10, 30))
    sink_from(tmp_path, 3).close()
    assert committed(tmp_path) == list(range(10, 40)), "prepared for a complete checkpoint, so committed"
    sink_from(tmp_path, 1).close()
    assert committed(tmp_path) == list(range(10, 20)), "a damaged checkpoint takes its rows back"
    sink_from(tmp_path, 0).close()
    assert committed(tmp_path) == []
    assert [path.name for path in (tmp_path / records.ROWS).iterdir()] == []
