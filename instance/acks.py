"""Acks and fails of a bolt task, sent to the acker in the stream manager of each root's spout.

The usual case, a bolt that acks all tuples of a frame in order and anchored nothing to them, is
recognised by identity and costs one message without arrays. Any other goes as packed roots with XOR
values: own edge of the tuple XOR the edges of all tuples anchored to it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from heronpy.wire.frames import ACK, FAIL, Array64, Frame, pack64

from .tuples import HeronTuple, InFrame

_frame_of = attrgetter("frame")


class BoltAcks:
    """Collects acks and fails in the order of the calls; `flush` sends them.

    `acked.append` is what the bolt's `ack` is bound to, so an ack costs one list append.
    """

    def __init__(self, task_id: int, send: Callable[[bytes], None], settle: Callable[[], None]) -> None:
        self._task_id = task_id
        self._send = send
        self._settle = settle
        self.acked: list[HeronTuple] = []
        self.failed: list[HeronTuple] = []
        self.ack_count = 0
        self.fail_count = 0

    def flush(self, current: list[HeronTuple] | None = None) -> None:
        """Send what was collected; `current` are the tuples of the frame just processed."""
        acked, failed = self.acked, self.failed
        if failed:
            self.failed = []
            self._finish(failed, FAIL)
        if not acked:
            return
        self._settle()
        frame = acked[0].frame
        if current is not None and acked == current and frame.tracked and not frame.touched and frame.done is None:
            self._ack_whole(frame)
        else:
            self._finish(acked, ACK)
        acked.clear()

    def _ack_whole(self, frame: InFrame) -> None:
        if frame.whole_done:
            return
        frame.whole_done = True
        self.ack_count += frame.count
        envelope = frame.envelope
        assert envelope is not None
        if not envelope.root_tasks:
            ack = Frame()
            ack.CopyFrom(envelope)
            ack.kind, ack.source_task, ack.dest_task = ACK, self._task_id, envelope.root_task
            self._send(ack.SerializeToString())
            return
        frame.unpack()
        self._send_roots(frame, np.arange(frame.count), ACK)

    def _finish(self, tuples: list[HeronTuple], kind: int) -> None:
        for frame, run in groupby(tuples, key=_frame_of):
            indices = np.fromiter((t.index for t in run), dtype=np.int64)
            if not frame.tracked:
                self._count(kind, len(indices))
                continue
            if frame.whole_done:
                continue
            frame.unpack()
            indices = _first_of_each(indices[~frame.done[indices]])
            if len(indices):
                frame.done[indices] = True
                self._count(kind, len(indices))
                self._send_roots(frame, indices, kind)

    def _count(self, kind: int, count: int) -> None:
        if kind == ACK:
            self.ack_count += count
        else:
            self.fail_count += count

    def _send_roots(self, frame: InFrame, indices: Any, kind: int) -> None:
        values: Array64 = frame.values_[indices]  # type: ignore[index]
        if frame.root_counts is None:
            roots, tasks = frame.roots[indices], frame.root_tasks[indices]
        else:
            counts = frame.root_counts[indices]
            places = np.concatenate(
                [np.arange(frame.offsets[i], frame.offsets[i + 1]) for i in indices] or [np.empty(0, dtype=np.int64)]
            )
            roots, tasks = frame.roots[places], frame.root_tasks[places]
            values = np.repeat(values, counts)
        for task in np.unique(tasks).tolist():
            mine = tasks == task
            message = Frame(
                kind=kind,
                source_task=self._task_id,
                dest_task=task,
                count=int(mine.sum()),
                roots=pack64(roots[mine]),
                values=pack64(values[mine]) if kind == ACK else b"",
            )
            self._send(message.SerializeToString())


def _first_of_each(indices: Any) -> Any:
    """Distinct indices in ascending order; a repeated ack in one call list counts once."""
    return np.unique(indices) if len(indices) > 1 else indices
