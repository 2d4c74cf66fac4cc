"""A tracker over the fake topology 'wordy', asked without a network."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from heronpy.clusters.target import Common
from heronpy.proto import control_pb2
from heronpy.tracker import front, peer
from heronpy.tracker.app import App
from heronpy.tracker.folder import folder_of
from heronpy.tracker.guard import House
from heronpy.tracker.tracker import Tracker
from tests.cli.conftest import FakeTopology, home, packing, word_count, wordy

__all__ = ["home", "wordy"]

T = TypeVar("T")
NAME = "0123456789abcdef" * 2 + ".localhost"
HOST = f"{NAME}:8889"
BARE = "127.0.0.1:8889"
WORDY = "/api/v1/topologies/local/me/default/wordy"


@dataclass
class Asking:
    """Asks a tracker, each time in an event loop of its own."""

    folder: Path
    headers: dict[str, str] = field(default_factory=dict)
    clusters: tuple[str, ...] = ("local",)

    def tracker(self) -> Tracker:
        house = House(os.getuid(), frozenset({BARE, "localhost:8889"}), "http", name=NAME)
        return Tracker(self.clusters, Common(), house, self.folder)

    def within(self, do: Callable[[httpx.AsyncClient, Tracker], Awaitable[T]]) -> T:
        """Run something with a client."""

        async def run() -> T:
            tracker = self.tracker()
            transport = httpx.ASGITransport(App(tracker), client=("127.0.0.1", 40000))
            try:
                async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                    return await do(client, tracker)
            finally:
                tracker.close()

        return asyncio.run(run())

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {**self.headers, **more.pop("headers", {})}
        return self.within(lambda client, _: client.request(method, path, headers=headers, **more))

    def get(self, path: str, **more: Any) -> Any:
        response = self.ask("GET", path, **more)
        assert response.status_code == 200, response.text
        return response.json()

    def act(self, action: str, body: dict[str, Any] | None = None, **headers: str) -> httpx.Response:
        given = {"X-Heron": "1", **{name.replace("_", "-"): value for name, value in headers.items()}}
        return self.ask("POST", f"{WORDY}/actions/{action}", json=body or {}, headers=given)


@pytest.fixture
def asking(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asking]:
    """The tracker's own user asks, as the kernel would say."""
    monkeypatch.setattr(peer, "uid_of", lambda client, server: os.getuid())
    assert front.peer is peer
    home.mkdir(mode=0o700, exist_ok=True)
    yield Asking(folder_of(home))


def load_reply() -> control_pb2.LoadReply:
    """Figures of wordy: its first count task has most of the work."""
    reply = control_pb2.LoadReply(
        topology="wordy", topology_id="wordy-1", lifecycle=control_pb2.LIFE_RUNNING, plan_version=3, uptime_s=65.0,
        at=1e9 + 65, window_s=10.0, since=1e9, held=0.25, last_event=7,
    )  # fmt: skip
    reply.plan.topology.CopyFrom(word_count())
    reply.plan.version = 3
    reply.plan.stmgrs.add(id="stmgr-1", container=1, host="here")
    reply.components.add(component="word", spout=True, tasks=1, up=1, emitted=1000.0, busy=0.25, pending=5)
    count = reply.components.add(
        component="count", tasks=2, up=2, executed=998.0, busy=0.5, blocked=0.125, idle=0.375, queue_bytes=4096,
        queue_tuples=17, execute_p50_s=0.001, execute_p99_s=0.02, end_to_end_p99_s=1.5, restarts=2,
    )  # fmt: skip
    count.busiest.value, count.busiest.task_id, count.busiest.container = 0.96875, 2, 1
    reply.edges.add(source=0, stream="default", target=1, tuples=998.0)
    reply.culprits.add(task_id=2, component="count", instance_id="container_1_count_2", queued_bytes=9, since_s=3.0)
    reply.totals.acked = 41
    reply.findings.add(
        verdict=control_pb2.VERDICT_SKEW, component="count", task="container_1_count_2",
        figures={"share": 0.9, "even": 0.5, "tasks": 2, "busy": 0.97, "median": 0.1},
    )  # fmt: skip
    return reply


@pytest.fixture
def busy(wordy: FakeTopology) -> FakeTopology:
    """wordy, whose topology master tells its figures."""
    wordy.answers["get_load"] = load_reply()
    assert packing().version == 1
    return wordy
