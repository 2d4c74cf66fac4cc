"""A peer that asks and does not read: what waits for it is bounded, and counted beyond."""

from __future__ import annotations

from typing import Any

import zmq

from heronpy.net.rpc import seal, wrap
from heronpy.net.rpc_loop import ControlServer
from heronpy.proto import control_pb2
from tests.support.waiting import eventually
from tests.support.wires import new_endpoint

ANSWER = "x" * (256 << 10)
REQUESTS = 400


async def test_answers_to_a_peer_that_does_not_read_are_dropped_and_counted() -> None:
    asked = 0

    def answer(_: bytes, envelope: control_pb2.Envelope) -> control_pb2.Ok:
        nonlocal asked
        asked += 1
        return control_pb2.Ok(text=ANSWER)

    server = ControlServer([new_endpoint()], answer, receives_max=8, sends_max=16)
    sock: zmq.Socket[Any] = zmq.Context.instance().socket(zmq.DEALER)
    sock.setsockopt(zmq.RCVHWM, 1)
    sock.setsockopt(zmq.LINGER, 0)
    sock.connect(server.endpoints[0])
    try:
        for number in range(1, REQUESTS + 1):
            sock.send(seal(wrap(control_pb2.GetContainers(), number)))
        await eventually(lambda: asked == REQUESTS, 20, "all requests")
        # What the queues and the kernel hold is a small part of them.
        assert server.undelivered > REQUESTS / 2
        sock.setsockopt(zmq.RCVTIMEO, 5000)
        assert len(sock.recv()) > len(ANSWER), "it still gets answers once it reads"
    finally:
        sock.close()
        server.close()
