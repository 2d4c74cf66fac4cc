"""ZeroMQ sockets on an asyncio loop, without zmq.asyncio.

zmq.asyncio costs about 25 us per message and hides its wake-ups. Here the loop watches the socket's file descriptor,
which is *edge-triggered*: the socket must be drained until EAGAIN. Any send or receive can also swallow the edge, so
code that uses the socket outside `_drain` calls `rearm()`. Draining stops after a budget of messages and continues in
the next turn of the loop, so that timers and other sockets are never starved.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import zmq

if TYPE_CHECKING:
    import asyncio

#: ZeroMQ disconnects a silent peer after this time, without reporting it.
HEARTBEAT_INTERVAL_MS = 1000
HEARTBEAT_TIMEOUT_MS = 3000
#: Heartbeat interval for connections to a process with many peers. Each ping wakes the process, and other messages
#: arrive as often.
RARE_HEARTBEAT_MS = 3000
#: A peer that has not finished its handshake after this time is disconnected; ZeroMQ's own default is 30 s.
HANDSHAKE_MS = 2000
#: As plain numbers, because operators of enumerations take longer than the system call.
_EVENTS, _POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)
_NOW, _MORE = int(zmq.DONTWAIT), int(zmq.DONTWAIT | zmq.SNDMORE)
#: Event and value, in the first part of a monitor's message.
_EVENT = struct.Struct("=hi")
CONTROL_HWM = 1000
CONTROL_MESSAGE_MAX_BYTES = 16 << 20


def configure(
    sock: zmq.Socket[bytes],
    *,
    hwm: int = CONTROL_HWM,
    message_max_bytes: int = CONTROL_MESSAGE_MAX_BYTES,
    identity: bytes | None = None,
    heartbeat: bool = True,
    heartbeat_ms: int = HEARTBEAT_INTERVAL_MS,
) -> zmq.Socket[bytes]:
    """Set the options that all sockets of heronpy share; returns the socket.

    `heartbeat` is for the connecting side of TCP links; for ipc the kernel reports a dead peer immediately. A silent
    peer is disconnected after HEARTBEAT_TIMEOUT_MS, or at most `heartbeat_ms` later.
    """
    sock.setsockopt(zmq.LINGER, 0)
    sock.setsockopt(zmq.SNDHWM, hwm)
    sock.setsockopt(zmq.RCVHWM, hwm)
    sock.setsockopt(zmq.MAXMSGSIZE, message_max_bytes)
    sock.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    sock.setsockopt(zmq.RECONNECT_IVL, 10)
    sock.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
    if heartbeat:
        sock.setsockopt(zmq.HEARTBEAT_IVL, heartbeat_ms)
        sock.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        # The other side, which does not ping, drops a connection after three missing pings.
        sock.setsockopt(zmq.HEARTBEAT_TTL, 3 * heartbeat_ms)
    if identity is not None:
        sock.setsockopt(zmq.IDENTITY, identity)
    return sock


def send_the_rest() -> None:
    """Wait until closed sockets have sent their lingering messages; call this when a process no longer needs ZeroMQ."""
    zmq.Context.instance().term()


def fd_of(sock: zmq.Socket[bytes]) -> int:
    """The descriptor that becomes readable, edge-triggered, when the socket has events."""
    return int(sock.getsockopt(zmq.FD))


def readable(sock: zmq.Socket[bytes]) -> bool:
    """Whether a message can be received now; costs less than half as much as a failed receive (EAGAIN)."""
    return bool(sock.getsockopt(_EVENTS) & _POLLIN)  # type: ignore[operator]


def event_of(parts: list[bytes]) -> tuple[int, int]:
    """The event in a monitor's message, and its value. `zmq.utils.monitor` does the same, but imports asyncio."""
    event, value = _EVENT.unpack(parts[0])
    return event, value


def receive(sock: zmq.Socket[bytes]) -> list[bytes]:
    """The parts of the next message; raises zmq.Again if there is none. Cheaper than `recv_multipart`."""
    part = sock.recv(_NOW, False)
    parts = [part.bytes]
    while part.more:
        part = sock.recv(_NOW, False)
        parts.append(part.bytes)
    return parts


def send(sock: zmq.Socket[bytes], parts: list[bytes]) -> None:
    """Send a message without waiting; raises the same errors as `send_multipart`, in less than half the time."""
    for part in parts[:-1]:
        sock.send(part, _MORE)
    sock.send(parts[-1], _NOW)


class LoopSocket:
    """Passes the messages of a ZeroMQ socket to `on_message(parts)`, from the running asyncio loop.

    `pause_s` is for messages that can wait: after a message, the socket is not read for this time, so that many
    simultaneous senders wake the loop only twice. If `users` is set, the last part does not come from the sender: it is
    empty, or the identity that an `Authenticator` determined when the sender connected.
    """

    def __init__(
        self,
        sock: zmq.Socket[bytes],
        on_message: Callable[[list[bytes]], None],
        *,
        budget: int = 64,
        pause_s: float = 0.0,
        users: bool = False,
    ) -> None:
        import asyncio  # imported here, because a blocking client has no loop

        self.sock = sock
        self._recv: Callable[[], list[bytes]] = self._recv_with_user if users else partial(receive, sock)
        self._pause_s = pause_s
        self._resume_timer: asyncio.TimerHandle | None = None
        self._on_message = on_message
        self._budget = budget
        self._loop = asyncio.get_running_loop()
        self._fd = fd_of(sock)
        self._scheduled = False
        self._draining = False
        self._closed = False
        self._loop.add_reader(self._fd, self._drain)
        self.rearm()

    def rearm(self) -> None:
        """Check the socket again in the loop's next iteration; call this after any send."""
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        self._draining = True
        try:
            received = self._receive_all()
            if received >= self._budget:
                self.rearm()
            elif received and self._pause_s:
                self._pause()
        except BaseException:
            # The socket is not drained, so its descriptor would never become readable again.
            self.rearm()
            raise
        finally:
            self._draining = False

    def _receive_all(self) -> int:
        """Pass on the queued messages, up to the budget; returns the number of messages passed on."""
        recv = self._recv
        for received in range(self._budget):
            try:
                parts = recv()
            except zmq.Again:
                return received
            except zmq.ZMQError as error:
                if error.errno in (zmq.ENOTSOCK, zmq.ETERM):
                    return received
                raise
            self._on_message(parts)
            if self._closed:
                return 0
            # Most messages come alone or in pairs.
            if received < 2 and not readable(self.sock):
                return received + 1
        return self._budget

    def _recv_with_user(self) -> list[bytes]:
        frames = self.sock.recv_multipart(zmq.DONTWAIT, copy=False)
        try:
            user = frames[-1].get("User-Id")
        except zmq.ZMQError:
            user = ""  # the sender was not authenticated
        return [*(frame.bytes for frame in frames), user.encode() if isinstance(user, str) else b""]

    def _pause(self) -> None:
        if self._resume_timer is None:
            self._loop.remove_reader(self._fd)
            self._resume_timer = self._loop.call_later(self._pause_s, self._resume)

    def _resume(self) -> None:
        self._resume_timer = None
        self._loop.add_reader(self._fd, self._drain)
        self.rearm()

    def send(self, parts: list[bytes]) -> bool:
        """Send without blocking; returns False if the socket cannot accept the message now (full, or no such peer)."""
        try:
            send(self.sock, parts)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return False
            raise
        finally:
            # A failed send may have swallowed the edge, too. `_drain` itself checks for new events at its end.
            if not self._draining:
                self.rearm()
        return True

    def close(self, linger_ms: int = 0) -> None:
        """Stop watching and close the socket; ZeroMQ continues to send for `linger_ms`. Idempotent."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._fd)
            if self._resume_timer is not None:
                self._resume_timer.cancel()
            self.sock.close(linger=linger_ms)
