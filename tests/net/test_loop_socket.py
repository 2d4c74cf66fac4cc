"""A ZeroMQ socket on an event loop: no message is left lying whatever swallowed the edge of its descriptor."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from heronpy.net.zsock import RARE_HEARTBEAT_MS, LoopSocket, configure


class SwallowingSocket:
    """A message comes while something is sent, and the descriptor never tells of it."""

    def __init__(self, fd: int, outcome: Exception | None) -> None:
        self.fd = fd
        self.outcome = outcome
        self.inbox: deque[bytes] = deque()

    def getsockopt(self, option: int) -> int:
        assert option == zmq.FD
        return self.fd

    def recv(self, flags: int, copy: bool) -> SimpleNamespace:
        if not self.inbox:
            raise zmq.Again
        data = self.inbox.popleft()
        return SimpleNamespace(bytes=data, more=bool(self.inbox))

    def send(self, part: bytes, flags: int) -> None:
        self.inbox = deque([b"from", b"peer"])
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


async def test_with_a_pause_what_comes_after_a_message_is_read_together_and_nothing_is_lost() -> None:
    context = zmq.Context()
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    pull.bind("inproc://reports")
    push.connect("inproc://reports")
    received: list[bytes] = []
    pauses: list[Any] = []
    loop: Any = asyncio.get_running_loop()
    loop.call_later = lambda delay_s, resume: pauses.append(resume) or SimpleNamespace(cancel=lambda: None)

    async def turns_until(count: int) -> None:
        async with asyncio.timeout(30):
            while len(received) < count:
                await asyncio.sleep(0)

    sock = LoopSocket(pull, lambda parts: received.extend(parts), budget=4, pause_s=0.01)
    try:
        push.send(b"0")
        await turns_until(1)
        for number in range(1, 31):
            push.send(b"%d" % number)
        for _ in range(100):
            await asyncio.sleep(0)
        assert received == [b"0"] and len(pauses) == 1, "it reads nothing while it pauses"
        pauses.pop()()
        await turns_until(31)
        push.send(b"31")
        pauses.pop()()
        await turns_until(32)
        assert received == [b"%d" % number for number in range(32)]
    finally:
        sock.close()
        push.close()
        context.destroy(linger=0)


def test_a_connection_of_many_to_one_pings_rarely_and_may_miss_as_many() -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as often, context.socket(zmq.DEALER) as rarely:
        configure(often)
        configure(rarely, heartbeat_ms=RARE_HEARTBEAT_MS)
        options = (zmq.HEARTBEAT_IVL, zmq.HEARTBEAT_TIMEOUT, zmq.HEARTBEAT_TTL)
        assert [often.getsockopt(one) for one in options] == [1000, 3000, 3000]
        assert [rarely.getsockopt(one) for one in options] == [3000, 3000, 9000]
