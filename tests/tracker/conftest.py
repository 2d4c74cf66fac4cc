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
from heronpy.proto import control_pb2, plan_pb2
from heronpy.tracker import front, peer
from heronpy.tracker.app import App
from heronpy.tracker.folder import folder_of
from heronpy.tracker.guard import House
from heronpy.tracker.tracker import Tracker
from heronpy.views.findings import Finding, Verdict
from heronpy.views.load import Culprit, EdgeLoad, LoadAnswer
from heronpy.views.overview import totals_of
from tests.cli.conftest import FakeTopology, home, packing, word_count, wordy
from tests.support.views import component_load, load_answer

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


def load_reply() -> LoadAnswer:
    """Figures of wordy: its first count task has most of the work."""
    plan = plan_pb2.PhysicalPlan(version=3, topology=word_count())
    plan.stmgrs.add(id="stmgr-1", container=1, host="here")
    word = component_load("word", kind="spout", emitted_per_s=1000.0, busy=0.25, pending=5, restarts=0, lost=0)
    count = component_load(
        "count", tasks=2, up=2, executed_per_s=998.0, busy=0.5, blocked=0.125, idle=0.375, queue_bytes=4096,
        queue_tuples=17, latency_p50_s=0.001, latency_p99_s=0.02, end_to_end_p99_s=1.5, restarts=2, dead_letters=0,
        busy_max=0.96875, busiest="container_1_count_2", lost=0,
    )  # fmt: skip
    culprit = Culprit(
        name="container_1_count_2", component="count", task_id=2, queued_bytes=9, since_s=3.0, stmgr=""
    )  # fmt: skip
    skew = Finding(
        Verdict.SKEW, component="count", task="container_1_count_2",
        figures={"share": 0.9, "even": 0.5, "tasks": 2, "busy": 0.97, "median": 0.1},
    )  # fmt: skip
    return load_answer(
        word, count, topology_id="wordy-1", plan=plan.SerializeToString(), plan_version=3, state="RUNNING",
        uptime_s=65.0, at=1e9 + 65, window_s=10.0, since=1e9, held=0.25, last_event=7, latency_p99_s=1.5,
        edges=[EdgeLoad(id="word/default>count", tuples_per_s=998.0)], culprits=[culprit],
        totals=totals_of(control_pb2.TupleTotals(acked=41), {}), findings=[skew],
    )  # fmt: skip


@pytest.fixture
def busy(wordy: FakeTopology) -> FakeTopology:
    """wordy, whose topology master tells its figures."""
    wordy.answers["get_load"] = load_reply()
    assert packing().version == 1
    return wordy
