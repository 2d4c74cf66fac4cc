"""Runs a scheduler's control endpoint and its state in a separate process, without the scheduler: `python -m
tests.support.endpoint_process FOLDER`. It routes StateCall like `heronpy.scheduler.control_endpoint`. On SIGUSR1, it
writes the requests that it has served to the file `requests`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from heronpy.common.errors import InvalidRpcError
from heronpy.net import endpoint_keys
from heronpy.net.authenticator import Authenticator
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlServer
from heronpy.procs.linux import die_with_parent
from heronpy.proto import control_pb2, endpoint_pb2
from heronpy.scheduler.state_endpoint import StateEndpoint
from heronpy.scheduler.state_records import SessionLimits
from heronpy.scheduler.state_rules import ContainerRules, Rules, Use
from heronpy.statemgr import open_state

TICK_S = 0.1


class Anything:
    """Rules that allow everything, because the tests of the contract use nodes of many topologies."""

    def refusal(self, use: Use, path: str, container: int) -> str:
        return ""


class Server:
    def __init__(self, folder: Path) -> None:
        options = json.loads((folder / "options.json").read_text())
        self.keys = endpoint_keys.load(str(folder), options["topology_id"])
        self.state = open_state("local", str(folder / "state"))
        rules: Rules = Anything()
        if options["rules"] == "container":
            rules = of_containers = ContainerRules(options["topology"])
            of_containers.masters = frozenset(range(100))  # the tests write from any of them
        self.endpoint = StateEndpoint(
            self.state, options["topology"], time.monotonic, rules, SessionLimits(**options.get("limits", {}))
        )
        self.authenticator = Authenticator(self.keys.keys)
        self.rpc = ControlServer([f"tcp://127.0.0.1:{options['port']}"], self.on_request, keys=self.keys.keys)
        self.authenticator.watch(self.rpc.sock)
        self.served: Counter[str] = Counter()
        #: Number of answers to lose, by kind of call.
        self.losing: dict[str, int] = options.get("losing", {})

    def on_request(self, identity: bytes, envelope: control_pb2.Envelope) -> Message | Awaitable[Message | None]:
        field, body = body_of(envelope)
        if field == "state_call":
            credential = body.credential
            if not self.keys.is_valid(credential.container, credential.submission, credential.secret):
                raise InvalidRpcError("no session credential of this topology")
            if self.endpoint.container_of(body.session) not in (None, credential.container):
                raise InvalidRpcError("another container's session")
            what = kind_of(body)
            self.served[f"{credential.container} {what}"] += 1
            call = self.endpoint.call(
                body, credential.container, envelope.request_id, lambda changed: self.rpc.send(identity, changed)
            )
            return self.answer(what, call)
        raise InvalidRpcError(f"unknown request {field}")

    async def answer(self, what: str, call: Awaitable[endpoint_pb2.StateAnswer]) -> endpoint_pb2.StateAnswer:
        found = await call
        if self.losing.get(what, 0) > 0:
            self.losing[what] -= 1
            await asyncio.sleep(3600)
        return found

    async def run(self, folder: Path) -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, ended.set)
        loop.add_signal_handler(signal.SIGUSR1, lambda: self.tell(folder))
        print("ready", flush=True)
        while not ended.is_set():
            try:
                async with asyncio.timeout(TICK_S):
                    await ended.wait()
            except TimeoutError:
                self.endpoint.tick(time.monotonic())
        self.authenticator.close()
        self.rpc.close()
        self.endpoint.close()
        self.state.close()

    def tell(self, folder: Path) -> None:
        partial = folder / "requests.partial"
        partial.write_text(json.dumps(self.served))
        os.replace(partial, folder / "requests")


def kind_of(body: endpoint_pb2.StateCall) -> str:
    if body.HasField("put"):
        return "create" if body.put.ephemeral else "delete" if body.put.remove else "set"
    return str(body.WhichOneof("what"))


async def main(folder: Path) -> None:
    await Server(folder).run(folder)


if __name__ == "__main__":
    die_with_parent(signal.SIGKILL, os.getppid())
    argument: Any = sys.argv[1]
    asyncio.run(main(Path(argument)))
