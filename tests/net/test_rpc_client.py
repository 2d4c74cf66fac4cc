"""The blocking client: answers, refusals, deadlines, and a peer that ends while somebody waits for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from heronpy.common.errors import DeadlineError, RpcError
from heronpy.net.rpc import RpcClient
from heronpy.proto import control_pb2
from tests.support.wires import new_endpoint

SERVER = """
import asyncio, sys
from heronpy.common.errors import RpcError
from heronpy.net.rpc import ControlServer, body_of
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


def test_somebody_who_waits_hears_of_the_end() -> None:
    program = f"import os, signal\n{SERVER}".replace("await asyncio.sleep(3600)\n    return", "os._exit(1)\n    return")
    with subprocess.Popen([sys.executable, "-c", program, new_endpoint()], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        with RpcClient(server.stdout.readline().strip(), peer="the master") as client:
            with pytest.raises(DeadlineError, match="the master ended before it answered"):
                client.call(control_pb2.Ok(text="silence"), 3600.0)
