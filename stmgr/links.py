"""Links of a stream manager: the byte-counted queue and the credit of one peer (decision D3).

ZeroMQ hides its queues, so what a peer has not granted credit for waits here, counted. A link knows
what it sent and what the peer consumed, keeps local tasks' unconsumed frames until then, and says when
the sender of a frame is to get its credit back. Pure: `transmit` is given.

Invariants: `queued_bytes` is the sum over `queue`; `sent_* - consumed_*` is in flight; `retained`
holds exactly the frames in flight to a local task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heronpy.proto import frame_pb2
from heronpy.wire.frames import CREDIT, LINK_HEADER, Frame

_pack_header = LINK_HEADER.pack

#: transmit(header, data) -> False when the peer cannot be reached
Transmit = Callable[[bytes, bytes], bool]


class Source:
    """The inward side of a link: what a peer sent to us, and the credit we return.

    `absorbed` is called when a frame has found its place; credit goes back each quarter window.
    """

    __slots__ = (
        "name", "task", "epoch", "window", "seq", "received_bytes", "received_tuples", "absorbed_bytes",
        "absorbed_tuples", "absorbed_frames", "reported_bytes", "granted", "gaps", "stale_frames", "reply",
    )  # fmt: skip

    def __init__(self, name: str, task: int, epoch: int, window: int, reply: Callable[[bytes], None]) -> None:
        self.name = name
        self.task = task
        self.epoch = epoch
        self.window = window
        self.seq = 0
        self.received_bytes = self.received_tuples = 0
        self.absorbed_bytes = self.absorbed_tuples = self.absorbed_frames = 0
        self.reported_bytes = self.granted = 0
        self.gaps = self.stale_frames = 0
        self.reply = reply

    def accept(self, epoch: int, seq: int) -> bool:
        """Check a frame's header; a stale epoch is refused, a gap is counted."""
        if epoch != self.epoch:
            self.stale_frames += 1
            return False
        if seq != self.seq + 1:
            self.gaps += max(1, seq - self.seq - 1)
        self.seq = seq
        return True

    def absorbed(self, size: int, tuples: int) -> None:
        """A data frame of this peer has left our hands."""
        self.absorbed_bytes += size
        self.absorbed_tuples += tuples
        self.absorbed_frames += 1
        if (self.absorbed_bytes - self.reported_bytes) * 4 >= self.window:
            self.grant()

    def grant(self) -> None:
        """Report the totals and grant the window beyond them."""
        self.granted = max(self.granted, self.absorbed_bytes + self.window)
        self.reported_bytes = self.absorbed_bytes
        credit = Frame(
            kind=CREDIT,
            granted_bytes=self.granted,
            consumed_bytes=self.absorbed_bytes,
            consumed_tuples=self.absorbed_tuples,
            consumed_frames=self.absorbed_frames,
        )
        self.reply(credit.SerializeToString())


@dataclass(slots=True)
class Waiting:
    """A data frame on its way through: its bytes, and whom to credit once it is gone."""

    data: bytes
    tuples: int
    dest_task: int
    tracked: bool
    creditor: Source | None


class Link:
    """The outward side: frames to one local task or one peer stream manager."""

    __slots__ = (
        "name", "task", "epoch", "seq", "queue", "queued_bytes", "queued_tuples", "sent_bytes", "sent_tuples",
        "sent_frames", "granted_bytes", "granted_tuples", "consumed_bytes", "consumed_tuples", "consumed_frames",
        "retained", "retain", "open", "transmit", "total_tuples", "total_bytes",
    )  # fmt: skip

    def __init__(self, name: str, task: int, transmit: Transmit, retain: bool) -> None:
        self.name = name
        self.task = task
        self.transmit = transmit
        #: Frames are kept until consumed, so that an orderly restart of a task loses nothing.
        self.retain = retain
        self.queue: deque[Waiting] = deque()
        self.queued_bytes = self.queued_tuples = 0
        self.total_tuples = self.total_bytes = 0
        self.open = False
        self._zero(0)

    def _zero(self, epoch: int) -> None:
        self.epoch = epoch
        self.seq = 0
        self.sent_bytes = self.sent_tuples = self.sent_frames = 0
        self.granted_bytes = self.granted_tuples = 0
        self.consumed_bytes = self.consumed_tuples = self.consumed_frames = 0
        self.retained: deque[Waiting] = deque()

    def start(self, epoch: int) -> list[Waiting]:
        """A new incarnation of the peer; returns what was in flight to the old one."""
        lost = list(self.retained)
        self._zero(epoch)
        self.open = True
        return lost

    def close(self) -> list[Waiting]:
        """The peer is gone: what is queued waits for its next incarnation; returns what was in flight."""
        lost = list(self.retained)
        self.retained.clear()
        self.open = False
        return lost

    def put_back(self, frames: list[Waiting]) -> None:
        """Queue frames again, before everything else."""
        for waiting in reversed(frames):
            self.queue.appendleft(waiting)
            self.queued_bytes += len(waiting.data)
            self.queued_tuples += waiting.tuples

    def _can_send(self) -> bool:
        """One frame may overshoot the grant, so a frame larger than the window passes."""
        return self.open and self.sent_bytes < self.granted_bytes and self.sent_tuples < self.granted_tuples

    def send_control(self, data: bytes) -> bool:
        """Send a frame that needs no credit."""
        if not self.open:
            return False
        self.seq += 1
        return self.transmit(_pack_header(self.epoch, self.seq), data)

    def _send(self, waiting: Waiting) -> None:
        data = waiting.data
        self.sent_bytes += len(data)
        self.sent_tuples += waiting.tuples
        self.sent_frames += 1
        self.total_tuples += waiting.tuples
        self.total_bytes += len(data)
        if self.retain:
            waiting.creditor = None
            self.retained.append(waiting)
        self.seq += 1
        self.transmit(_pack_header(self.epoch, self.seq), data)

    def put(self, waiting: Waiting, hold_above: int) -> None:
        """Send or queue a frame. While the queue is past `hold_above` bytes, its sender's credit waits, too."""
        creditor = waiting.creditor
        size, tuples = len(waiting.data), waiting.tuples
        if not self.queue and self._can_send():
            self._send(waiting)
            if creditor is not None:
                creditor.absorbed(size, tuples)
            return
        self.queued_bytes += size
        self.queued_tuples += tuples
        if creditor is not None and self.queued_bytes <= hold_above:
            creditor.absorbed(size, tuples)
            waiting.creditor = None
        self.queue.append(waiting)

    def pump(self) -> bool:
        """Send from the queue as far as the credit goes; True when something was sent."""
        queue = self.queue
        sent = False
        while queue and self._can_send():
            waiting = queue.popleft()
            creditor, size, tuples = waiting.creditor, len(waiting.data), waiting.tuples
            self.queued_bytes -= size
            self.queued_tuples -= tuples
            self._send(waiting)
            if creditor is not None:
                creditor.absorbed(size, tuples)
            sent = True
        return sent

    def credit(self, frame: frame_pb2.Frame) -> None:
        """Take a CREDIT of the peer."""
        self.granted_bytes = max(self.granted_bytes, frame.granted_bytes)
        # Peers that count bytes only grant any number of tuples.
        self.granted_tuples = max(self.granted_tuples, frame.granted_tuples or 1 << 62)
        self.consumed(frame)

    def consumed(self, frame: frame_pb2.Frame) -> None:
        """Take the totals of a CREDIT or LEAVE; consumed frames are let go."""
        if self.retain:
            for _ in range(min(frame.consumed_frames - self.consumed_frames, len(self.retained))):
                self.retained.popleft()
        self.consumed_bytes = max(self.consumed_bytes, frame.consumed_bytes)
        self.consumed_tuples = max(self.consumed_tuples, frame.consumed_tuples)
        self.consumed_frames = max(self.consumed_frames, frame.consumed_frames)

    def in_flight(self) -> int:
        """Tuples sent that the peer has not reported as consumed."""
        return self.sent_tuples - self.consumed_tuples

    def top_task(self) -> tuple[int, int]:
        """(destination task, bytes) that fills most of the queue."""
        per_task: dict[int, int] = {}
        for waiting in self.queue:
            per_task[waiting.dest_task] = per_task.get(waiting.dest_task, 0) + len(waiting.data)
        return max(per_task.items(), key=lambda item: (item[1], -item[0]), default=(self.task, 0))


def skip_bytes(skip: int) -> bytes:
    """`Frame.skip` as bytes to append to a serialized frame (protobuf: the last value wins)."""
    return Frame(skip=skip).SerializeToString() if skip else b""


def parse_frame(data: bytes, into: Any) -> bool:
    """Parse into a reused message; False when the bytes are no frame."""
    try:
        into.ParseFromString(data)
    except Exception:
        return False
    return True
