"""Control messages: one protobuf Envelope per ZeroMQ message, either one-way or as request and reply.

Control messages use separate sockets, so they never wait behind data. Every wait has a deadline; a
request to a dead peer raises a DeadlineError that names the peer. Invalid messages from a peer are counted and dropped:
they never end a process.
"""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Callable
from typing import Any

import zmq
from google.protobuf.message import DecodeError, Message

from heronpy.common.errors import (
    ConfigError,
    DeadlineError,
    FencedError,
    FencedRpcError,
    HeronError,
    InvalidRpcError,
    LateRpcError,
    LostReplyError,
    PackageError,
    RetryableError,
    RetryableRpcError,
    RpcError,
    TopologyError,
)
from heronpy.net.curve import Keys
from heronpy.net.transport import connect
from heronpy.net.zsock import configure, event_of
from heronpy.proto import control_pb2

#: The tag of Envelope.checksum (field 4, fixed32), and the bytes of the tag and the checksum together.
_CHECKSUM, _SEAL_BYTES = b"\x25", 5
_FIELDS = {
    field.message_type.name: field.name
    for field in control_pb2.Envelope.DESCRIPTOR.oneofs_by_name["body"].fields
    if field.message_type is not None
}

#: The refusal for each class of error; any other error is REFUSAL_FAILED.
_REFUSALS: tuple[tuple[tuple[type[HeronError], ...], control_pb2.Refusal], ...] = (
    ((FencedError,), control_pb2.REFUSAL_FENCED),
    ((RetryableError,), control_pb2.REFUSAL_AGAIN),
    ((InvalidRpcError, ConfigError, PackageError, TopologyError), control_pb2.REFUSAL_INVALID),
    # A process that ended before it answered may have carried out the request.
    ((LostReplyError,), control_pb2.REFUSAL_FAILED),
    ((DeadlineError, LateRpcError), control_pb2.REFUSAL_LATE),
)
_ERRORS: dict[int, type[RpcError]] = {
    control_pb2.REFUSAL_FENCED: FencedRpcError,
    control_pb2.REFUSAL_AGAIN: RetryableRpcError,
    control_pb2.REFUSAL_INVALID: InvalidRpcError,
    # Not a DeadlineError, because the peer itself has answered that it is late.
    control_pb2.REFUSAL_LATE: LateRpcError,
}

#: Interval at which a waiting blocking call checks whether its peer is still registered.
LOOK_S = 1.0


def wrap(body: Message, request_id: int = 0, reply: bool = False, topology_id: str = "") -> control_pb2.Envelope:
    """Put a control message into an Envelope."""
    envelope = control_pb2.Envelope(request_id=request_id, reply=reply, topology_id=topology_id)
    getattr(envelope, _FIELDS[type(body).__name__]).CopyFrom(body)
    return envelope


def seal(envelope: control_pb2.Envelope) -> bytes:
    """Serialize an Envelope with a checksum, because TCP's 16-bit checksum misses some damage."""
    data = envelope.SerializeToString()
    return data + _CHECKSUM + zlib.crc32(data).to_bytes(4, "little")


def body_of(envelope: control_pb2.Envelope) -> tuple[str, Any]:
    """The name of an Envelope's body field, and the body; ("", None) if there is no body."""
    field = envelope.WhichOneof("body")
    return (field, getattr(envelope, field)) if field else ("", None)


def refuse(request_id: int, error: Exception) -> control_pb2.Envelope:
    """The reply that makes the requester raise the same kind of error."""
    refusal = next((value for kinds, value in _REFUSALS if isinstance(error, kinds)), control_pb2.REFUSAL_FAILED)
    text = str(error) or type(error).__name__
    return control_pb2.Envelope(request_id=request_id, reply=True, error=text, refusal=refusal)


def answer_of(reply: control_pb2.Envelope) -> Any:
    """The body of a reply, None if it has none; a refusal is raised as RpcError or as its specific subclass."""
    if reply.refusal:
        raise _ERRORS.get(reply.refusal, RpcError)(reply.error)
    return body_of(reply)[1]


def parse(data: bytes) -> control_pb2.Envelope | None:
    """Parse an Envelope; returns None if the bytes are malformed or do not match the checksum."""
    sealed, tag, checksum = data[:-_SEAL_BYTES], data[-_SEAL_BYTES : 1 - _SEAL_BYTES], data[1 - _SEAL_BYTES :]
    # The tag is checked at its fixed position, because damage before the tag could hide it from the parser.
    if tag == _CHECKSUM:
        if zlib.crc32(sealed) != int.from_bytes(checksum, "little"):
            return None
        data = sealed
    try:
        return control_pb2.Envelope.FromString(data)
    except (DecodeError, ValueError):
        return None


class RpcClient:
    """Blocking client for programs without an event loop, such as the CLI.

    ZeroMQ does not distinguish a peer that ended before the first connection from a peer that has not started: in both
    cases it keeps trying to connect. A waiting call therefore checks with `registered` every `LOOK_S` whether the peer
    is still expected. It stops waiting after two negative results in a row, because a peer that is ending may still
    answer, and a peer may lose its registration for a moment.

    Raises ConfigError if another user may own the ipc endpoint, or if keys for TCP are missing.
    """

    def __init__(
        self,
        endpoint: str,
        context: zmq.Context[Any] | None = None,
        peer: str | None = None,
        keys: Keys | None = None,
        registered: Callable[[], bool] | None = None,
        topology_id: str = "",
    ) -> None:
        """`topology_id` is the id of the expected topology; a master of another topology refuses the calls."""
        self.endpoint = endpoint
        self._topology_id = topology_id
        self._peer = peer or endpoint
        self._registered = registered or (lambda: True)
        self._ids = itertools.count(1)
        self._sock = configure((context or zmq.Context.instance()).socket(zmq.DEALER))
        self._monitor = self._sock.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        self._connected = False
        try:
            connect(self._sock, endpoint, keys)
        except BaseException:
            self.close()
            raise

    def call(self, body: Message, timeout_s: float = 5.0) -> Any:
        """Send a request; returns the body of the reply, or None if the reply is empty.

        Raises RpcError if the peer refuses the request, and DeadlineError if it does not answer in time or has ended.
        """
        request_id = next(self._ids)
        self._was_lost()
        self._sock.send(seal(wrap(body, request_id, topology_id=self._topology_id)))
        begun = time.monotonic()
        deadline, look_at, gone = begun + timeout_s, begun + LOOK_S, False
        while True:
            now = time.monotonic()
            if now >= deadline:
                raise DeadlineError(f"{self._peer} did not answer within {timeout_s:g} s")
            if now >= look_at:
                was_gone, gone = gone, not self._registered()
                if gone and was_gone and not self._sock.poll(0):
                    raise self._lost()
                look_at = time.monotonic() + LOOK_S
            self._wait(min(deadline, look_at) - now)
            if not self._sock.poll(0):
                continue
            envelope = parse(self._sock.recv())
            if envelope is None or not envelope.reply or envelope.request_id != request_id:
                continue
            return answer_of(envelope)

    def _wait(self, timeout_s: float) -> None:
        """Wait for a message or a connection event; raises LostReplyError if an existing connection is lost."""
        poller = zmq.Poller()
        poller.register(self._sock, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        poller.poll(max(1, int(timeout_s * 1000)))
        # All messages that the peer sent before its end have arrived by the time its end is known.
        if self._was_lost() and not self._sock.poll(0):
            raise self._lost()

    def _lost(self) -> LostReplyError:
        return LostReplyError(
            f"{self._peer} ended before it answered; the request may or may not have been carried out"
        )

    def _was_lost(self) -> bool:
        """Whether the connection has been lost since the last call of this method."""
        lost = False
        while self._monitor.poll(0):
            event, _ = event_of(self._monitor.recv_multipart())
            lost = lost or (self._connected and event == zmq.EVENT_DISCONNECTED)
            self._connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
        return lost

    def close(self) -> None:
        self._sock.disable_monitor()
        self._monitor.close(linger=0)
        self._sock.close(linger=0)

    def __enter__(self) -> RpcClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
