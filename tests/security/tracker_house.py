"""A tracker with something to steal: canaries next to the folder of logs, and requests sent byte by byte."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import pytest

from heronpy.proto import control_pb2
from heronpy.tracker.app import App, routes
from heronpy.tracker.calls import Route
from heronpy.tracker.tracker import Tracker
from heronpy.views.past import Slow
from tests.cli.conftest import FakeTopology
from tests.support.container_files import serve_files
from tests.support.views import events, traces
from tests.tracker.conftest import HOST, Asking

T = TypeVar("T")
#: In no answer.
CANARY = "c4naryC4NARY"
#: A line of /etc/passwd.
PASSWD = "root:x:0:0"
PLACE = {"cluster": "local", "role": "me", "environ": "default", "name": "wordy"}
ROUTES = routes()
CHANGE = {"X-Heron": "1", "Content-Type": "application/json"}


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class House:
    """A tracker, asked in one event loop, exactly as it is written."""

    asking: Asking
    topology: FakeTopology
    folder: Path
    headers: dict[str, str] = field(default_factory=dict)

    def within(self, do: Callable[[Asker], Awaitable[T]]) -> T:
        """Run something with an `Asker`."""

        async def run(_: Any, tracker: Tracker) -> T:
            return await do(Asker(App(tracker), tracker))

        return self.asking.within(run)


class Asker:
    """Sends requests as uvicorn would hand them on."""

    def __init__(self, app: App, tracker: Tracker) -> None:
        self.app, self.tracker = app, tracker

    async def send(
        self, method: str, path: str, query: str = "", headers: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """`path` and `query` are sent as they are; of a stream the first piece is the body."""
        raw = path.encode()
        given = {"host": HOST, **{name.lower(): value for name, value in (headers or {}).items()}}
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "scheme": "http", "root_path": "",
            "path": unquote(raw.decode("ascii", "replace") if raw.isascii() else path), "raw_path": raw,
            "query_string": query.encode("utf-8", "surrogateescape"), "client": ("127.0.0.1", 40000), "server": ("127.0.0.1", 8889),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        }  # fmt: skip
        found = Answer(0, {}, b"")
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def take(message: Any) -> None:
            if message["type"] == "http.response.start":
                found.status = message["status"]
                found.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                found.body += message.get("body", b"")

        await self.app(scope, receive, take)
        return found


@pytest.fixture
def house(asking: Asking, busy: FakeTopology, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """The file services of its executors answer without a network, for the files of a folder as they lie there."""
    folder = Path(busy.record.working_dir)
    (folder / "canary.txt").write_text(CANARY)
    (folder.parent / "canary.txt").write_text(CANARY)
    os.chmod(folder / "canary.txt", 0o600)
    (folder / "log-files" / "container_1_word_1.log").write_text("an ordinary line\n")

    busy.answers |= {
        "get_metrics": control_pb2.MetricsReply(interval_s=60.0), "get_exceptions": control_pb2.ExceptionsReply(),
        "get_slow": Slow(tuples=[]), "get_traces": traces(),
        "get_events": events(), "get_checkpoints": control_pb2.CheckpointsReply(),
    }  # fmt: skip

    serve_files(monkeypatch, folder)
    yield House(asking, busy, folder)


def path_of(route: Route, **values: str) -> str:
    """An address of the route; `values` replace those of wordy, and what the route needs besides."""
    known = {
        **PLACE,
        "id": "2",
        "number": "1",
        "process": "container_1_word_1",
        "job": "wordy",
        "pool": "wordy",
        "layer": "oncall",
        **values,
    }
    return re.sub(r"\{(\w+)\}", lambda match: known[match[1]], route.path)


def named(route: Route) -> str:
    return f"{route.method} {route.path}"
