"""Connections to other stream managers: a link that is opened again works, however busy the loop is (F14)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from errno import EMFILE
from typing import Any

import pytest
import uvloop
import zmq

from heronpy.common.setting_types import StmgrSettings
from heronpy.net.rpc import parse
from heronpy.net.transport import bind
from heronpy.proto import control_pb2, plan_pb2
from stmgr import sockets
from stmgr.sockets import PeerConnection
from tests.support.waiting import eventually
from tests.support.wires import new_endpoint

# libuv keeps the pipe of its first loop for as long as the process lives, which is not a leak of a test.
uvloop.new_event_loop().close()


class Links:
    """What a switch is told about links."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.closed = 0

    def open_peer(self, name: str, epoch: int) -> None:
        self.opened.append(epoch)

    def close_peer(self, name: str) -> None:
        self.closed += 1


@pytest.fixture
def router() -> Iterator[zmq.Socket[bytes]]:
    socket = zmq.Context.instance().socket(zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
    bind(socket, new_endpoint())
    yield socket
    socket.close(0)


def test_a_busy_loop_does_not_close_the_new_connection_for_the_old_one(router: zmq.Socket[bytes]) -> None:
    """uvloop runs a timer that is due before a callback that was to come soon."""
    endpoint = router.getsockopt_string(zmq.LAST_ENDPOINT)

    async def main() -> None:
        links, epochs = Links(), iter(range(1, 100))
        record = plan_pb2.StmgrRecord(id="stmgr-2", data_endpoint=endpoint, control_endpoint=endpoint)
        settings = StmgrSettings()
        connection = PeerConnection(record, b"s:stmgr-1:1", links, settings, lambda: next(epochs))  # type: ignore[arg-type]
        connection.open()
        for number in range(1, 4):
            await eventually(lambda number=number: len(links.opened) == number)  # type: ignore[misc]
            connection.renew()
            busy_until = time.monotonic() + 2 * sockets.RENEW_S
            while time.monotonic() < busy_until:
                pass
        await eventually(lambda: len(links.opened) == 4)
        assert links.closed == 3
        connection.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("full_at_first", [False, True])
def test_a_link_is_opened_once_there_are_descriptors_again(
    router: zmq.Socket[bytes], monkeypatch: pytest.MonkeyPatch, full_at_first: bool
) -> None:
    endpoint = router.getsockopt_string(zmq.LAST_ENDPOINT)
    monkeypatch.setattr(sockets, "RETRY_S", 0.01)
    real, refusals = sockets.configure, iter([EMFILE, EMFILE])

    def configure(*arguments: Any, **options: Any) -> Any:
        if full and (number := next(refusals, 0)):
            raise zmq.ZMQError(number)
        return real(*arguments, **options)

    full: list[bool] = []

    async def main() -> None:
        links, epochs = Links(), iter(range(1, 100))
        record = plan_pb2.StmgrRecord(id="stmgr-2", data_endpoint=endpoint, control_endpoint=endpoint)
        if full_at_first:
            full.append(True)
        connection = PeerConnection(record, b"s:stmgr-1:1", links, StmgrSettings(), lambda: next(epochs))  # type: ignore[arg-type]
        connection.open()
        assert not connection.transmit(b"", b"") or not full_at_first
        await eventually(lambda: len(links.opened) == 1)
        if not full_at_first:
            full.append(True)
            connection.renew()
            assert not connection.transmit(b"", b"")
            await eventually(lambda: len(links.opened) == 2)
        assert next(refusals, None) is None, "it was refused twice before"
        connection.close()

    monkeypatch.setattr(sockets, "configure", configure)
    asyncio.run(main())


def test_nothing_is_connected_until_there_is_something_to_send(
    router: zmq.Socket[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a hundred stream managers there would be twenty thousand connections."""
    endpoint = router.getsockopt_string(zmq.LAST_ENDPOINT)
    real = zmq.Context.instance().socket
    made: list[int] = []

    def socket(kind: int) -> Any:
        made.append(kind)
        return real(kind)

    monkeypatch.setattr(zmq.Context.instance(), "socket", socket)

    def received() -> list[bytes]:
        return router.recv_multipart(zmq.NOBLOCK) if router.poll(0) else []

    async def main() -> None:
        links = Links()
        record = plan_pb2.StmgrRecord(id="stmgr-2", data_endpoint=endpoint, control_endpoint=endpoint)
        connection = PeerConnection(record, b"s:stmgr-1:1", links, StmgrSettings(), lambda: 1)  # type: ignore[arg-type]
        connection.renew()
        connection.announce(control_pb2.Backpressure(stmgr_id="stmgr-1", on=False))
        assert not made, "its begin was not announced either"
        connection.announce(control_pb2.Backpressure(stmgr_id="stmgr-1", on=True))
        connection.announce(control_pb2.Backpressure(stmgr_id="stmgr-1", on=False))
        assert len(made) == 1
        for on in (True, False):
            parts: list[bytes] = []
            await eventually(lambda parts=parts: parts or parts.extend(received()) or parts)  # type: ignore[misc]
            message = parse(parts[-1])
            assert message is not None and message.backpressure.on is on
        connection.open()
        await eventually(lambda: links.opened == [1])
        connection.close()

    asyncio.run(main())
