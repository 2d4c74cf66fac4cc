"""Stands in for the module `zmq` in simulated processes: sockets, pollers, monitors.

Of ZeroMQ's behaviour it keeps what the product must cope with: a descriptor that becomes readable on an edge
and that any use of the socket may swallow; a DEALER that keeps what it could not send and sends it over the
next connection; a ROUTER that hands an identity over to the newest connection; full queues that refuse.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, NamedTuple

import zmq

from tests.sim.kernel import Process, Thread, current_process, wait_readable, wake_all
from tests.sim.network import RETRY_S, Connection, Network

Parts = list[bytes]


class Part(NamedTuple):
    """A frame of zmq."""

    bytes: bytes
    more: bool


_HANDSHAKE_S = (0.0003, 0.003)
#: Nobody takes metrics here; what is pushed is gone.
_NOWHERE = ".metrics"


class Descriptor:
    """The file descriptor of a socket, as `select` sees it."""

    def __init__(self, sock: SimSocket) -> None:
        self.sock = sock
        self.waiters: list[Thread] = []

    def readable(self) -> bool:
        return self.sock.edge


class Pipe:
    """A pipe of the operating system that one process writes to wake itself."""

    def __init__(self) -> None:
        self.count = 0
        self.waiters: list[Thread] = []

    def readable(self) -> bool:
        return self.count > 0


class SimSocket:
    """One socket. What a dead process does with it has no effect."""

    def __init__(self, network: Network, process: Process, kind: int) -> None:
        self.network = network
        self.process = process
        self.kind = kind
        self.closed = False
        self.identity = b""
        self.retry_max_s = 1.0
        self.hwm = 1000
        self.inbox: deque[Parts] = deque()
        #: The rest of a message that is being received, and the beginning of one that is being sent.
        self._in_parts: deque[bytes] = deque()
        self._out_parts: list[bytes] = []
        self.waiters: list[Thread] = []
        self.descriptor = Descriptor(self)
        #: The descriptor says that there is news.
        self.edge = False
        #: Connections whose next message makes no edge: nobody has found them empty since their last one.
        self._awake: set[Connection | None] = set()
        self._fd = 0
        self._endpoint = b""
        self.monitor: SimSocket | None = None
        self._monitored = 0
        # DEALER
        self.link: Connection | None = None
        self.unsent: deque[Parts] = deque()
        self._target = ""
        self._retry_s = RETRY_S
        # ROUTER
        self.peers: dict[bytes, Connection] = {}
        self._names: dict[Connection, bytes] = {}
        process.on_exit.append(lambda _: self._end(abrupt=True))

    # ---- options ------------------------------------------------------------------------------

    def setsockopt(self, option: int, value: Any) -> None:
        if option == zmq.IDENTITY:
            self.identity = bytes(value)
        elif option == zmq.RECONNECT_IVL_MAX:
            self.retry_max_s = value / 1000
        elif option == zmq.SNDHWM:
            self.hwm = value

    def getsockopt(self, option: int) -> Any:
        if option == zmq.FD:
            if not self._fd:
                self._fd = self.process.open_fd(self.descriptor)
            return self._fd
        if option == zmq.EVENTS:
            self.process.look()
            self.edge = False
            if not self.inbox:
                self._awake.clear()
            return int(zmq.POLLIN) if self.inbox else 0
        if option == zmq.LAST_ENDPOINT:
            return self._endpoint
        raise AssertionError(f"the simulated socket has no option {option}")

    def get_monitor_socket(self, events: int) -> SimSocket:
        self.monitor = SimSocket(self.network, self.process, zmq.PAIR)
        self._monitored = int(events)
        return self.monitor

    def disable_monitor(self) -> None:
        self.monitor = None

    def _report(self, event: int) -> None:
        if self.monitor is not None and self._monitored & event and not self.monitor.closed:
            self.monitor.take([struct.pack("=hi", event, 0), self._target.encode()])

    # ---- connecting ---------------------------------------------------------------------------

    def bind(self, endpoint: str) -> None:
        self._endpoint = self.network.bind(self, endpoint).encode()

    def connect(self, endpoint: str) -> None:
        self._target = endpoint
        if not endpoint.endswith(_NOWHERE):
            self.network.world.later(self.process.step_s(), self._try)

    def _try(self) -> None:
        if self.closed or not self.process.alive or self.link is not None:
            return
        connection = None
        if not self.process.stopped:
            connection = self.network.reach(self, self._target)
        if connection is None:
            pause = self._retry_s * self.network.rng.uniform(1.0, 1.5)
            self._retry_s = min(self.retry_max_s, self._retry_s * 2)
            self.network.world.later(pause, self._try)
            return
        self._retry_s = RETRY_S
        self.link = connection
        self.network.world.later(self.network.rng.uniform(*_HANDSHAKE_S), self._handshake, connection)

    def _handshake(self, connection: Connection) -> None:
        if not (connection.alive and self.link is connection) or self.closed or connection.server.closed:
            return
        connection.server.accepted(connection, self.identity or f"anonymous-{connection.number}".encode())
        self._report(int(zmq.EVENT_HANDSHAKE_SUCCEEDED))
        connection.greeted = True
        while self.unsent:
            connection.to_server.put(self.unsent.popleft())

    def accepted(self, connection: Connection, identity: bytes) -> None:
        """Somebody connected to this ROUTER; the newest connection of an identity counts."""
        old = self.peers.get(identity)
        self.peers[identity] = connection
        self._names[connection] = identity
        self._signal()
        if old is not None:
            self._names.pop(old, None)
            old.end_from(self, abrupt=True)

    def disconnected(self, connection: Connection) -> None:
        """The connection is over, as this side sees it."""
        self._awake.discard(connection)
        identity = self._names.pop(connection, None)
        if identity is not None and self.peers.get(identity) is connection:
            del self.peers[identity]
        if self.link is connection:
            self.link = None
            self._report(int(zmq.EVENT_DISCONNECTED))
            self.network.world.later(self.network.rng.uniform(1.0, 2.0) * RETRY_S, self._try)

    # ---- messages in --------------------------------------------------------------------------

    def arrived(self, connection: Connection, parts: Parts) -> None:
        if self.closed or not self.process.alive or not connection.is_open(self):
            return
        if self.kind == zmq.ROUTER:
            identity = self._names.get(connection)
            if identity is None:
                return
            parts = [identity, *parts]
        self.take(parts, connection)

    def take(self, parts: Parts, connection: Connection | None = None) -> None:
        """A message is there."""
        self.inbox.append(parts)
        wake_all(self.waiters)
        if connection not in self._awake:
            self._awake.add(connection)
            self._signal()

    def _signal(self) -> None:
        self.edge = True
        wake_all(self.descriptor.waiters)
        if self.process.loop is not None:
            self.process.loop.edge(self._fd)

    def readable(self) -> bool:
        """As a Poller sees it."""
        return bool(self.inbox)

    def poll(self, timeout_ms: int = 0) -> int:
        assert not timeout_ms
        return int(bool(self.inbox))

    def recv_multipart(self, flags: int = 0) -> Parts:
        if self.closed:
            raise zmq.ZMQError(zmq.ENOTSOCK)
        self.process.look()
        self.edge = False
        if not self.inbox:
            self._awake.clear()
            raise zmq.Again
        return self.inbox.popleft()

    def recv(self, flags: int, copy: bool) -> Part:
        """The next part of a message, as a frame."""
        assert not copy
        if not self._in_parts:
            self._in_parts.extend(self.recv_multipart(flags))
        return Part(self._in_parts.popleft(), bool(self._in_parts))

    # ---- messages out -------------------------------------------------------------------------

    def send(self, data: bytes, flags: int = 0) -> None:
        parts = [*self._out_parts, data]
        self._out_parts = parts if flags & int(zmq.SNDMORE) else []
        if not self._out_parts:
            self.send_multipart(parts, flags)

    def send_multipart(self, parts: Any, flags: int = 0) -> None:
        process = self.process
        process.operate()
        if self.closed:
            raise zmq.ZMQError(zmq.ENOTSOCK)
        if process.rng.random() < 0.5:
            self.edge = False
        message = list(parts)
        process.world.trace.tick(f"{process.name} {sum(map(len, message))}")
        if self.kind == zmq.ROUTER:
            connection = self.peers.get(message[0])
            if connection is None:
                raise zmq.ZMQError(zmq.EHOSTUNREACH)
            self._put(connection.to_client, message[1:], 0)
        elif self._target.endswith(_NOWHERE):
            return
        elif self.link is not None and self.link.greeted:
            self._put(self.link.to_server, message, len(self.unsent))
        elif self.hwm and len(self.unsent) >= self.hwm:
            raise zmq.Again
        else:
            self.unsent.append(message)

    def _put(self, lane: Any, message: Parts, waiting: int) -> None:
        if self.hwm and len(lane.queue) + waiting >= 2 * self.hwm:
            raise zmq.Again
        if lane.connection.is_open(self):
            lane.put(message)

    # ---- the end ------------------------------------------------------------------------------

    def close(self, linger: int | None = 0) -> None:
        self._end(abrupt=not linger)

    def _end(self, abrupt: bool) -> None:
        if self.closed:
            return
        self.closed = True
        self.network.unbind(self)
        for connection in [c for c in self.network.connections if self in (c.client, c.server)]:
            connection.end_from(self, abrupt)
        self.peers.clear()
        self._names.clear()
        self.link = None


class SimContext:
    """zmq.Context of a process."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network, self._process = network, process

    def socket(self, kind: int) -> SimSocket:
        return SimSocket(self._network, self._process, kind)

    def setsockopt(self, option: int, value: Any) -> None:
        """Defaults of sockets are not modelled."""

    def term(self) -> None:
        """All has been handed over already."""


class ContextOf:
    """`zmq.Context`: `instance()` is the one of the process that runs."""

    @staticmethod
    def instance() -> SimContext:
        process = current_process()
        return SimContext(process.world.network, process)  # type: ignore[attr-defined]


class SimPoller:
    """`zmq.Poller` over sockets and descriptors."""

    def __init__(self) -> None:
        self._sources: dict[Any, Any] = {}

    def register(self, source: Any, flags: int) -> None:
        self._sources[source] = current_process().fds[source] if isinstance(source, int) else source

    def poll(self, timeout_ms: float | None = None) -> list[tuple[Any, int]]:
        names = {id(thing): name for name, thing in self._sources.items()}
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        ready = wait_readable(list(self._sources.values()), timeout_s)
        return [(names[id(thing)], int(zmq.POLLIN)) for thing in ready]
