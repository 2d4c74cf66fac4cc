"""Where a stream manager listens: a ROUTER for frames and a control server, both for tasks and for peers.

Tasks of the container come over ipc, in a folder that is the user's own; peers over TCP, with the
topology's keys when `heron.security` asks for them. The keys are read here, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq

from heronpy.net.curve import keys_of, tcp_endpoint
from heronpy.net.gate import Gate
from heronpy.net.rpc import ControlServer, bind
from heronpy.net.zsock import LoopSocket, configure


class Doors:
    """The sockets that others connect to. Opened when made."""

    def __init__(
        self,
        launch: Any,
        settings: Any,
        name: str,
        on_frame: Callable[[list[bytes]], None],
        on_control: Callable[[bytes, Any], Any],
    ) -> None:
        self.keys = keys_of(launch)
        self._gate = Gate(self.keys) if self.keys is not None else None
        place = f"ipc://{launch.sockets_dir}/{name}"
        router = configure(
            zmq.Context.instance().socket(zmq.ROUTER),
            hwm=0,
            message_max_bytes=settings.frame_max_bytes,
            heartbeat=False,
        )
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        bind(router, f"{place}.data")
        self.data_endpoint = bind(router, tcp_endpoint(launch), self.keys)
        self.data = LoopSocket(router, on_frame, budget=settings.frames_per_turn)
        self.control = ControlServer([f"{place}.control", tcp_endpoint(launch)], on_control, keys=self.keys)
        self.control_endpoint = self.control.endpoints[1]
        if self._gate is not None:
            self._gate.watch(router)
            self._gate.watch(self.control.sock)

    @property
    def refused(self) -> int:
        """Connections that lacked the topology's key."""
        return self._gate.refused if self._gate is not None else 0

    def close(self) -> None:
        """Close all; what was not sent is dropped."""
        if self._gate is not None:
            self._gate.close()
        self.control.close()
        self.data.close()
