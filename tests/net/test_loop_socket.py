"""A ZeroMQ socket on an event loop: no message is left lying whatever swallowed the edge of its descriptor."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import Any

import pytest
import zmq

from heronpy.net.zsock import LoopSocket


class SwallowingSocket:
    """A message comes while something is sent, and the descriptor never tells of it."""

    def __init__(self, fd: int, outcome: Exception | None) -> None:
        self.fd = fd
        self.outcome = outcome
        self.inbox: deque[list[bytes]] = deque()

    def getsockopt(self, option: int) -> int:
        assert option == zmq.FD
        return self.fd

    def recv_multipart(self, flags: int) -> list[bytes]:
        if not self.inbox:
            raise zmq.Again
        return self.inbox.popleft()

    def send_multipart(self, parts: list[bytes], flags: int) -> None:
        self.inbox.append([b"from", b"peer"])
        if self.outcome is not None:
            raise self.outcome

    def close(self, linger: int) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("outcome", "sent"), [(None, True), (zmq.Again(), False), (zmq.ZMQError(zmq.EHOSTUNREACH), False)]
)
def test_a_send_that_swallows_the_edge_loses_no_message(outcome: Exception | None, sent: bool) -> None:
    """Also one that fails: ZeroMQ looks at what has come before it says so."""

    async def run() -> list[bytes]:
        received: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        reader, writer = os.pipe()
        try:
            sock: Any = SwallowingSocket(reader, outcome)
            loop_socket = LoopSocket(sock, received.set_result)
            await asyncio.sleep(0)
            assert loop_socket.send([b"to", b"nobody"]) is sent
            try:
                return await asyncio.wait_for(received, 5)
            finally:
                loop_socket.close()
        finally:
            os.close(reader)
            os.close(writer)

    assert asyncio.run(run()) == [b"from", b"peer"]
