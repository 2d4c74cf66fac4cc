"""The data link between a task and its stream manager: credit in both directions, epoch and sequence numbers.

Outward, a frame is sent while the number of sent bytes is below the stream manager's grant (one frame may
overshoot, so that a frame larger than the window passes); other frames wait in the outbox. Inward, this side grants the
stream manager absolute totals of bytes and tuples. It returns credit each quarter window, or when the task has been
idle for a moment.

Invariants: `sent_bytes - credited_bytes` are the bytes that the stream manager has not consumed yet; `received_bytes -
consumed_bytes` are the bytes that wait here.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq
from google.protobuf.message import DecodeError

from heronpy.common.errors import RemoteWireError
from heronpy.net.transport import connect
from heronpy.net.zsock import configure, fd_of, readable
from heronpy.proto import frame_pb2
from heronpy.task.tuples import TracedFrame
from heronpy.wire.frames import BARRIER, CREDIT, DATA, LINK_HEADER, LINK_OPEN, Frame, gap, header_and_frame, message_of

_pack_header = LINK_HEADER.pack
_unpack_header = LINK_HEADER.unpack
#: A series of short waits checks for frames only after this total number of seconds: each check is a system call.
LOOK_EVERY_S = 0.001
#: Frames that use up credit.
_CREDITED = (DATA, BARRIER)


class DataLink:
    """The link of a task, across all incarnations; `open` starts a new incarnation."""

    def __init__(
        self,
        task_id: int,
        identity: bytes,
        endpoint: str,
        frame_max_bytes: int,
        wake_fd: int,
        context: zmq.Context[Any] | None = None,
    ) -> None:
        self._task_id = task_id
        self._identity = identity
        self._endpoint = endpoint
        self._frame_max_bytes = frame_max_bytes
        self._wake_fd = wake_fd
        self._context = context or zmq.Context.instance()
        self.sock: zmq.Socket[bytes] | None = None
        self.fd = -1
        self.epoch = 0
        self._send_seq = 0
        self._receive_seq = 0
        # outward
        self.sent_bytes = self.granted_out = self.credited_bytes = self.credited_tuples = self.sent_tuples = 0
        self.outbox: deque[tuple[bytes, int]] = deque()
        self.outbox_bytes = self.outbox_tuples = 0
        #: Number of tuples that were sent over an earlier incarnation and never credited.
        self.lost_tuples = 0
        #: Number of tuples that the stream manager has settled, and the process of the stream manager.
        self.settled_tuples = self._stmgr = 0
        #: Number of frames that the stream manager reports as sent but that never arrived.
        self.gaps = 0
        self.stale_frames = 0
        # inward
        self.received_bytes = 0
        self.consumed_bytes = self.consumed_tuples = self.consumed_frames = 0
        self.window_bytes = self.window_tuples = 0
        #: Tuples per second that the task processes while tuples wait; 0: unknown.
        self.pace = 0.0
        self._granted_bytes = self._reported_bytes = self._reported_tuples = self._granted_tuples = 0
        self.received_frames_bytes = self.sent_frames = self.received_frames = 0
        #: Over all incarnations: tuples of the frames sent, frames and tuples consumed, frames of every kind.
        self.total_sent_tuples = self.total_consumed_frames = self.total_consumed_tuples = 0
        self.all_frames_sent = self.all_frames_received = 0
        #: True if nothing is left to receive, and the descriptor becomes readable when something arrives.
        self._settled = False
        #: True if the last wait timed out without a readable descriptor, and the socket was not used since then.
        self._quiet = False
        #: True if the last wait ended because there may be a frame.
        self._came = False
        #: Total requested length, since the last check of the socket, of the waits that frames do not end.
        self._unseen_s = 0.0

    # ---- incarnations -------------------------------------------------------------------------

    def open(self, epoch: int, window_bytes: int, window_tuples: int, stmgr: int = 0) -> None:
        """Start a new incarnation; frames in the outbox are sent over it.

        If the stream manager process is a new one, frames that its predecessor still held are lost.
        """
        died = stmgr != self._stmgr
        self._stmgr = stmgr
        self.lost_tuples += self.sent_tuples - (self.settled_tuples if died else self.credited_tuples)
        if self.sock is not None:
            self.sock.close(linger=0)
        sock = configure(
            self._context.socket(zmq.DEALER),
            hwm=0,
            message_max_bytes=self._frame_max_bytes + LINK_HEADER.size,
            identity=self._identity,
            heartbeat=False,
        )
        connect(sock, self._endpoint)
        self.sock, self.fd, self.epoch = sock, fd_of(sock), epoch
        self._settled = self._quiet = self._came = False
        self._send_seq = self._receive_seq = 0
        self.sent_bytes = self.granted_out = self.credited_bytes = self.credited_tuples = self.sent_tuples = 0
        self.settled_tuples = 0
        self.received_frames_bytes += self.received_bytes
        self.received_bytes = 0
        self.consumed_bytes = self.consumed_tuples = self.consumed_frames = 0
        self.window_bytes, self.window_tuples = window_bytes, window_tuples
        self._granted_bytes = self._reported_bytes = self._reported_tuples = self._granted_tuples = 0
        self._transmit(Frame(kind=LINK_OPEN, source_task=self._task_id).SerializeToString())
        self.grant()

    def _transmit(self, data: bytes) -> None:
        assert self.sock is not None
        self._send_seq += 1
        self.all_frames_sent += 1
        self._settled = self._quiet = False  # a send may reset the edge-triggered descriptor
        self.sock.send_multipart(message_of(_pack_header(self.epoch, self._send_seq), data), zmq.DONTWAIT)

    # ---- outward ------------------------------------------------------------------------------

    def send(self, data: bytes, tuples: int) -> None:
        """Send a data frame, or keep it until there is credit."""
        size = len(data)
        if self.sent_bytes < self.granted_out and not self.outbox:
            self.sent_bytes += size
            self.sent_tuples += tuples
            self.total_sent_tuples += tuples
            self.sent_frames += 1
            self._transmit(data)
        else:
            self.outbox.append((data, tuples))
            self.outbox_bytes += size
            self.outbox_tuples += tuples

    def send_control(self, data: bytes) -> None:
        """Send a frame that needs no credit: acks are bounded by the tuples that they acknowledge."""
        if self.sock is not None:
            self._transmit(data)

    def pump(self) -> None:
        """Send frames from the outbox while there is credit."""
        outbox = self.outbox
        while outbox and self.sent_bytes < self.granted_out:
            data, tuples = outbox.popleft()
            self.outbox_bytes -= len(data)
            if type(data) is TracedFrame:
                data = data.left(time.monotonic_ns())
            self.outbox_tuples -= tuples
            self.sent_bytes += len(data)
            self.sent_tuples += tuples
            self.total_sent_tuples += tuples
            self.sent_frames += 1
            self._transmit(data)

    def send_all(self) -> None:
        """Send the whole outbox before the process ends, regardless of credit; the stream manager accepts it."""
        self.granted_out = max(self.granted_out, self.sent_bytes + self.outbox_bytes + 1)
        if self.sock is not None:
            self.pump()

    def withdraw(self, unwanted: Callable[[bytes], bool]) -> None:
        """Drop frames from the outbox; their tuples count as lost."""
        kept: deque[tuple[bytes, int]] = deque()
        for data, tuples in self.outbox:
            if unwanted(data):
                self.outbox_bytes -= len(data)
                self.outbox_tuples -= tuples
                self.lost_tuples += tuples
            else:
                kept.append((data, tuples))
        self.outbox = kept

    def blocked(self) -> bool:
        """Return whether nothing more can be sent now."""
        return self.sent_bytes >= self.granted_out or bool(self.outbox)

    def out_tuples(self) -> int:
        """The number of emitted tuples that the stream manager has not accepted yet."""
        return self.outbox_tuples + self.sent_tuples - self.credited_tuples

    def out_bytes(self) -> int:
        return self.outbox_bytes + self.sent_bytes - self.credited_bytes

    def _credit(self, frame: frame_pb2.Frame) -> None:
        self.granted_out = max(self.granted_out, frame.granted_bytes)
        self.credited_bytes = frame.consumed_bytes
        self.credited_tuples = frame.consumed_tuples
        self.settled_tuples = min(frame.settled_tuples, frame.consumed_tuples)
        self.pump()

    # ---- inward -------------------------------------------------------------------------------

    def receive(self, take: Callable[[frame_pb2.Frame, int], None], budget: int = 64) -> int:
        """Drain the socket without waiting; `take(frame, size)` gets every frame except credits. Returns the number of
        frames."""
        sock = self.sock
        if sock is None or self._quiet:
            self._quiet = False  # the last wait found no frame, so this check is skipped
            return 0
        self._unseen_s = 0.0
        # Almost every sleep is ended by a frame.
        came, self._came = self._came, False
        if not came and not readable(sock):
            self._settled = True
            return 0
        self._settled = False
        count = 0
        while count < budget:
            try:
                header, data = header_and_frame(sock.recv_multipart(zmq.DONTWAIT))
                epoch, seq = _unpack_header(header)
                frame = Frame.FromString(data)
            except zmq.Again:
                self._settled = True
                break
            except (ValueError, RemoteWireError, DecodeError):
                self.stale_frames += 1
                continue
            count += 1
            # Most frames arrive alone. Checked before the frame is taken, which may use the socket.
            if count == 1 and not readable(sock):
                self._settled, budget = True, 1
            if epoch != self.epoch:
                self.stale_frames += 1
                continue
            if seq != self._receive_seq + 1:
                self.gaps += gap(self._receive_seq, seq)
            self._receive_seq = seq
            if frame.kind == CREDIT:
                self._credit(frame)
            else:
                self.received_frames += 1
                if frame.kind in _CREDITED:
                    self.received_bytes += len(data)
                take(frame, len(data))
        self.all_frames_received += count
        return count

    def consumed(self, size: int, tuples: int, before: Callable[[], None] = lambda: None) -> None:
        """Record a processed data frame; if a quarter of the window is unreturned, call `before`, then grant credit."""
        self.consumed_bytes += size
        self.consumed_tuples += tuples
        self.consumed_frames += 1
        self.total_consumed_frames += 1
        self.total_consumed_tuples += tuples
        if (self.consumed_bytes - self._reported_bytes) * 4 >= self.window_bytes or (
            self.consumed_tuples - self._reported_tuples
        ) * 4 >= self.window_tuples:
            before()
            self.grant()

    def unreported(self) -> bool:
        """Return whether the latest consumption has not been reported to the stream manager yet."""
        return self.consumed_bytes != self._reported_bytes

    def grant(self) -> None:
        """Report to the stream manager how much was consumed and how much it may send. Grants never shrink."""
        self._granted_bytes = max(self._granted_bytes, self.consumed_bytes + self.window_bytes)
        self._granted_tuples = max(self._granted_tuples, self.consumed_tuples + self.window_tuples)
        self._reported_bytes, self._reported_tuples = self.consumed_bytes, self.consumed_tuples
        credit = Frame(
            kind=CREDIT,
            source_task=self._task_id,
            granted_bytes=self._granted_bytes,
            granted_tuples=self._granted_tuples,
            consumed_bytes=self.consumed_bytes,
            consumed_tuples=self.consumed_tuples,
            consumed_frames=self.consumed_frames,
            pace=self.pace,
        )
        if self.sock is not None:
            self._transmit(credit.SerializeToString())

    # ---- waiting ------------------------------------------------------------------------------

    def wait(self, timeout_s: float, *, frames: bool = True, also: int = -1) -> bool:
        """Sleep until a frame arrives, the wake descriptor is written to, or the time has passed.

        Without `frames`, a frame does not end the wait, and may be received up to `LOOK_EVERY_S` later. The descriptor
        `also` ends the wait, too; returns whether `also` can be read.

        The socket's descriptor is edge-triggered, so EVENTS is checked before sleeping on it, unless that was done
        since the last use of the socket. select() is used because its timeout has a resolution of microseconds; poll()
        rounds up to milliseconds. The wake descriptor is emptied here: its message may have been read before the byte
        was written, and a byte that stays would keep an idle task awake.
        """
        woken: list[int] = []
        fds = [self._wake_fd] if also < 0 else [self._wake_fd, also]
        if self.sock is None or not frames:
            woken = _sleep_on(fds, timeout_s)
            self._unseen_s += timeout_s
            self._quiet = self._settled and self._unseen_s < LOOK_EVERY_S
        elif self._settled or not readable(self.sock):
            self._settled = True
            woken = _sleep_on([self.fd, *fds], timeout_s)
            self._came = self.fd in woken
            self._quiet = not self._came
        else:
            self._came = True
        if self._wake_fd in woken:
            drain(self._wake_fd)
        return also in woken

    def close(self) -> None:
        """Close after giving ZeroMQ a moment to deliver sent frames."""
        if self.sock is not None:
            self.sock.close(linger=500)
            self.sock = None


def drain(fd: int) -> None:
    """Empty a non-blocking pipe."""
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass


def _sleep_on(fds: list[int], timeout_s: float) -> list[int]:
    if max(fds) < 1024:
        return select.select(fds, [], [], timeout_s)[0]
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return [fd for fd, _ in poller.poll(timeout_s * 1000)]
