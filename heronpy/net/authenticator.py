"""Decides who may connect to the TCP sockets of this process: answers ZeroMQ's ZAP requests (RFC 27).

ZeroMQ sends one request per connection, never per message, and obeys the answer. An `Authenticator` admits only the
client key of its topology and the keys of `users`, and counts all other clients. Each process and context has one
`Authenticator`, because ZeroMQ sends its requests to one fixed endpoint. Close the `Authenticator` before the sockets
that it guards.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import hmac
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import zmq
from zmq.utils import z85

from heronpy.net.curve import Keys
from heronpy.net.zsock import LoopSocket, event_of

log = logging.getLogger("heronpy.net")

_ZAP: Final = "inproc://zeromq.zap.01"
_VERSION: Final = b"1.0"
#: Maximum number of addresses whose refusal is logged. Refusals of further addresses are only counted.
PEERS_MAX: Final = 256
#: Handshakes that fail before a ZAP request: a plain client, another server's key, noise.
_FAILURES: Final = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_EVENTS: Final = _FAILURES | zmq.EVENT_ACCEPTED
#: Errors of failed handshakes in which the peer has closed the connection. This side disconnects silent peers.
_LEFT: Final = frozenset({errno.EPIPE, errno.ECONNRESET})
#: Maximum number of connections without a key at a time; a further connection closes the oldest one.
STRANGERS_MAX: Final = 128
#: A handshake takes some milliseconds; ZeroMQ itself ends it after zsock.HANDSHAKE_MS.
PATIENCE_S: Final = 2.5
#: A client sends about 500 bytes until it is admitted.
SAID_MAX_BYTES: Final = 8192
#: Greeting (64), WELCOME (170) and an ERROR (below 20); an admitted client gets a READY of 60 or more.
GREETED_BYTES: Final = 256
LOOK_S: Final = 0.01
#: ZeroMQ reports within this time that a connection was closed here, unless ZeroMQ itself ended it earlier.
CLAIM_S: Final = 1.0
#: Maximum number of such reports that are still expected.
CLAIMS_MAX: Final = 4096
_RESET: Final = struct.pack("ii", 1, 0)
#: Fields of struct tcp_info: tcpi_bytes_acked and tcpi_bytes_received.
_COUNTS: Final = struct.Struct("=120xQQ")


class Verdict(enum.Enum):
    """The result of `judge` for a connection."""

    WAIT = enum.auto()
    ADMITTED = enum.auto()
    REFUSE = enum.auto()


def judge(age_s: float, told_bytes: int, said_bytes: int) -> Verdict:
    """Judge a connection by its age and by the number of bytes sent to and received from the peer. Pure."""
    if told_bytes > GREETED_BYTES:
        return Verdict.ADMITTED
    return Verdict.REFUSE if age_s > PATIENCE_S or said_bytes > SAID_MAX_BYTES else Verdict.WAIT


class HandshakeLimiter:
    """Limits the number, time and bytes of TCP connections that have not presented the topology's key yet.

    An admitted connection is no longer observed. ZeroMQ reports a connection that was closed by the limiter like any
    other.

    ZeroMQ limits the size of messages, but accepts messages up to that size from strangers before it checks their key,
    and keeps silent connections open. Each accepted connection is therefore observed from outside until its
    handshake is over: the kernel counts its bytes (TCP_INFO), and a server sends more than `GREETED_BYTES` only to
    holders of the key.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        #: In the order of arrival. The descriptors are copies, so their numbers are not reused for other connections.
        self._waiting: dict[socket.socket, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        #: For each connection that was closed here and whose end was not claimed yet: the time, oldest first.
        self._closed_at: deque[float] = deque(maxlen=CLAIMS_MAX)

    def __len__(self) -> int:
        return len(self._waiting)

    def accepted(self, descriptor: int) -> None:
        """Observe a connection that ZeroMQ has accepted; only TCP connections are observed."""
        try:
            known = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            return  # it is already gone, or there are no descriptors left: then only ZeroMQ's own timeout applies
        if known.family not in (socket.AF_INET, socket.AF_INET6):
            known.close()
            return
        self._waiting[known] = self._loop.time()
        if len(self._waiting) > STRANGERS_MAX:
            self._look()
        while len(self._waiting) > STRANGERS_MAX:
            self._refuse(next(iter(self._waiting)))
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_S, self._look_again)

    def claim(self) -> bool:
        """Whether this limiter closed the connection that has just ended; True only once for each connection."""
        while self._closed_at and self._loop.time() - self._closed_at[0] > CLAIM_S:
            self._closed_at.popleft()
        if not self._closed_at:
            return False
        self._closed_at.popleft()
        return True

    def _look_again(self) -> None:
        self._timer = None
        self._look()
        if self._waiting:
            self._timer = self._loop.call_later(LOOK_S, self._look_again)

    def _look(self) -> None:
        now = self._loop.time()
        for known, since in list(self._waiting.items()):
            try:
                told, said = _COUNTS.unpack(known.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTS.size))
            except (OSError, struct.error):
                self._let_go(known)
                continue
            verdict = judge(now - since, told, said)
            if verdict is Verdict.REFUSE:
                self._refuse(known)
            elif verdict is Verdict.ADMITTED:
                self._let_go(known)

    def _refuse(self, known: socket.socket) -> None:
        with suppress(OSError):  # it is already gone
            # The connection is reset, so that the kernel keeps none of its data.
            known.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            known.shutdown(socket.SHUT_RDWR)
            self._closed_at.append(self._loop.time())
        self._let_go(known)

    def _let_go(self, known: socket.socket) -> None:
        del self._waiting[known]
        known.close()

    def close(self) -> None:
        """Stop observing. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for known in list(self._waiting):
            self._let_go(known)


class Authenticator:
    """Guards the sockets given to `watch`, and all other sockets of the context that enforce ZAP."""

    def __init__(
        self, keys: Keys, context: zmq.Context[Any] | None = None, users: Mapping[bytes, str] | None = None
    ) -> None:
        """`users` maps further public keys, in Z85, to the names of owners, never "" (see `ControlServer.user`)."""
        self._domain = keys.domain.encode()[:255]
        admitted = {keys.client.public: "", **(users or {})}
        #: Key, in ZeroMQ's form, to its user.
        self._keys: dict[bytes, str] = {z85.decode(key): user for key, user in admitted.items()}
        #: Connections that had the right key.
        self.admitted = 0
        #: Connections refused: the wrong key, or no handshake at all.
        self.refused = 0
        #: Connections that the peer closed before presenting a key.
        self.left = 0
        self._refused_peers: set[bytes] = set()
        sock = (context or zmq.Context.instance()).socket(zmq.ROUTER)
        sock.setsockopt(zmq.LINGER, 0)
        sock.bind(_ZAP)
        self._socket = LoopSocket(sock, self.answer)
        self._limiter = HandshakeLimiter()
        self._watched: list[tuple[zmq.Socket[Any], LoopSocket]] = []

    def watch(self, sock: zmq.Socket[Any]) -> None:
        """Count the connections to this socket that fail before they present a key, and limit their resources."""
        monitor = sock.get_monitor_socket(_EVENTS)
        self._watched.append((sock, LoopSocket(monitor, self._on_event)))

    def _on_event(self, parts: list[bytes]) -> None:
        event, value = event_of(parts)
        if event == zmq.EVENT_ACCEPTED:
            self._limiter.accepted(value)
            return
        if value in _LEFT and not self._limiter.claim():
            # A process of the topology that ends while it connects also fails in this way, so this is not a refusal.
            self.left += 1
            return
        endpoint = parts[1]
        self.refused += 1
        if endpoint not in self._refused_peers and len(self._refused_peers) < PEERS_MAX:
            self._refused_peers.add(endpoint)
            log.warning(
                "refused a connection to %s that does not use the encryption of this topology", endpoint.decode()
            )

    @property
    def strangers(self) -> int:
        """The number of connections whose peer has not presented a key."""
        return len(self._limiter)

    def answer(self, parts: list[bytes]) -> None:
        """Answer one request: envelope, "", version, id, domain, address, identity, mechanism, credentials."""
        if len(parts) < 4:
            return
        envelope, request = parts[:2], parts[2:]
        address = request[3] if len(request) > 3 else b""
        user = self._user(request)
        if user is not None:
            self.admitted += 1
            status, text = b"200", b"OK"
        else:
            self.refused += 1
            status, text = b"400", b"No access"
            self._log_once(address)
        self._socket.send([*envelope, _VERSION, request[1], status, text, (user or "").encode(), b""])

    def _user(self, request: list[bytes]) -> str | None:
        """The owner of a client's key; None if the key is unknown."""
        if len(request) != 7 or (request[0], request[2], request[5]) != (_VERSION, self._domain, b"CURVE"):
            return None
        return next((user for key, user in self._keys.items() if hmac.compare_digest(request[6], key)), None)

    def _log_once(self, address: bytes) -> None:
        if address not in self._refused_peers and len(self._refused_peers) < PEERS_MAX:
            self._refused_peers.add(address)
            log.warning("refused %s, which does not have the key of this topology", address.decode(errors="replace"))

    def close(self) -> None:
        """Close the authenticator. Idempotent."""
        for sock, monitor in self._watched:
            if not sock.closed:
                sock.disable_monitor()
            monitor.close()
        self._watched.clear()
        self._limiter.close()
        self._socket.close()
