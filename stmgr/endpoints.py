"""Where a stream manager listens: a ROUTER for frames and a control server, both for tasks and for peers.

Tasks of the container connect over ipc, to the same address for each incarnation; peers, and all others that learn
it from the plan, to an address of this incarnation: another ipc socket, or a TCP port that accepts only the topology's
key (see `heronpy.net.transport`). The keys are read here, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq

from heronpy.common.setting_types import StmgrSettings
from heronpy.net.gate import Gate
from heronpy.net.rpc import ControlServer
from heronpy.net.transport import bind, endpoint_of, keys_of, remove_stale
from heronpy.net.zsock import LoopSocket, configure
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import control_pb2
from heronpy.wire.frames import LINK_HEADER


class Endpoints:
    """The sockets that others connect to. Opened when made."""

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
        self._gate = Gate(self.keys) if self.keys is not None else None
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
        if self._gate is not None:
            self._gate.watch(router)
            self._gate.watch(self.control.sock)

    @property
    def refused(self) -> int:
        """Connections that lacked the topology's key."""
        return self._gate.refused if self._gate is not None else 0

    def close(self) -> None:
        """Close all; unsent messages are dropped."""
        if self._gate is not None:
            self._gate.close()
        self.control.close()
        self.data.close()
