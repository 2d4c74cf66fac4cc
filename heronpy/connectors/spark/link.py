"""The sink task's line to the gateway: hints out, outcomes in. Never blocks but in `wait`.

Messages are hints (handover.py holds the truth), so every one may be lost: hints for batches without
an outcome are repeated, and the gateway answers a repeated hint from its records.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

import msgspec
import zmq

from heronpy.net.zsock import configure

log = logging.getLogger("heronpy.spark.sink")

MESSAGE_MAX_BYTES = 64 * 1024


class Ready(msgspec.Struct, tag="ready"):
    """Sink to gateway: a batch waits in the inbox."""

    component: str
    stem: str


class Finished(msgspec.Struct, tag="finished"):
    """Gateway to sink: a batch has its outcome."""

    component: str
    stem: str
    committed: bool
    error: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Ready | Finished] = msgspec.msgpack.Decoder(Ready | Finished)


def encode(message: Ready | Finished) -> bytes:
    return _encode(message)


def decode(data: bytes) -> Ready | Finished | None:
    """A message, or None for bytes that are none."""
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
        self._sock.connect(endpoint)

    def ready(self, stems: Iterable[str]) -> None:
        """Tell the gateway which batches wait for their outcome."""
        for stem in stems:
            try:
                self._sock.send(encode(Ready(self._component, stem)), zmq.DONTWAIT)
            except zmq.Again:
                return  # The gateway is away; the hint is repeated later.

    def finished(self, wait_s: float = 0.0) -> list[Finished]:
        """Outcomes that have arrived; waits for the first one at most `wait_s`."""
        messages: list[Finished] = []
        if wait_s > 0 and not self._sock.poll(max(1, int(wait_s * 1000))):
            return messages
        while True:
            try:
                message = decode(self._sock.recv(zmq.DONTWAIT))
            except zmq.Again:
                return messages
            if isinstance(message, Finished):
                messages.append(message)

    def close(self) -> None:
        self._sock.close(linger=0)
