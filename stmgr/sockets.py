"""The sockets of a stream manager: its listening sockets, and its sockets to other stream managers.

For each peer there is a DEALER for data, watched by a monitor, and a control client. The first message opens both,
because most pairs of stream managers never exchange a frame.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import zmq

from heronpy.common.errors import ConfigError
from heronpy.common.setting_types import StmgrSettings
from heronpy.net.curve import Keys
from heronpy.net.rpc_loop import ControlClient, ControlServer
from heronpy.net.transport import authenticator_of, bind, connect, endpoint_of, keys_of, remove_stale
from heronpy.net.zsock import LoopSocket, configure, event_of
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import control_pb2, plan_pb2
from heronpy.wire.frames import LINK_HEADER, message_of

from .switch import Switch

log = logging.getLogger("heron.stmgr")

#: Seconds between the end of a link and the attempt at the next link.
RENEW_S = 0.02
#: Seconds between two attempts if this process itself cannot open a link.
RETRY_S = 0.5


class Endpoints:
    """The listening sockets of a stream manager: a ROUTER for frames and a control server, for tasks and peers.

    The sockets are opened by the constructor.

    Tasks of the container connect over ipc, to the same address for each incarnation. Peers, and other processes that
    read the plan, connect to an address of this incarnation: another ipc socket, or a TCP port that accepts only the
    topology's key (see `heronpy.net.transport`). The keys are read here, once.
    """

    def __init__(
        self,
        launch: LaunchSpec,
        settings: StmgrSettings,
        name: str,
        epoch: int,
        on_frame: Callable[[list[bytes]], None],
        on_control: Callable[[bytes, control_pb2.Envelope], Any],
    ) -> None:
        self.keys = keys_of(launch)
        self._authenticator = authenticator_of(self.keys)
        remove_stale(launch.sockets_dir, name)
        place = f"ipc://{launch.sockets_dir}/{name}"
        own = f"{name}.{epoch:x}"
        router = configure(
            zmq.Context.instance().socket(zmq.ROUTER),
            hwm=0,
            message_max_bytes=settings.frame_max_bytes + LINK_HEADER.size,
            heartbeat=False,
        )
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        bind(router, f"{place}.data")
        self.data_endpoint = bind(router, endpoint_of(launch, f"{own}.data"), self.keys)
        self.data = LoopSocket(router, on_frame, budget=settings.frames_per_turn)
        self.control = ControlServer(
            [f"{place}.control", endpoint_of(launch, f"{own}.control")], on_control, keys=self.keys
        )
        self.control_endpoint = self.control.endpoints[1]
        if self._authenticator is not None:
            self._authenticator.watch(router)
            self._authenticator.watch(self.control.sock)

    @property
    def refused(self) -> int:
        """Return the number of connections that lacked the topology's key."""
        return self._authenticator.refused if self._authenticator is not None else 0

    def close(self) -> None:
        """Close all sockets; unsent messages are dropped."""
        if self._authenticator is not None:
            self._authenticator.close()
        self.control.close()
        self.data.close()


class PeerConnection:
    """Sockets to one incarnation of another stream manager.

    Each connection is a new link over a new socket: ZeroMQ keeps unsent frames when a connection breaks, and would send
    them over the next connection after they were counted as lost.
    """

    def __init__(
        self,
        record: plan_pb2.StmgrRecord,
        identity: bytes,
        switch: Switch,
        settings: StmgrSettings,
        next_link_epoch: Callable[[], int],
        keys: Keys | None = None,
    ) -> None:
        self.record = record
        self._identity = identity
        self._switch = switch
        self._settings = settings
        self._next_link_epoch = next_link_epoch
        self._keys = keys
        self._control: ControlClient | None = None
        self._close_data: tuple[Callable[[], None], ...] = ()
        self._closed = False
        #: True until a message opens the link.
        self._idle = True
        #: True if there is no data socket now.
        self._reconnecting = True

    def open(self) -> None:
        """Open a link, and reopen it whenever it is lost. Idempotent."""
        if self._idle:
            self._idle = False
            self._reconnect()

    def _connect(self) -> None:
        settings = self._settings
        sock = configure(
            zmq.Context.instance().socket(zmq.DEALER),
            hwm=0,
            message_max_bytes=settings.frame_max_bytes + LINK_HEADER.size,
            identity=self._identity,
        )
        try:
            sock.setsockopt(zmq.RECONNECT_IVL_MAX, int(settings.peer_reconnect_max_s * 1000))
            monitor = sock.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
            connect(sock, self.record.data_endpoint, self._keys)
        except BaseException:
            sock.disable_monitor()
            sock.close(linger=0)
            raise
        self._data = LoopSocket(sock, self._on_data, budget=settings.frames_per_turn)
        self._close_data = (sock.disable_monitor, LoopSocket(monitor, self._on_event).close, self._data.close)

    def _on_data(self, parts: list[bytes]) -> None:
        if not self._switch.peer_credit(self.record.id, *parts):
            log.warning("a frame on the link with %s was damaged; reopening the link", self.record.id)
            self.renew()

    def _on_event(self, parts: list[bytes]) -> None:
        event, _ = event_of(parts)
        if self._reconnecting:
            return
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._switch.open_peer(self.record.id, self._next_link_epoch())
        elif event == zmq.EVENT_DISCONNECTED:
            self.renew()

    def renew(self) -> None:
        """Open a new link after a pause, because refusals must not cause a tight loop. Frames in flight are lost."""
        if not self._reconnecting:
            self._reconnecting = True
            self._switch.close_peer(self.record.id)
            asyncio.get_running_loop().call_soon(self._part)

    def _part(self) -> None:
        """Disconnect, then start the pause. If `renew` started it, its timer could fire before this callback runs."""
        if not self._closed:
            self._disconnect()
            asyncio.get_running_loop().call_later(RENEW_S, self._reconnect)

    def _reconnect(self) -> None:
        if self._closed:
            return
        try:
            self._connect()
        except (zmq.ZMQError, ConfigError) as error:
            # For example, the process has no free descriptor at the moment.
            log.warning("cannot open the link to %s; trying again: %s", self.record.id, error)
            asyncio.get_running_loop().call_later(RETRY_S, self._reconnect)
        else:
            self._reconnecting = False

    def transmit(self, header: bytes, data: bytes) -> bool:
        return not self._reconnecting and self._data.send(message_of(header, data))

    def announce(self, message: control_pb2.Backpressure) -> None:
        """Send backpressure, repeatedly while it lasts. Its end is sent only to processes that received its start."""
        if self._control is None and message.on:
            try:
                self._control = ControlClient(
                    self.record.control_endpoint, _nothing, identity=self._identity, keys=self._keys
                )
            except (zmq.ZMQError, ConfigError) as error:
                log.warning("cannot notify %s of backpressure; trying again: %s", self.record.id, error)
        if self._control is not None:
            self._control.send(message)

    def _disconnect(self) -> None:
        for close in self._close_data:
            close()
        self._close_data = ()

    def close(self) -> None:
        self._closed = True
        self._disconnect()
        if self._control is not None:
            self._control.close()


def _nothing(envelope: control_pb2.Envelope) -> None:
    """Ignore messages on the control connection to a peer; peers send none."""
