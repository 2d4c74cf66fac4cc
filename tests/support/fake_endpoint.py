"""A scheduler's control endpoint for tests, which records requests of containers and answers as the test has set."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import zmq
from google.protobuf.message import Message

from heronpy.common.errors import ConfigError, InvalidRpcError
from heronpy.net.authenticator import Authenticator
from heronpy.net.curve import Keys, Pair
from heronpy.net.join_token import JoinToken
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlServer
from heronpy.plan.launch import Submitted
from heronpy.proto import control_pb2, endpoint_pb2

PIECE_BYTES = 1 << 16


def new_pair() -> Pair:
    return Pair(*zmq.curve_keypair())


@dataclass
class FakeEndpoint:
    """The endpoint; needs a running event loop. A submission that is not in `verdicts` gets NONE after its wait."""

    submitted: Submitted
    host: str = "127.0.0.1"
    package: str = ""
    archive: bytes = b""
    shared: tuple[endpoint_pb2.SharedFolder, ...] = ()
    renew_s: float = 0.2
    fence_s: float = 2.0
    stop_grace_s: float = 1.0
    fencing: str = "epoch"
    log_kept_bytes: int = 1 << 20
    #: Where the archive is also available.
    package_place: str = ""
    verdicts: dict[tuple[int, int], tuple[Any, int]] = field(default_factory=dict)
    #: Whether the endpoint records requests without answering.
    mute: bool = False
    refuses: Exception | None = None

    def __post_init__(self) -> None:
        topology_id = self.submitted.topology_id
        self.keys = Keys(topology_id, new_pair(), new_pair())
        self.links = new_pair(), new_pair()
        self.heard: list[tuple[str, Any]] = []
        self.reads = 0
        self._authenticator = Authenticator(self.keys)
        self._changed = asyncio.Event()
        self._server = ControlServer([f"tcp://{self.host}:*"], self._on_request, keys=self.keys)
        self.endpoint = self._server.endpoints[0]
        self.token = JoinToken(topology_id, (self.endpoint,), self.keys.server.public, self.keys.client)

    def secret(self, container: int, submission: int) -> bytes:
        return hashlib.sha256(f"{container}.{submission}".encode()).digest()

    def all(self, kind: str) -> list[Any]:
        return [body for name, body in self.heard if name == kind]

    def say(self, container: int, submission: int, verdict: Any, epoch: int = 0) -> None:
        self.verdicts[container, submission] = verdict, epoch
        self._changed.set()
        self._changed = asyncio.Event()

    def activate(self, container: int, submission: int, epoch: int) -> None:
        self.say(container, submission, endpoint_pb2.VERDICT_ACTIVATED, epoch)

    async def more(self, identity: bytes, kind: str, body: Any) -> Message | None:
        """Answer a request that this class does not support; subclasses override this."""
        raise InvalidRpcError(f"the control endpoint of the test does not know {kind}")

    def send(self, identity: bytes, body: Message) -> bool:
        return self._server.send(identity, body)

    async def _on_request(self, identity: bytes, envelope: control_pb2.Envelope) -> Message | None:
        kind, body = body_of(envelope)
        self.heard.append((kind, body))
        while self.mute:
            await asyncio.sleep(3600)
        if self.refuses is not None:
            raise self.refuses
        if kind == "hello":
            return self._welcome(body)
        if kind.startswith("state_"):
            return await self.more(identity, kind, body)
        if body.credential.secret != self.secret(body.credential.container, body.credential.submission):
            raise InvalidRpcError("no session credential")
        if kind == "renew":
            return await self._renewed(body)
        if kind == "read_package":
            self.reads += 1
            return endpoint_pb2.PackagePiece(data=self.archive[body.offset : body.offset + PIECE_BYTES])
        return None

    def _welcome(self, hello: endpoint_pb2.Hello) -> endpoint_pb2.Welcome:
        server, client = self.links
        return endpoint_pb2.Welcome(
            secret=self.secret(hello.container, hello.submission),
            submitted=self.submitted.to_bytes(),
            package_place=self.package_place,
            server=endpoint_pb2.KeyPair(public=server.public, secret=server.secret),
            client=endpoint_pb2.KeyPair(public=client.public, secret=client.secret),
            package=self.package,
            package_bytes=len(self.archive),
            package_sha256=hashlib.sha256(self.archive).digest(),
            shared=self.shared,
            renew_s=self.renew_s,
            fence_s=self.fence_s,
            stop_grace_s=self.stop_grace_s,
            fencing=self.fencing,
            log_kept_bytes=self.log_kept_bytes,
        )

    async def _renewed(self, renew: endpoint_pb2.Renew) -> endpoint_pb2.Renewed:
        key = renew.credential.container, renew.credential.submission
        changed = self._changed
        verdict, epoch = self.verdicts.get(key, (endpoint_pb2.VERDICT_NONE, 0))
        if renew.wait_s and verdict in (endpoint_pb2.VERDICT_NONE, endpoint_pb2.VERDICT_GRANTED):
            with suppress(TimeoutError):
                async with asyncio.timeout(renew.wait_s):
                    await changed.wait()
            verdict, epoch = self.verdicts.get(key, (endpoint_pb2.VERDICT_NONE, 0))
        if verdict == endpoint_pb2.VERDICT_ACTIVATED and renew.epoch == epoch:
            verdict = endpoint_pb2.VERDICT_GRANTED
        if verdict == endpoint_pb2.VERDICT_ACTIVATED and renew.stopped >= epoch:
            verdict = endpoint_pb2.VERDICT_NONE
        return endpoint_pb2.Renewed(number=renew.number, verdict=verdict, epoch=epoch, why="the test says so")

    def shut(self) -> None:
        """Stop listening, until `reopen`."""
        self._server.close()

    def reopen(self) -> bool:
        """Listen again at the same address, like a later scheduler; return False while the address is in use."""
        try:
            self._server = ControlServer([self.endpoint], self._on_request, keys=self.keys)
        except (ConfigError, zmq.ZMQError):
            return False
        return True

    def close(self) -> None:
        self._authenticator.close()
        self._server.close()


def start_bootstrap(
    endpoint: FakeEndpoint,
    container: int,
    submission: int,
    tmp: Path,
    module: str = "tests.support.small_container",
    token: JoinToken | None = None,
    start_s: float = 30.0,
    through: Sequence[str] = (),
    stdout: IO[bytes] | None = None,
    **environ: str,
) -> subprocess.Popen[bytes]:
    """Start the first process of a container, with a separate folder for temporary files.

    `module` is the module to run; `through` is the command prefix that runs it on another host.
    """
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
        "TMPDIR": str(tmp),
        "PYTHONPATH": os.getcwd(),
        "HERON_TOPOLOGY_ID": endpoint.submitted.topology_id,
        "HERON_CONTAINER": str(container),
        "HERON_SUBMISSION": str(submission),
        **environ,
    }
    process = subprocess.Popen(
        [*through, sys.executable, "-Pm", module, "--start-s", str(start_s)],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert process.stdin is not None
    process.stdin.write((token or endpoint.token).to_text().encode())
    process.stdin.close()
    process.stdin = None
    return process
