"""Clients: answers, refusals, deadlines, and a peer that ends while somebody waits for it, or gets a successor."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from heronpy.common.errors import DeadlineError, LostReplyError, RpcError
from heronpy.net import rpc
from heronpy.net.rpc import RpcClient
from heronpy.net.rpc_loop import ControlClient
from heronpy.proto import control_pb2
from tests.support.wires import new_endpoint

SERVER = """
import asyncio, sys
from heronpy.common.errors import RpcError
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlServer
from heronpy.proto import control_pb2

async def answer(identity, envelope):
    text = body_of(envelope)[1].text
    if text == "refuse":
        raise RpcError("no")
    if text == "silence":
        await asyncio.sleep(3600)
    return control_pb2.Ok(text=text)

async def main():
    server = ControlServer([sys.argv[1]], answer)
    print(server.endpoints[0], flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def test_answers_refusals_and_deadlines() -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER, new_endpoint()], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        endpoint = server.stdout.readline().strip()
        with RpcClient(endpoint, peer="the master") as client:
            assert client.call(control_pb2.Ok(text="hello")).text == "hello"
            with pytest.raises(RpcError, match="no"):
                client.call(control_pb2.Ok(text="refuse"))
            with pytest.raises(DeadlineError, match=r"the master did not answer within 0\.1 s"):
                client.call(control_pb2.Ok(text="silence"), 0.1)
            assert client.call(control_pb2.Ok(text="again")).text == "again"
        server.kill()


def test_a_client_hears_of_the_successor_of_its_peer() -> None:
    async def ask(client: ControlClient, back: asyncio.Event, server: subprocess.Popen[str]) -> None:
        assert (await client.call(control_pb2.Ok(text="first"), 30.0)).text == "first"
        assert not back.is_set(), "the first connection is not one that is back"
        server.kill()
        server.wait()
        with subprocess.Popen([sys.executable, "-c", SERVER, client.endpoint], stdout=subprocess.DEVNULL) as successor:
            async with asyncio.timeout(30.0):
                await back.wait()
            assert (await client.call(control_pb2.Ok(text="second"), 30.0)).text == "second"
            successor.kill()

    async def scene(endpoint: str, server: subprocess.Popen[str]) -> None:
        back = asyncio.Event()
        client = ControlClient(endpoint, lambda envelope: None, on_reconnect=back.set)
        try:
            await ask(client, back, server)
        finally:
            client.close()

    with subprocess.Popen([sys.executable, "-c", SERVER, new_endpoint()], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        asyncio.run(scene(server.stdout.readline().strip(), server))


def test_somebody_who_waits_hears_of_the_end() -> None:
    program = f"import os, signal\n{SERVER}".replace("await asyncio.sleep(3600)\n    return", "os._exit(1)\n    return")
    with subprocess.Popen([sys.executable, "-c", program, new_endpoint()], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        with RpcClient(server.stdout.readline().strip(), peer="the master") as client:
            with pytest.raises(DeadlineError, match="the master ended before it answered"):
                client.call(control_pb2.Ok(text="silence"), 3600.0)


class Registry:
    """Whether a peer is registered: the answers in turn, then the last one again."""

    def __init__(self, *answers: bool) -> None:
        self.left = list(answers)
        self.looks = 0

    def __call__(self) -> bool:
        self.looks += 1
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


def test_who_asks_a_peer_that_had_ended_before_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its location was read, then it ended: ZeroMQ goes on connecting to where nobody is."""
    monkeypatch.setattr(rpc, "LOOK_S", 0.05)
    gone = Registry(True, False)
    with RpcClient(new_endpoint(), peer="the master", registered=gone) as client:
        with pytest.raises(LostReplyError, match="the master ended before it answered"):
            client.call(control_pb2.Ok(text="hello"), 3600.0)
    assert gone.looks == 3, "a single no may be a moment without a registration"


def test_a_registration_that_comes_back_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "LOOK_S", 0.05)
    back = Registry(False, True, False, True)
    with RpcClient(new_endpoint(), peer="the master", registered=back) as client:
        with pytest.raises(DeadlineError, match="did not answer within"):
            client.call(control_pb2.Ok(text="hello"), 0.5)
    assert back.looks >= 2
