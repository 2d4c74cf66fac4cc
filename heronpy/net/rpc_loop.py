"""Control messages for programs with an event loop: a server, and a client with many concurrent requests.

The messages and the blocking client for commands are in `rpc`, which does not import asyncio.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import zmq
from google.protobuf.message import Message

from heronpy.common.errors import DeadlineError, HeronError, LostReplyError
from heronpy.net.curve import Keys
from heronpy.net.rpc import answer_of, parse, refuse, seal, wrap
from heronpy.net.transport import bind, connect
from heronpy.net.zsock import CONTROL_HWM, HEARTBEAT_INTERVAL_MS, LoopSocket, configure
from heronpy.proto import control_pb2

log = logging.getLogger("heronpy.net")

OnRequest = Callable[[bytes, control_pb2.Envelope], "Message | Awaitable[Message | None] | None"]


class ControlServer:
    """A ROUTER socket that passes each Envelope to `on_request(identity, envelope)`.

    The handler returns the body of the reply, None (empty reply), or an awaitable of these; an exception becomes a
    refusal of the corresponding kind. One-way messages (request_id 0) get no reply.
    """

    def __init__(
        self,
        endpoints: list[str],
        on_request: OnRequest,
        context: zmq.Context[Any] | None = None,
        keys: Keys | None = None,
        receives_max: int = CONTROL_HWM,
        sends_max: int = CONTROL_HWM,
        users: bool = False,
    ) -> None:
        """`receives_max` and `sends_max` limit the number of queued messages from and to each peer.

        If `users` is set, `user` names the client of each request.
        """
        sock = configure((context or zmq.Context.instance()).socket(zmq.ROUTER), hwm=sends_max, heartbeat=False)
        sock.setsockopt(zmq.RCVHWM, receives_max)
        sock.setsockopt(zmq.ROUTER_MANDATORY, 1)
        sock.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self.endpoints = [bind(sock, endpoint, keys) for endpoint in endpoints]
        #: The socket, so that an `Authenticator` can watch it.
        self.sock = sock
        self._on_request = on_request
        #: The user of the request that is passed to `on_request`, as identified by the `Authenticator`; empty for
        #: holders of the topology's key.
        self.user = ""
        self._tasks: set[asyncio.Task[None]] = set()
        #: Number of received messages that were not an Envelope.
        self.garbage = 0
        #: Number of messages that could not be sent to their peer.
        self.undelivered = 0
        self._socket = LoopSocket(sock, self._receive_from if users else self.receive, users=users)

    @property
    def waiting(self) -> int:
        """The number of requests in progress."""
        return len(self._tasks)

    def _receive_from(self, parts: list[bytes]) -> None:
        self.user = parts.pop().decode(errors="replace")
        self.receive(parts)

    def receive(self, parts: list[bytes]) -> None:
        """Handle one message, which is the sender's identity and an Envelope. Invalid content raises no error."""
        envelope = parse(parts[1]) if len(parts) == 2 else None
        if envelope is None or not envelope.WhichOneof("body"):
            self.garbage += 1
            if str(self.garbage).rstrip("0") == "1":  # 1, 10, 100, ...
                where = ", ".join(self.endpoints)
                log.warning("ignored %d malformed control messages so far, at %s", self.garbage, where)
            return
        identity = parts[0]
        try:
            result = self._on_request(identity, envelope)
        except Exception as error:
            self._refuse(identity, envelope, error)
            return
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(self._answer_later(identity, envelope, result))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._answer(identity, envelope, result)

    async def _answer_later(
        self, identity: bytes, envelope: control_pb2.Envelope, result: Awaitable[Message | None]
    ) -> None:
        try:
            self._answer(identity, envelope, await result)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._refuse(identity, envelope, error)

    def _answer(self, identity: bytes, envelope: control_pb2.Envelope, body: Message | None) -> None:
        if not envelope.request_id:
            return
        reply = wrap(body, envelope.request_id, True) if body is not None else control_pb2.Envelope()
        reply.request_id, reply.reply = envelope.request_id, True
        self._send(identity, reply)

    def _refuse(self, identity: bytes, envelope: control_pb2.Envelope, error: Exception) -> None:
        if not isinstance(error, HeronError):
            log.exception("request %s failed", envelope.WhichOneof("body"))
        if envelope.request_id:
            self._send(identity, refuse(envelope.request_id, error))

    def _send(self, identity: bytes, envelope: control_pb2.Envelope) -> bool:
        sent = self._socket.send([identity, seal(envelope)])
        if not sent:
            self.undelivered += 1
        return sent

    def send(self, identity: bytes, body: Message) -> bool:
        """Send a one-way message; returns False if the peer is not connected or does not read."""
        return self._send(identity, wrap(body))

    def send_all(self, identities: Iterable[bytes], body: Message) -> list[bytes]:
        """Send a one-way message to many peers, serializing it only once; returns the peers that did not get it."""
        data = seal(wrap(body))
        missed = [identity for identity in identities if not self._socket.send([identity, data])]
        self.undelivered += len(missed)
        return missed

    def close(self, linger_ms: int = 0) -> None:
        """Close the server; pending answers are still sent for up to `linger_ms` (see `zsock.send_the_rest`)."""
        for task in self._tasks:
            task.cancel()
        self._socket.close(linger_ms)


class ControlClient:
    """A DEALER socket that connects to one ControlServer. ZeroMQ reconnects automatically; requests have deadlines."""

    def __init__(
        self,
        endpoint: str,
        on_message: Callable[[control_pb2.Envelope], None] = lambda _: None,
        identity: bytes | None = None,
        context: zmq.Context[Any] | None = None,
        keys: Keys | None = None,
        on_reconnect: Callable[[], None] | None = None,
        heartbeat_ms: int = HEARTBEAT_INTERVAL_MS,
        topology_id: str = "",
    ) -> None:
        """`on_reconnect` is called for each new connection, perhaps to a successor that has not received the open
        requests.

        `heartbeat_ms` is explained at `zsock.configure`, `topology_id` at `RpcClient`.
        """
        self.endpoint = endpoint
        self._topology_id = topology_id
        sock = configure(
            (context or zmq.Context.instance()).socket(zmq.DEALER),
            identity=identity,
            heartbeat=not endpoint.startswith("ipc:"),
            heartbeat_ms=heartbeat_ms,
        )
        self._on_reconnect, self._was_connected = on_reconnect, False
        self._monitor: LoopSocket | None = None
        try:
            if on_reconnect is not None:
                # The monitor starts before the first connection, so that it does not look like one to a successor.
                self._monitor = LoopSocket(sock.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED), self._on_connected)
            connect(sock, endpoint, keys)
        except BaseException:
            self._close_monitor(sock)
            sock.close()
            raise
        self._on_message = on_message
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[control_pb2.Envelope]] = {}
        self._last = 0
        #: Number of messages that could not be queued because the peer is unreachable. Control messages are periodic.
        self.undelivered = 0
        self._socket = LoopSocket(sock, self._receive)

    def _receive(self, parts: list[bytes]) -> None:
        envelope = parse(parts[-1])
        if envelope is None:
            return
        if envelope.reply:
            waiter = self._waiting.pop(envelope.request_id, None)
            if waiter and not waiter.done():
                waiter.set_result(envelope)
        else:
            self._on_message(envelope)

    def _on_connected(self, _: list[bytes]) -> None:
        if self._was_connected and self._on_reconnect is not None:
            self._on_reconnect()
        self._was_connected = True

    def _close_monitor(self, sock: zmq.Socket[bytes]) -> None:
        if self._monitor is not None:
            sock.disable_monitor()
            self._monitor.close()
            self._monitor = None

    def send(self, body: Message) -> bool:
        """Send a one-way message."""
        sent = self._socket.send([seal(wrap(body))])
        if not sent:
            self.undelivered += 1
        return sent

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def awaits(self) -> int:
        """The lowest id of an open request, else the next id. Requests with lower ids were answered or dropped."""
        return min(self._waiting, default=self._last + 1)

    async def call(self, body: Message, timeout_s: float = 5.0) -> Any:
        """Send a request; returns the body of the reply, or None if the reply is empty.

        Raises RpcError if the peer refuses the request, and DeadlineError if it does not answer in time.
        """
        request_id = self._last = next(self._ids)
        waiter: asyncio.Future[control_pb2.Envelope] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = waiter
        try:
            if not self._socket.send([seal(wrap(body, request_id, topology_id=self._topology_id))]):
                raise DeadlineError(f"{self.endpoint} does not accept messages")
            async with asyncio.timeout(timeout_s):
                envelope = await waiter
        except TimeoutError:
            raise DeadlineError(f"{self.endpoint} did not answer within {timeout_s:g} s") from None
        finally:
            self._waiting.pop(request_id, None)
        return answer_of(envelope)

    def close(self) -> None:
        """Close the socket; pending calls raise LostReplyError."""
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(LostReplyError(f"the connection to {self.endpoint} was closed without an answer"))
        self._close_monitor(self._socket.sock)
        self._socket.close()
