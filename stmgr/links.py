"""Links of a stream manager: the byte-counted queue and the credit of one peer (decision D3). Pure.

ZeroMQ hides its queues, so frames without credit from the peer wait here, where they are counted. A link records
the frames that it sent and that the peer consumed, keeps unconsumed frames, and decides when the sender of a
frame gets its credit back. Pure: `transmit` is given.

The credit between two stream managers always flows: one slow task must not hold up the frames of others
behind its own, or two containers could wait for each other forever. A stream manager whose queue for a
task is too full asks its peers to `hold` the frames of that task instead.

Invariants: `queued_bytes` and `queued_tuples` are the sums over `queue` and `held`; `retained` holds
exactly the frames in flight, and `sent_tuples - consumed_tuples` is the sum of their tuples.

Credit means that a stream manager has space, not that frames are done: frames that it still holds are lost with it. So
each CREDIT also has the number of settled tuples: processed by a task, taken over by another stream manager, or counted
as discarded. When a stream manager dies, its senders count the unsettled tuples as lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from google.protobuf.message import DecodeError
from msgspec import Struct

from heronpy.common.errors import RemoteWireError
from heronpy.proto import frame_pb2
from heronpy.wire.frames import COUNT_MAX, CREDIT, LINK_HEADER, Frame, gap, header_and_frame

_pack_header = LINK_HEADER.pack

#: transmit(header, data) -> False if the peer cannot be reached
Transmit = Callable[[bytes, bytes], bool]
#: Maximum number of bytes of control frames that wait for a peer's link to open.
KEPT_MAX_BYTES = 4 << 20
#: The window of a sender begins at this size and does not shrink below it.
WINDOW_MIN_BYTES, WINDOW_START_BYTES = 1024, 4 << 10
#: A peer grants at most this number of bytes beyond what was sent to it; ZeroMQ would hide unread frames.
GRANT_MAX_BYTES = 1 << 30

#: Number of probes without a reply, one per heartbeat, after which the connection counts as broken in one direction.
SILENT_PROBES = 5
#: A CREDIT with this flag, from the sender of a link, requests a CREDIT in return.
_PROBE = Frame(kind=CREDIT).SerializeToString()


class Source:
    """The inward side of a link: frames from a peer, and the credit for them.

    `absorbed` is called when a frame has been passed on; credit is returned each quarter window.
    """

    __slots__ = (
        "absorbed_bytes",
        "absorbed_frames",
        "absorbed_tuples",
        "epoch",
        "gaps",
        "granted",
        "grown_bytes",
        "holding",
        "name",
        "received_bytes",
        "received_tuples",
        "reply",
        "reported_bytes",
        "seq",
        "settled_reported",
        "settled_tuples",
        "stale_frames",
        "steady_until",
        "task",
        "window",
        "window_max",
    )  # fmt: skip

    def __init__(self, name: str, task: int, epoch: int, window: int, reply: Callable[[bytes], object]) -> None:
        self.name = name
        self.task = task
        self.epoch = epoch
        self.window_max = window
        #: The window grows to this size while arriving frames need not wait.
        self.window = min(window, WINDOW_START_BYTES) if task else window
        #: The time until which the window does not grow.
        self.steady_until = 0.0
        self.grown_bytes = 0
        self.seq = 0
        self.received_bytes = self.received_tuples = 0
        self.absorbed_bytes = self.absorbed_tuples = self.absorbed_frames = 0
        self.reported_bytes = self.granted = 0
        self.settled_tuples = self.settled_reported = 0
        self.gaps = self.stale_frames = 0
        self.reply = reply
        #: Tasks whose frames this peer was requested to hold.
        self.holding: set[int] = set()

    def accept(self, epoch: int, seq: int) -> bool:
        """Check a frame's header; refuse a stale epoch, and count a gap."""
        if epoch != self.epoch:
            self.stale_frames += 1
            return False
        if seq != self.seq + 1:
            self.gaps += gap(self.seq, seq)
        self.seq = seq
        return True

    def mute(self) -> None:
        """End the link: its frames that still wait here earn no credit."""
        self.reply = _no_reply

    def absorbed(self, size: int, tuples: int) -> None:
        """Record that a data frame from this peer has been passed on."""
        self.absorbed_bytes += size
        self.absorbed_tuples += tuples
        self.absorbed_frames += 1
        if (self.absorbed_bytes - self.reported_bytes) * 4 >= self.window:
            self.grant()

    def shrink(self, window: int, until: float) -> None:
        """Limit the data in transit to this number of bytes, or one frame, at least until this time."""
        self.window = max(WINDOW_MIN_BYTES, min(self.window, window))
        self.steady_until = until

    def grow(self, now: float) -> None:
        """Allow a quarter more bytes in transit, because the sender need not wait."""
        sent, self.grown_bytes = self.received_bytes - self.grown_bytes, self.received_bytes
        if now >= self.steady_until:
            self.window = min(self.window_max, self.window + min(sent, self.window) // 4)

    def unreported(self) -> bool:
        """Return whether the sender lacks the latest totals."""
        return self.absorbed_bytes != self.reported_bytes or self.settled_tuples != self.settled_reported

    def grant(self) -> None:
        """Report the totals and grant the window beyond them."""
        self.granted = max(self.granted, self.absorbed_bytes + self.window)
        self.reported_bytes, self.settled_reported = self.absorbed_bytes, self.settled_tuples
        credit = Frame(
            kind=CREDIT,
            granted_bytes=self.granted,
            consumed_bytes=self.absorbed_bytes,
            consumed_tuples=self.absorbed_tuples,
            consumed_frames=self.absorbed_frames,
            settled_tuples=self.settled_tuples,
        )
        self.reply(credit.SerializeToString())


def _no_reply(data: bytes) -> None:
    """Do nothing; the reply function of a closed link."""


class Waiting(Struct):
    """A data frame in transit: its bytes, and the source that gets credit when the frame has left."""

    data: bytes
    tuples: int
    dest_task: int
    tracked: bool
    creditor: Source | None
    #: The attempt of the sender's region; 0 outside EFFECTIVELY_ONCE.
    attempt: int = 0
    #: The source that counts settled tuples; None if it resends lost tuples anyway.
    origin: Source | None = None
    #: For a frame with a traced tuple: its arrival, and the clock for its departure, in nanoseconds; see `stamped`.
    arrived_ns: int = 0
    clock: Callable[[], int] | None = None

    def stamped(self) -> bytes:
        """Return the bytes of the departing frame with both times; two parts of a repeated field are concatenated."""
        times = (self.arrived_ns, self.clock() if self.clock is not None else self.arrived_ns)
        return self.data + Frame(trace_hops=times).SerializeToString()

    def settled(self, tuples: int) -> None:
        """Record that this number of the frame's tuples is settled."""
        if self.origin is not None:
            self.origin.settled_tuples += tuples


class Link:
    """The outward side: frames to one local task or one peer stream manager."""

    __slots__ = (
        "_kept",
        "_kept_bytes",
        "checked",
        "consumed_bytes",
        "consumed_frames",
        "consumed_tuples",
        "epoch",
        "granted_bytes",
        "granted_tuples",
        "held",
        "high",
        "low",
        "name",
        "open",
        "owing",
        "pace",
        "probed",
        "queue",
        "queued_bytes",
        "queued_tuples",
        "replies",
        "retained",
        "sent_bytes",
        "sent_frames",
        "sent_tuples",
        "seq",
        "settled_tuples",
        "task",
        "total_bytes",
        "total_came",
        "total_consumed",
        "total_frames",
        "total_tuples",
        "transmit",
        "unanswered",
        "wanted",
    )  # fmt: skip

    def __init__(self, name: str, task: int, transmit: Transmit, high: int = 1 << 62, low: int = 1 << 62) -> None:
        self.name = name
        #: The task at the other end; 0 for a peer.
        self.task = task
        self.transmit = transmit
        #: Called when a frame waits while there is no link.
        self.wanted: Callable[[], None] = _nobody
        #: True if frames carry a checksum: frames to peers do; the kernel only copies frames to tasks.
        self.checked = not task
        self.queue: deque[Waiting] = deque()
        #: Frames for tasks for which the peer currently has no space.
        self.held: dict[int, deque[Waiting]] = {}
        self.queued_bytes = self.queued_tuples = 0
        #: For a task: frames of its queue that may have a creditor, oldest first.
        self.owing: deque[Waiting] = deque()
        #: For a task: tuples per second that it processes while tuples wait; 0 if unknown.
        self.pace = 0.0
        #: Marks of the queue in bytes: above the first the other end is full, below the second it is no longer full.
        self.high, self.low = high, low
        #: Over all incarnations of the link.
        self.total_tuples = self.total_bytes = self.total_consumed = self.total_frames = 0
        #: Number of tuples for the other end that arrived here, sent or waiting.
        self.total_came = 0
        self.open = False
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._zero(0)

    def _zero(self, epoch: int) -> None:
        self.epoch = epoch
        self.seq = 0
        #: Number of replies, number of probes since the last reply, and what had been sent at the time of a probe.
        self.replies = self.unanswered = self.probed = 0
        self.sent_bytes = self.sent_tuples = self.sent_frames = 0
        self.granted_bytes = self.granted_tuples = 0
        self.consumed_bytes = self.consumed_tuples = self.consumed_frames = 0
        #: For a peer: the number of tuples that it has settled.
        self.settled_tuples = 0
        #: Frames in flight: after an orderly restart they are sent again, otherwise their roots fail immediately.
        self.retained: deque[Waiting] = deque()

    def start(self, epoch: int) -> list[Waiting]:
        """Start a link to a new incarnation of the peer; return the frames in flight to the old incarnation."""
        lost = self.close()
        for task in list(self.held):
            self.release(task)
        self._zero(epoch)
        self.open = True
        return lost

    def close(self) -> list[Waiting]:
        """Close the link: queued frames wait for the peer's next incarnation; return the frames in flight."""
        lost = list(self.retained)
        self.retained.clear()
        self.sent_tuples, self.sent_bytes = self.consumed_tuples, self.consumed_bytes
        self.open = False
        self.unanswered = 0
        return lost

    def put_back(self, frames: list[Waiting], skip: int) -> None:
        """Put frames at the front of the queue; the first `skip` tuples of the first frame are done."""
        if frames and skip:
            first = frames[0]
            skip = min(skip, Frame.FromString(first.data).count)
            rest = Frame.FromString(first.data).count - skip
            self.total_consumed += first.tuples - rest
            first.settled(first.tuples - rest)
            first.data += skip_bytes(skip)
            first.tuples = rest
        for waiting in reversed(frames):
            self.queue.appendleft(waiting)
            self.queued_bytes += len(waiting.data)
            self.queued_tuples += waiting.tuples

    def _can_send(self) -> bool:
        """Return whether credit is left. One frame may exceed it, so that a frame larger than the window passes."""
        return self.open and self.sent_bytes < self.granted_bytes and self.sent_tuples < self.granted_tuples

    def send_control(self, data: bytes) -> bool:
        """Send a frame that needs no credit; return False if it is lost.

        For a peer it waits until the link opens: an ack may be the first message to this peer.
        """
        if not self.open:
            return not self.task and self._keep(data)
        self.seq += 1
        return self.transmit(_pack_header(self.epoch, self.seq, data if self.checked else None), data)

    def _keep(self, data: bytes) -> bool:
        if self._kept_bytes + len(data) > KEPT_MAX_BYTES:
            return False
        self._kept.append(data)
        self._kept_bytes += len(data)
        self.wanted()
        return True

    def heard(self, seq: int) -> bool:
        """Record a reply from the peer; return False if an earlier reply is missing."""
        self.replies += 1
        self.unanswered = 0
        return seq == self.replies

    def probe(self) -> bool:
        """Request a reply if a frame may have been lost; return False if the peer is silent for too long.

        The loss of a frame is detected when a later frame arrives; without a probe, the loss of the last frame would
        never be detected.
        """
        unsettled = self.sent_frames != self.consumed_frames or self.queue or self.held or not self.granted_bytes
        if self.open and (unsettled or self.seq != self.probed):
            self.unanswered += 1
            self.send_control(_PROBE)
            self.probed = self.seq
        return self.unanswered <= SILENT_PROBES

    def send_kept(self) -> None:
        """Send the control frames that waited for the link, which has opened."""
        while self._kept:
            self.send_control(self._kept.popleft())
        self._kept_bytes = 0

    def _send(self, waiting: Waiting) -> bool:
        """Send a data frame; return False if the peer has just died, so that the frame waits for its successor."""
        data = waiting.data if not waiting.arrived_ns else waiting.stamped()
        self.seq += 1
        if not self.transmit(_pack_header(self.epoch, self.seq, data if self.checked else None), data):
            self.open = False
            return False
        self.sent_bytes += len(data)
        self.sent_tuples += waiting.tuples
        self.sent_frames += 1
        self.total_frames += 1
        self.total_tuples += waiting.tuples
        self.total_bytes += len(data)
        waiting.creditor = None
        if waiting.arrived_ns:
            waiting.data, waiting.arrived_ns = data, 0
        self.retained.append(waiting)
        return True

    def put(self, waiting: Waiting, hold_above: int) -> None:
        """Send or queue a frame. While the queue is past `hold_above` bytes, the sender's credit also waits."""
        creditor = waiting.creditor
        size, tuples = len(waiting.data), waiting.tuples
        self.total_came += tuples
        queue = self.queue
        if self.held and waiting.dest_task in self.held:
            queue = self.held[waiting.dest_task]
        elif not queue and self._can_send() and self._send(waiting):
            if creditor is not None:
                creditor.absorbed(size, tuples)
            return
        self.queued_bytes += size
        self.queued_tuples += tuples
        if creditor is not None and self.queued_bytes <= hold_above:
            creditor.absorbed(size, tuples)
            waiting.creditor = None
        elif creditor is not None and self.task:
            self.owing.append(waiting)
        queue.append(waiting)
        if not self.open:
            self.wanted()

    def free(self, size: int) -> int:
        """Return the credit of waiting frames, up to about this size in bytes; return the size."""
        freed = 0
        while freed < size and (settled := self._settle_oldest()):
            freed += settled
        return freed

    def _settle_oldest(self) -> int:
        """Return the credit of the oldest frame with unreturned credit; return the frame's size, or 0 if there is no
        such frame.

        A frame that leaves a full queue returns the credit of the frame that has waited longest, not only its own.
        Otherwise senders would get no credit until all frames that arrived before the queue was full have left.
        """
        while self.owing:
            oldest = self.owing.popleft()
            creditor, oldest.creditor = oldest.creditor, None
            if creditor is not None:
                creditor.absorbed(len(oldest.data), oldest.tuples)
                return len(oldest.data)
        return 0

    def hold(self, task: int) -> None:
        """Hold back the frames for a task until `release`."""
        if task not in self.held:
            self.held[task] = deque(waiting for waiting in self.queue if waiting.dest_task == task)
            if self.held[task]:
                self.queue = deque(waiting for waiting in self.queue if waiting.dest_task != task)

    def release(self, task: int) -> None:
        self.queue.extend(self.held.pop(task, ()))

    def discard(self, unwanted: Callable[[Waiting], bool]) -> list[Waiting]:
        """Remove frames from the queues and return them."""
        gone: list[Waiting] = []
        for queue in (self.queue, *self.held.values()):
            found = [waiting for waiting in queue if unwanted(waiting)]
            if found:
                kept = [waiting for waiting in queue if not unwanted(waiting)]
                queue.clear()
                queue.extend(kept)
                gone += found
        self.queued_bytes -= sum(len(waiting.data) for waiting in gone)
        self.queued_tuples -= sum(waiting.tuples for waiting in gone)
        return gone

    @property
    def is_full(self) -> bool:
        """True if more bytes wait than the mark allows; one frame always fits."""
        return self.queued_bytes > self.high and (len(self.queue) > 1 or bool(self.held))

    @property
    def is_empty(self) -> bool:
        """True if nothing waits, neither data frames nor control frames."""
        return not self.queue and not self.held and not self._kept

    def waiting(self) -> list[Waiting]:
        """Return all waiting frames, in order for each task."""
        return [*self.queue, *(waiting for held in self.held.values() for waiting in held)]

    def pump(self) -> bool:
        """Send frames from the queue while there is credit; return whether something was sent."""
        queue = self.queue
        sent = False
        while queue and self._can_send():
            waiting = queue[0]
            creditor, size, tuples = waiting.creditor, len(waiting.data), waiting.tuples
            if not self._send(waiting):
                break
            queue.popleft()
            self.queued_bytes -= size
            self.queued_tuples -= tuples
            if creditor is not None:
                creditor.absorbed(size, tuples)
            elif self.owing:
                self._settle_oldest()
            while self.owing and self.owing[0].creditor is None:
                self.owing.popleft()  # it has left, so it must not be kept in memory
            sent = True
        return sent

    def credit(self, frame: frame_pb2.Frame) -> None:
        """Apply a CREDIT from the peer."""
        # These are claims of the peer: it grants what it has space for, and cannot have settled tuples that were not
        # sent.
        self.granted_bytes = max(self.granted_bytes, min(frame.granted_bytes, self.sent_bytes + GRANT_MAX_BYTES))
        # Peers that count only bytes grant any number of tuples.
        self.granted_tuples = max(self.granted_tuples, frame.granted_tuples or 1 << 62)
        self.settled_tuples = max(self.settled_tuples, min(frame.settled_tuples, self.sent_tuples))
        self.consumed(frame)

    def consumed(self, frame: frame_pb2.Frame) -> None:
        """Apply the totals of a CREDIT or LEAVE; drop consumed frames."""
        retained = self.retained
        frames = frame.consumed_frames - self.consumed_frames
        if frames <= 0:
            return
        if frames > len(retained):
            # A peer cannot have consumed more than was sent, so the number of sent tuples is the limit.
            frames = len(retained)
        tuples = 0
        for _ in range(frames):
            waiting = retained.popleft()
            tuples += waiting.tuples
            waiting.settled(waiting.tuples)
            self.consumed_bytes += len(waiting.data)
        self.consumed_frames += frames
        self.consumed_tuples += tuples
        self.total_consumed += tuples

    def take_unsettled(self) -> int:
        """Return the number of tuples that a dead peer had taken and still held."""
        tuples = max(0, self.consumed_tuples - self.settled_tuples)
        self.settled_tuples = self.consumed_tuples
        return tuples

    def in_flight(self) -> int:
        """The number of sent tuples that the peer has not reported as consumed."""
        return self.sent_tuples - self.consumed_tuples

    def top_task(self) -> tuple[int, int]:
        """Return (destination task, bytes) for the task with the most bytes in the queue."""
        per_task: dict[int, int] = {}
        for waiting in self.waiting():
            per_task[waiting.dest_task] = per_task.get(waiting.dest_task, 0) + len(waiting.data)
        return max(per_task.items(), key=lambda item: (item[1], -item[0]), default=(self.task, 0))


def _nobody() -> None:
    """Do nothing; the default of `Link.wanted`, if the peer opens the link."""


def skip_bytes(skip: int) -> bytes:
    """Return `Frame.skip` as bytes to append to a serialized frame (protobuf: the last value wins)."""
    return Frame(skip=skip).SerializeToString()


def open_frame(parts: list[bytes]) -> tuple[int, int, frame_pb2.Frame, bytes] | None:
    """Return the epoch, sequence number, frame and frame bytes in a message without identity; None if it is incomplete.

    A message that is foreign, of another version or damaged is never parsed. Each frame is a new message object,
    because a reused object keeps the memory of all its earlier content (upb's arena).
    """
    try:
        header, data = header_and_frame(parts)
        epoch, seq = LINK_HEADER.unpack(header, data)
        frame = Frame.FromString(data)
        return (epoch, seq, frame, data) if frame.count <= COUNT_MAX else None
    except (ValueError, RemoteWireError, DecodeError):
        return None
