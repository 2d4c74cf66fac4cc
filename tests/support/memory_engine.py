"""An engine in memory, and containers that only send messages, for a scheduler in the test's process."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from heronpy.common.errors import HeronError
from heronpy.engines.contract import (
    Ended,
    EngineAwayError,
    EngineFatalError,
    EnginePhase,
    Explained,
    Found,
    NodeSize,
    Request,
    Seen,
    Traits,
)
from heronpy.engines.lease import Fencing, Lease, LeaseTimes
from heronpy.net.join_token import JoinToken
from heronpy.net.rpc_loop import ControlClient
from heronpy.procs.exit_reason import ExitReason
from heronpy.proto import endpoint_pb2
from heronpy.scheduler.admission import PYTHON

HOSTS = ("n1", "n2", "n3")


class MemoryEngine:
    """An engine with three hosts of unlimited capacity; it calls `started` for each container that runs."""

    traits = Traits()

    def __init__(self, hosts: Sequence[str] = HOSTS) -> None:
        self.hosts = list(hosts)
        self.objects: dict[str, Seen] = {}
        self.requests: dict[str, Request] = {}
        self.started: Callable[[str, Request, str], None] = lambda engine_id, request, host: None
        self.ended: Callable[[str], None] = lambda engine_id: None
        #: Whether requests wait for capacity.
        self.full = False
        self.refuses = ""
        self.away = ""
        #: While this event is set, calls hang.
        self.hangs = threading.Event()
        self.calls: list[str] = []
        self.changed: Callable[[], None] = lambda: None

    def _called(self, name: str) -> None:
        self.calls.append(name)
        while self.hangs.is_set():
            time.sleep(0.01)
        if self.away:
            raise EngineAwayError(self.away)

    def check(self) -> Sequence[Found]:
        return [Found("memory", True)]

    def node_sizes(self) -> Sequence[NodeSize]:
        return []

    def submit(self, requests: Sequence[Request]) -> dict[tuple[int, int], str]:
        self._called("submit")
        if self.refuses:
            raise EngineFatalError(self.refuses)
        ids = {}
        for one in requests:
            engine_id = f"{len(self.requests) + 800}_{one.container}"
            free = [host for host in self.hosts if host not in one.avoid]
            host = "" if self.full or not free else free[one.container % len(free)]
            self.requests[engine_id] = one
            phase = EnginePhase.RUNNING if host else EnginePhase.QUEUED
            self.objects[engine_id] = Seen(engine_id, one.container, one.submission, phase, host, avoid=one.avoid)
            ids[one.container, one.submission] = engine_id
            if host:
                self.started(engine_id, one, host)
        return ids

    def make_room(self) -> None:
        """Start the waiting objects."""
        self.full = False
        for engine_id, one in list(self.objects.items()):
            free = [host for host in self.hosts if host not in one.avoid]
            if one.phase is EnginePhase.QUEUED and free:
                self.objects[engine_id] = replace(one, phase=EnginePhase.RUNNING, host=free[0])
                self.started(engine_id, self.requests[engine_id], free[0])

    def list(self) -> Sequence[Seen]:
        self._called("list")
        return list(self.objects.values())

    def cancel(self, engine_ids: Sequence[str], grace_s: float) -> None:
        self._called("cancel")
        for engine_id in engine_ids:
            self.end(engine_id, ExitReason.KILLED)

    def end(self, engine_id: str, reason: ExitReason, words: str = "it ended") -> None:
        """End an object with a confirmed end."""
        found = self.objects[engine_id]
        if found.ended is Ended.NO:
            self.objects[engine_id] = replace(
                found, phase=EnginePhase.ENDED, ended=Ended.CONFIRMED, reason=reason, words=words
            )
            self.ended(engine_id)

    @contextmanager
    def watch(self, changed: Callable[[], None]) -> Iterator[None]:
        self.changed = changed
        yield
        self.changed = lambda: None

    def reach(self) -> tuple[str, ...]:
        return ("127.0.0.1",)

    def ready(self, hosts: Collection[str]) -> set[str]:
        return {*hosts}

    def explain(self, engine_id: str) -> Explained:
        self._called("explain")
        return Explained("Resources", 2e9)

    def termination_report(self, engine_id: str) -> str:
        return ""

    def look_command(self) -> str:
        return "squeue --me"

    def topologies(self) -> dict[str, int]:
        return {}

    def alive(self) -> list[str]:
        return [engine_id for engine_id, one in self.objects.items() if one.ended is Ended.NO]


@dataclass
class Pretend:
    """A container that says hello, renews its lease, and acts when it is activated. It needs a running event loop."""

    request: Request
    host: str
    topology_id: str = ""
    release: str = "0"
    python: str = PYTHON
    welcome: endpoint_pb2.Welcome | None = None
    #: The epoch in which it acts; 0 while it does not act.
    epoch: int = 0
    epochs: list[int] = field(default_factory=list)
    #: The cause of its start, as reported by the endpoint.
    after: list[endpoint_pb2.Cause] = field(default_factory=list)
    granted: int = 0
    fenced: str = ""
    refused: str = ""
    nonce: bytes = field(default_factory=lambda: os.urandom(32))

    def __post_init__(self) -> None:
        self.token = JoinToken.from_text(self.request.token, "the test's token")
        self.client = ControlClient(self.token.addresses[0], lambda _: None, keys=self.token.keys())
        self._task: asyncio.Task[None] | None = None

    def run(self) -> None:
        self._task = asyncio.create_task(self._run())

    @property
    def credential(self) -> endpoint_pb2.SessionCredential:
        assert self.welcome is not None
        return endpoint_pb2.SessionCredential(
            container=self.request.container, submission=self.request.submission, secret=self.welcome.secret
        )

    def hello(self) -> endpoint_pb2.Hello:
        return endpoint_pb2.Hello(
            topology_id=self.topology_id or self.request.topology_id,
            container=self.request.container,
            submission=self.request.submission,
            heronpy=self.release,
            python=self.python,
            host=self.host,
            nonce=self.nonce,
        )

    async def _run(self) -> None:
        while self.welcome is None:
            try:
                self.welcome = await self.client.call(self.hello(), 2.0)
            except HeronError as error:
                self.refused = str(error)
                await asyncio.sleep(0.05)
        told = self.welcome
        lost_s = 2 * (told.fence_s + told.stop_grace_s)
        lease = Lease(LeaseTimes(told.renew_s, told.fence_s, lost_s, told.stop_grace_s, lost_s), Fencing(told.fencing))
        while not self.fenced:
            now = time.monotonic()
            number = lease.ask(now)
            wait_s = 0.0 if lease.epoch else told.renew_s
            ask = endpoint_pb2.Renew(
                credential=self.credential, number=number, epoch=lease.epoch, stopped=lease.stopped, wait_s=wait_s
            )
            with suppress(HeronError):
                answer = await self.client.call(ask, told.renew_s + 1.0)
                if answer.verdict == endpoint_pb2.VERDICT_GRANTED:
                    lease.granted(number, time.monotonic())
                    self.granted += 1
                elif answer.verdict == endpoint_pb2.VERDICT_ACTIVATED:
                    if lease.activated(number, answer.epoch, time.monotonic()):
                        self.epochs.append(answer.epoch)
                        self.after += [answer.after] if answer.HasField("after") else []
                elif answer.verdict == endpoint_pb2.VERDICT_FENCED:
                    self.fenced = answer.why or "fenced"
            self.epoch = 0 if self.fenced else lease.epoch
            if lease.epoch:
                await asyncio.sleep(told.renew_s / 2)

    def stop(self) -> None:
        """Simulate the end of the container's process."""
        if self._task is not None:
            self._task.cancel()
        self.client.close()
        self.epoch = 0
