"""Acks and fails of a bolt task, sent to the acker in the stream manager of each root's spout. Pure.

The usual case, a bolt that has acked all tuples of a frame in order and anchored nothing to them, is recognised by
object identity and costs one message without arrays. Acks in any other order are grouped by frame in one sort, and
packed into a few messages (roots.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

import numpy as np

from heronpy.proto import frame_pb2
from heronpy.wire.frames import ACK, FAIL, Kind

from .roots import AckMessages, few_acks, whole_ack
from .tuples import HeronTuple, InBatch, InFrame, Places

#: Bits of a tuple's place in its frame, which has no more than COUNT_MAX tuples.
PLACE_BITS = 22
_PLACE_MASK = (1 << PLACE_BITS) - 1
_ONLY_TUPLES = {HeronTuple}
_frame_of = attrgetter("frame")

#: Acks of batches below this size are kept per tuple, so that they can wait to be batched.
BATCH_MIN = 8
#: Maximum number of acks of whole frames that are packed without arrays. A frame of the smallest permitted size has
#: this number of tuples.
FEW_MAX = 32
#: The same limit for kept frames, whose tuples need no check.
KEPT_FEW_MAX = 128
#: The types that user code passes to `ack` and `fail`.
OneOrMany = HeronTuple | Iterable[HeronTuple] | InBatch


class BoltAcks:
    """Collects acks and fails; `flush` sends them. The first ack or fail of a tuple wins.

    `ack` is a plain function that user code calls directly, because it is called for each tuple. In a topology without
    acking, acks and fails are only counted.
    """

    def __init__(
        self,
        task_id: int,
        send: Callable[[bytes], None],
        settle: Callable[[], None],
        acking: bool,
        count: Callable[[str, str, float], None],
        frame_max_bytes: int,
    ) -> None:
        self._task_id = task_id
        self._send = send
        self._settle = settle
        self.acking = acking
        self._metric = count
        self._frame_max_bytes = frame_max_bytes
        self.acked: list[HeronTuple] = []
        #: Frames and the places of their tuples that were acked as a batch; they precede all entries of `acked` and the
        #: fails.
        self._batches: list[tuple[InFrame, Places]] = []
        #: Plain frames that are acked as a whole but not sent yet, and the number of their tuples.
        self._kept: list[frame_pb2.Frame] = []
        self._kept_tuples = 0
        self._failed: list[HeronTuple] = []
        #: Number of acks that had been collected at the time of each fail.
        self._failed_at: list[int] = []
        self.ack_count = 0
        self.fail_count = 0
        self.ack = self._make_ack()

    def _make_ack(self) -> Callable[[OneOrMany], None]:
        append, extend = self.acked.append, self.acked.extend

        def ack(tup: OneOrMany) -> None:
            if type(tup) is HeronTuple:
                append(tup)
            elif type(tup) is InBatch and len(tup) >= BATCH_MIN:
                self._ack_batch(tup)
            else:
                extend(several(tup, "ack"))

        return ack

    def _ack_batch(self, batch: InBatch) -> None:
        if self._failed:
            self.flush()  # the first ack or fail of a tuple wins
        self._batches.append((batch.frame, batch.places()))

    def fail(self, tup: OneOrMany) -> None:
        """Record the fail of one or several tuples."""
        failed = several(tup, "fail")
        self._failed += failed
        self._failed_at += [len(self.acked)] * len(failed)

    @property
    def waiting(self) -> int:
        """The number of unsent acks of single tuples and of kept frames."""
        return len(self.acked) + self._kept_tuples

    def keep(self, current: list[HeronTuple]) -> bool:
        """Keep the acks of the frame just processed, to send them later together with those of other frames.

        Returns False and does nothing unless the frame is plain and exactly its tuples were acked, in order, since the
        last flush or call.
        """
        frame = current[0].frame
        if len(current) != frame.count or self.acked != current or self._failed or self._batches:
            return False
        if not frame.plain() or frame.done is not None or frame.whole_done:
            return False
        self._settle()
        envelope = frame.envelope
        if frame.touched or envelope is None:
            return False
        frame.whole_done = True
        self._count(ACK, frame, frame.count)
        self.acked.clear()
        self._kept.append(envelope)
        self._kept_tuples += frame.count
        return True

    @property
    def urgent(self) -> bool:
        """True if there are unsent fails, or unsent acks of batches. Both are sent immediately."""
        return bool(self._failed) or bool(self._batches)

    def ack_at_once(self, tup: HeronTuple) -> None:
        """Ack a tuple and send the ack immediately; drop the tuple's unsent fails."""
        key = _key_of(tup)
        kept = [pair for pair in zip(self._failed, self._failed_at, strict=True) if _key_of(pair[0]) != key]
        self._failed = [failed for failed, _ in kept]
        self._failed_at = [at for _, at in kept]
        self.acked.append(tup)
        self.flush()

    def flush(self, current: list[HeronTuple] | None = None) -> None:
        """Send the collected acks; `current` are the tuples of the frame just processed, if it is complete."""
        if self._kept:
            self._flush_kept()
        if self._batches:
            self._flush_batches()
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
        # A frame with `skip` has fewer tuples than roots.
        if (
            current is not None
            and len(current) == frame.count
            and acked == current
            and frame.tracked
            and frame.done is None
        ):
            self._ack_whole(frame)
        elif (frames := _few_whole(acked)) is not None:
            self._ack_few(frames)
        else:
            self._finish(acked, ACK)
        acked.clear()

    def _flush_kept(self) -> None:
        kept, few = self._kept, self._kept_tuples <= KEPT_FEW_MAX
        self._kept, self._kept_tuples = [], 0
        if len(kept) == 1:
            self._send(whole_ack(self._task_id, kept[0]))
        elif few:
            self._send_few(kept)
        else:
            messages = AckMessages(ACK, self._task_id, self._frame_max_bytes)
            for envelope in kept:
                messages.add_run(envelope.root_task, envelope.root_base, envelope.count, envelope.edge)
            self._send_all(messages)

    def _flush_batches(self) -> None:
        """Send the acks of batches: one for each whole frame, and one for all parts of frames."""
        batches, self._batches = self._batches, []
        if self.acking:
            self._settle()
        messages = AckMessages(ACK, self._task_id, self._frame_max_bytes)
        for frame, places in batches:
            if not self.acking or not frame.tracked:
                self._count(ACK, frame, len(places))
            elif len(places) == frame.count and frame.done is None:
                self._ack_whole(frame)
            else:
                places = frame.take(places)
                if len(places):
                    self._count(ACK, frame, len(places))
                    messages.add(frame, places)
        self._send_all(messages)

    def _not_acked_before(self) -> list[HeronTuple]:
        first_ack: dict[int, int] = {}
        for place, tup in enumerate(self.acked):
            first_ack.setdefault(_key_of(tup), place)
        return [
            tup
            for tup, place in zip(self._failed, self._failed_at, strict=True)
            if first_ack.get(_key_of(tup), place) >= place
        ]

    def give_up(self, envelope: Any, kind: Kind) -> None:
        """Ack or fail all tuples of a tracked frame without opening it; requires valid arrays (wire.frames.fits)."""
        if not self.acking or not envelope.tracked:
            return
        frame = InFrame("", "", envelope.source_task, envelope.count, 0.0)
        frame.track(envelope)
        messages = AckMessages(kind, self._task_id, self._frame_max_bytes)
        messages.add(frame, np.arange(envelope.skip, frame.count))
        self._send_all(messages)

    def _ack_whole(self, frame: InFrame) -> None:
        if frame.whole_done:
            return
        frame.whole_done = True
        self._count(ACK, frame, frame.count)
        envelope = frame.envelope
        assert envelope is not None
        if envelope.root_counts and not envelope.roots:
            return  # no anchor derives from a spout tuple
        if not envelope.root_tasks and not frame.touched:
            self._send(whole_ack(self._task_id, envelope))
            return
        messages = AckMessages(ACK, self._task_id, self._frame_max_bytes)
        messages.add(frame, np.arange(frame.count))
        self._send_all(messages)

    def _ack_few(self, frames: list[InFrame]) -> None:
        envelopes = []
        for frame in frames:
            if frame.whole_done or frame.envelope is None:
                continue
            frame.whole_done = True
            self._count(ACK, frame, frame.count)
            envelopes.append(frame.envelope)
        self._send_few(envelopes)

    def _send_few(self, envelopes: list[frame_pb2.Frame]) -> None:
        """Ack all roots of some plain frames, with a value for each root."""
        by_spout: dict[int, dict[int, int]] = {}
        for envelope in envelopes:
            values = by_spout.setdefault(envelope.root_task, {})
            for root in range(envelope.root_base, envelope.root_base + envelope.count):
                values[root] = values.get(root, 0) ^ envelope.edge
        for spout, values in by_spout.items():
            self._send(few_acks(self._task_id, spout, values))

    def _finish(self, tuples: list[HeronTuple], kind: Kind) -> None:
        """Ack or fail tuples of any frames in any order; tuples that were acked or failed before are ignored."""
        messages = AckMessages(kind, self._task_id, self._frame_max_bytes)
        for frame, places in self._by_frame(tuples, kind):
            places = frame.take(places)
            if len(places):
                self._count(kind, frame, len(places))
                messages.add(frame, places)
        self._send_all(messages)

    def _send_all(self, messages: AckMessages) -> None:
        for message in messages.packed():
            self._send(message)

    def _by_frame(self, tuples: list[HeronTuple], kind: Kind) -> Iterator[tuple[InFrame, Places]]:
        """Return the tracked tuples by frame, each once, ascending; count the other tuples."""
        frames = set(map(_frame_of, tuples))
        if not all([frame.tracked for frame in frames]):
            for frame, count in Counter(map(_frame_of, tuples)).items():
                if not frame.tracked:
                    self._count(kind, frame, count)
            tuples = [tup for tup in tuples if tup.frame.tracked]
            if not tuples:
                return
        # Frame and place are one number, so that one sort groups them.
        keys = np.array([tup.frame.number << PLACE_BITS | tup.index for tup in tuples], dtype=np.int64)
        keys.sort()
        repeated = keys[1:] == keys[:-1]
        if repeated.any():
            keys = keys[np.concatenate(([True], ~repeated))]
        numbers = keys >> PLACE_BITS
        keys &= _PLACE_MASK
        ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(keys)]
        by_number = {frame.number: frame for frame in frames}
        low = 0
        for end in ends:
            yield by_number[int(numbers[low])], keys[low:end]
            low = end

    def _only_count(self, kind: Kind, tuples: list[HeronTuple]) -> None:
        if tuples[0].frame is tuples[-1].frame:
            # Frames are processed one at a time, so the tuples in between are of the same frame.
            self._count(kind, tuples[0].frame, len(tuples))
            return
        for frame, count in Counter(map(_frame_of, tuples)).items():
            self._count(kind, frame, count)

    def _count(self, kind: Kind, frame: InFrame, count: int) -> None:
        if kind == ACK:
            self.ack_count += count
            self._metric("__ack-count", f"{frame.component}/{frame.stream}", count)
        else:
            self.fail_count += count
            self._metric("__fail-count", f"{frame.component}/{frame.stream}", count)


def _few_whole(tuples: list[HeronTuple]) -> list[InFrame] | None:
    """Return the frames of a few tuples if the tuples make up complete plain frames, in order; otherwise None."""
    if len(tuples) > FEW_MAX:
        return None
    frames: list[InFrame] = []
    place = 0
    while place < len(tuples):
        frame = tuples[place].frame
        part = tuples[place : place + frame.count]
        if not frame.tracked or frame.done is not None or not frame.plain():
            return None
        if [tup.index for tup in part if tup.frame is frame] != [*range(frame.count)]:
            return None
        frames.append(frame)
        place += frame.count
    return frames


def _key_of(tup: HeronTuple) -> int:
    """Return a key that all objects of one tuple share. Only a tuple of a tracked frame can have several objects."""
    return tup.frame.number << PLACE_BITS | tup.index if tup.frame.tracked else -id(tup)


def several(tup: OneOrMany, what: str) -> list[HeronTuple]:
    """Return the tuples passed to `ack` or `fail`: one tuple, or an iterable. Raises TypeError for anything else."""
    if type(tup) is HeronTuple:
        return [tup]
    if isinstance(tup, InBatch):
        return tup.tuples()
    tuples = list(tup) if isinstance(tup, Iterable) else [tup]
    if tuples and set(map(type, tuples)) != _ONLY_TUPLES:
        wrong = next(one for one in tuples if type(one) is not HeronTuple)
        raise TypeError(
            f"{what}() takes a tuple that was passed to process(), or a list of such tuples, not {wrong!r:.100}"
        )
    return tuples
