"""The sink task's socket to the gateway: it sends hints and receives outcomes.

Only `finished` may block, for at most `wait_s` seconds.

Messages are only hints, and records (see records.py) are authoritative, so any message may be lost. The sink repeats
hints for batches without an outcome, and the gateway answers a repeated hint from its records.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable

import msgspec
import zmq

from heronpy.common.errors import HeronError
from heronpy.common.setting_types import SparkSettings
from heronpy.common.settings import settings_for
from heronpy.connectors.spark.handover import gateway_endpoint
from heronpy.connectors.spark.records import RunRecords, records_of
from heronpy.net.curve import Keys
from heronpy.net.transport import connect, keys_of
from heronpy.net.zsock import configure
from heronpy.plan.launch import LaunchSpec

log = logging.getLogger("heronpy.spark.sink")

MESSAGE_MAX_BYTES = 64 * 1024
#: Interval in seconds at which the task checks whether the gateway has a successor on another host; shorter while no
#: gateway is known.
LOOK_S = 5.0
FIRST_LOOK_S = 1.0


class Ready(msgspec.Struct, tag="ready"):
    """Sink to gateway: a batch is waiting."""

    component: str
    stem: str


class Probe(msgspec.Struct, tag="probe"):
    """Sink to gateway: a request for the state of the Spark session."""


class Session(msgspec.Struct, tag="session"):
    """Gateway to sink: whether Spark has a session. `text`: an outage, or the reason for the wait."""

    up: bool
    text: str = ""


class Finished(msgspec.Struct, tag="finished"):
    """Gateway to sink: a batch has its outcome."""

    component: str
    stem: str
    committed: bool
    error: str = ""


_encode = msgspec.msgpack.Encoder().encode
Message = Ready | Probe | Session | Finished
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    return _encode(message)


def decode(data: bytes) -> Message | None:
    """Return the decoded message, or None for invalid bytes."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def link_to_gateway(
    launch: LaunchSpec, component: str, task: int, incarnation: int, records: RunRecords | None = None
) -> GatewayLink:
    """Return the link of a task. `component`: a safe name. `records`: the submission's records, if already open."""
    if not settings_for(launch, SparkSettings).handover:
        return GatewayLink(gateway_endpoint(launch.sockets_dir), component, task, incarnation)
    known = records or records_of(launch)

    def gateway() -> str | None:
        found = known.gateway()
        return found.endpoint if found is not None else None

    return GatewayLink(gateway, component, task, incarnation, keys_of(launch))


class GatewayLink:
    """One task's DEALER socket to the gateway."""

    def __init__(
        self,
        endpoint: str | Callable[[], str | None],
        component: str,
        task: int,
        incarnation: int,
        keys: Keys | None = None,
    ) -> None:
        """`endpoint`: the gateway's address, or a function that returns the address (None without a gateway)."""
        self._component = component
        identity = f"{component[:100]}/{task}/{incarnation}/{os.getpid()}".encode()
        sock: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._sock = configure(sock, message_max_bytes=MESSAGE_MAX_BYTES, identity=identity)
        self._keys = keys
        self._find = None if isinstance(endpoint, str) else endpoint
        self._endpoint = ""
        self._look_at = 0.0
        if isinstance(endpoint, str):
            connect(self._sock, endpoint)
        self._session: Session | None = None
        #: Outcomes that arrived while `session` read the messages.
        self._early: list[Finished] = []

    def _look(self) -> None:
        """Connect to the current gateway if a check is due."""
        now = time.monotonic()
        if self._find is None or now < self._look_at:
            return
        self._look_at = now + (LOOK_S if self._endpoint else FIRST_LOOK_S)
        try:
            found = self._find()
        except HeronError as error:
            log.warning("cannot find the Spark gateway: %s", error)
            return
        if found is None or found == self._endpoint:
            return
        if self._endpoint:
            self._sock.disconnect(self._endpoint)
            self._session = None
        connect(self._sock, found, self._keys)
        self._endpoint = found

    def session(self) -> Session | None:
        """Request the state of the Spark session; return the gateway's last answer, None before the first answer."""
        self._early += self.finished()
        self._look()
        try:
            self._sock.send(encode(Probe()), zmq.DONTWAIT)
        except zmq.Again:
            self._session = None  # The gateway is down.
        return self._session

    def ready(self, stems: Iterable[str]) -> None:
        """Send hints for the batches that lack an outcome."""
        self._look()
        for stem in stems:
            try:
                self._sock.send(encode(Ready(self._component, stem)), zmq.DONTWAIT)
            except zmq.Again:
                return  # The gateway is down; the hint is repeated later.

    def finished(self, wait_s: float = 0.0) -> list[Finished]:
        """Return the outcomes that have arrived; wait up to `wait_s` seconds for the first outcome."""
        messages, self._early = self._early, []
        if not messages and wait_s > 0 and not self._sock.poll(max(1, int(wait_s * 1000))):
            return messages
        while True:
            try:
                message = decode(self._sock.recv(zmq.DONTWAIT))
            except zmq.Again:
                return messages
            self._look_at = time.monotonic() + LOOK_S
            if isinstance(message, Finished):
                messages.append(message)
            elif isinstance(message, Session):
                self._session = message

    def close(self) -> None:
        self._sock.close(linger=0)
