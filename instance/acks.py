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

from heronpy.wire.frames import ACK, FAIL, Array64, Frame, Kind, pack64

from .tuples import HeronTuple, InFrame

_frame_of = attrgetter("frame")


class BoltAcks:
    """Collects acks and fails; `flush` sends them. The first word on a tuple counts.

    `acked.append` is what the bolt's `ack` is bound to, so an ack costs one list append. In a topology
    without acking they are only counted.
    """

    def __init__(
        self,
        task_id: int,
        send: Callable[[bytes], None],
        settle: Callable[[], None],
        acking: bool,
        count: Callable[[str, str, float], None],
    ) -> None:
        self._task_id = task_id
        self._send = send
        self._settle = settle
        self.acking = acking
        self._metric = count
        self.acked: list[HeronTuple] = []
        self._failed: list[HeronTuple] = []
        #: How many acks had been collected at the time of each fail.
        self._failed_at: list[int] = []
        self.ack_count = 0
        self.fail_count = 0

    def fail(self, tup: HeronTuple) -> None:
        """Record a fail."""
        self._failed.append(tup)
        self._failed_at.append(len(self.acked))

    def withdraw(self, tup: HeronTuple) -> None:
        """Forget the fails of a tuple that were not sent yet."""
        kept = [pair for pair in zip(self._failed, self._failed_at, strict=True) if pair[0] is not tup]
        self._failed = [failed for failed, _ in kept]
        self._failed_at = [at for _, at in kept]

    def flush(self, current: list[HeronTuple] | None = None) -> None:
        """Send what was collected; `current` are the tuples of the frame just processed, if it is complete."""
        acked, failed = self.acked, self._failed
        if failed:
            if acked:
                failed = self._not_acked_before()
            self._failed = []
            self._failed_at.clear()
        if not self.acking:
            for kind, tuples in ((ACK, acked), (FAIL, failed)):
                if tuples:
                    self._only_count(kind, tuples)
            acked.clear()
            return
        if failed:
            self._finish(failed, FAIL)
        if not acked:
            return
        self._settle()
        frame = acked[0].frame
        # A frame that came with `skip` has fewer tuples than roots.
        if (
            current is not None
            and len(current) == frame.count
            and acked == current
            and frame.tracked
            and not frame.touched
            and frame.done is None
        ):
            self._ack_whole(frame)
        else:
            self._finish(acked, ACK)
        acked.clear()

    def _not_acked_before(self) -> list[HeronTuple]:
        """The tuples whose fail came before any ack."""
        first_ack: dict[int, int] = {}
        for place, tup in enumerate(self.acked):
            first_ack.setdefault(id(tup), place)
        return [
            tup
            for tup, place in zip(self._failed, self._failed_at, strict=True)
            if first_ack.get(id(tup), place) >= place
        ]

    def give_up(self, envelope: Any, kind: Kind) -> None:
        """Ack or fail all tuples of a tracked frame that is not opened; its arrays fit (wire.frames.fits)."""
        if not self.acking or not envelope.tracked:
            return
        frame = InFrame("", "", envelope.source_task, envelope.count, 0.0)
        frame.track(envelope)
        frame.unpack()
        self._send_roots(frame, np.arange(envelope.skip, frame.count), kind)

    def _ack_whole(self, frame: InFrame) -> None:
        if frame.whole_done:
            return
        frame.whole_done = True
        self._count(ACK, frame, frame.count)
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

    def _finish(self, tuples: list[HeronTuple], kind: Kind) -> None:
        for frame, run in groupby(tuples, key=_frame_of):
            indices = np.fromiter((t.index for t in run), dtype=np.int64)
            if not frame.tracked:
                self._count(kind, frame, len(indices))
                continue
            if frame.whole_done:
                continue
            frame.unpack()
            indices = _first_of_each(indices[~frame.done[indices]])
            if len(indices):
                frame.done[indices] = True
                self._count(kind, frame, len(indices))
                self._send_roots(frame, indices, kind)

    def _only_count(self, kind: Kind, tuples: list[HeronTuple]) -> None:
        if tuples[0].frame is tuples[-1].frame:
            # Frames are processed one at a time, so the tuples in between are of the same frame.
            self._count(kind, tuples[0].frame, len(tuples))
            return
        for frame, run in groupby(tuples, key=_frame_of):
            self._count(kind, frame, sum(1 for _ in run))

    def _count(self, kind: Kind, frame: InFrame, count: int) -> None:
        if kind == ACK:
            self.ack_count += count
            self._metric("__ack-count", f"{frame.component}/{frame.stream}", count)
        else:
            self.fail_count += count
            self._metric("__fail-count", f"{frame.component}/{frame.stream}", count)

    def _send_roots(self, frame: InFrame, indices: Any, kind: Kind) -> None:
        places = indices
        if frame.root_counts is not None:
            places = np.concatenate([np.arange(*frame.span(i)) for i in indices] or [np.empty(0, dtype=np.int64)])
        roots, tasks = frame.roots[places], frame.root_tasks[places]
        values: Array64 = frame.values_[places]  # type: ignore[index]
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
