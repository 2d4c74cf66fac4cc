"""The sink task's socket to the gateway: hints out, outcomes in. Only `wait` blocks.

Messages are only hints (the folders of handover.py are the truth), so any of them may be lost: hints for batches
without an outcome are repeated, and the gateway answers a repeated hint from its records.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

import msgspec
import zmq

from heronpy.net.transport import connect
from heronpy.net.zsock import configure

log = logging.getLogger("heronpy.spark.sink")

MESSAGE_MAX_BYTES = 64 * 1024


class Ready(msgspec.Struct, tag="ready"):
    """Sink to gateway: a batch waits in the inbox."""

    component: str
    stem: str


class Look(msgspec.Struct, tag="look"):
    """Sink to gateway: is Spark ready?"""


class Session(msgspec.Struct, tag="session"):
    """Gateway to sink: whether Spark has a session, and if not, what it is doing."""

    up: bool
    text: str = ""


class Finished(msgspec.Struct, tag="finished"):
    """Gateway to sink: a batch has its outcome."""

    component: str
    stem: str
    committed: bool
    error: str = ""


_encode = msgspec.msgpack.Encoder().encode
Message = Ready | Look | Session | Finished
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    return _encode(message)


def decode(data: bytes) -> Message | None:
    """The decoded message, or None for invalid bytes."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class GatewayLink:
    """One task's DEALER socket to the gateway."""

    def __init__(self, endpoint: str, component: str, task: int, incarnation: int) -> None:
        self._component = component
        identity = f"{component[:100]}/{task}/{incarnation}/{os.getpid()}".encode()
        sock: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._sock = configure(sock, message_max_bytes=MESSAGE_MAX_BYTES, identity=identity)
        connect(self._sock, endpoint)
        self._session: Session | None = None
        #: Outcomes that arrived while asking for the session.
        self._early: list[Finished] = []

    def session(self) -> Session | None:
        """The gateway's last answer about its Spark session; asks it again. None: it has not answered yet."""
        self._early += self.finished()
        try:
            self._sock.send(encode(Look()), zmq.DONTWAIT)
        except zmq.Again:
            self._session = None  # The gateway is down.
        return self._session

    def ready(self, stems: Iterable[str]) -> None:
        """Tell the gateway which batches wait for their outcome."""
        for stem in stems:
            try:
                self._sock.send(encode(Ready(self._component, stem)), zmq.DONTWAIT)
            except zmq.Again:
                return  # The gateway is down; the hint is repeated later.

    def finished(self, wait_s: float = 0.0) -> list[Finished]:
        """Outcomes that have arrived; waits for the first one at most `wait_s`."""
        messages, self._early = self._early, []
        if not messages and wait_s > 0 and not self._sock.poll(max(1, int(wait_s * 1000))):
            return messages
        while True:
            try:
                message = decode(self._sock.recv(zmq.DONTWAIT))
            except zmq.Again:
                return messages
            if isinstance(message, Finished):
                messages.append(message)
            elif isinstance(message, Session):
                self._session = message

    def close(self) -> None:
        self._sock.close(linger=0)
