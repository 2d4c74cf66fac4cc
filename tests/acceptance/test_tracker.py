"""The tracker as a stranger uses it: `heron ui`, real HTTP, a real topology; and what keeps others out."""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.support.command import WORD_COUNT, Heron
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Http:
    """Asks a tracker over a connection of its own each time."""

    def __init__(self, address: str) -> None:
        self.place = urlsplit(address)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.place.port, timeout=60)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = self.connect()
        given = {"Host": self.place.netloc, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if method == "POST":
            given |= {"X-Heron": "1", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, given)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, json.loads(data) if "json" in answer.headers["content-type"] else data

    def get(self, path: str) -> Any:
        status, found = self.ask("GET", path)
        assert status == 200, found
        return found


@pytest.fixture
def ui(heron: Heron) -> Iterator[Http]:
    """The tracker that `heron ui` starts."""
    address = heron("ui").ok().out.strip()
    assert heron("ui").ok().out.strip() == address, "the second call finds the first one's"
    yield Http(address)
    heron("ui", "stop").ok()
    assert "No tracker runs" in heron("ui", "status").ok().out


def events_of(stream: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    """The server-sent events of a stream."""
    name = ""
    while line := stream.readline():
        if line.startswith(b"event: "):
            name = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            yield name, json.loads(line[6:])


def test_a_topology_is_seen_and_changed_through_the_tracker(heron: Heron, ui: Http) -> None:
    heron.submit(WORD_COUNT, "WordCount")

    def running() -> dict[str, Any] | None:
        found = ui.get("/api/v1/topologies")["topologies"]  # which are looked for each two seconds
        return found[0] if found and found[0]["state"] == "RUNNING" else None

    one = wait_for(running, 60.0, "a topology that runs")
    assert one["name"] == "WordCount"
    place = "/api/v1/topologies/" + "/".join(one[part] for part in ("cluster", "role", "environ", "name"))

    def figures() -> dict[str, Any] | None:
        status, load = ui.ask("GET", f"{place}/load")
        return load if status == 200 and all(edge["tuples_per_s"] for edge in load["edges"]) else None

    load = wait_for(figures, 60.0, "the rates of the edges")
    assert sum(component["up"] for component in load["components"]) == one["tasks"]
    plan = ui.get(f"{place}/plan")
    assert {edge["id"] for edge in plan["edges"]} == {edge["id"] for edge in load["edges"]}
    spout, bolt = (next(node["name"] for node in plan["nodes"] if node["kind"] == kind) for kind in ("spout", "bolt"))
    assert len(ui.get(f"{place}/tasks")["tasks"]) == one["tasks"]
    assert ui.get(f"{place}/doctor")["findings"]
    assert {event["kind"] for event in ui.get(f"{place}/events")["events"]} >= {"life"}
    ui.get(f"{place}/timeline")
    assert any(one["key"] == "heron.instance.batch_tuples" for one in ui.get(f"{place}/config")["settings"])

    # logs come through the file services of the executors
    names = [file["process"] for file in ui.get(f"{place}/logs")["files"]]
    assert "tmaster" in names and "stmgr-1" in names and any(f"_{bolt}_" in name for name in names)
    assert any(line["text"] for line in ui.get(f"{place}/logs/tmaster")["lines"])

    # a live page sees the update that another one makes
    connection = ui.connect()
    path = f"/api/v1/live?topology={place.removeprefix('/api/v1/topologies/')}&level=fitting"
    connection.request("GET", path, headers={"Host": ui.place.netloc})
    stream = connection.getresponse()
    assert stream.headers["content-type"].startswith("text/event-stream")
    told = events_of(stream)
    name, snapshot = next(told)
    assert name == "snapshot" and snapshot["topology"]["name"] == "WordCount"
    assert snapshot["level"] == "tasks" and len(snapshot["tasks"]["tasks"]) == one["tasks"]
    before = {component["name"]: component["tasks"] for component in snapshot["load"]["components"]}
    body = {"parallelism": {bolt: before[bolt] + 1}, "dry_run": True}
    status, dry = ui.ask("POST", f"{place}/actions/update", body, If_Match=str(plan["version"]))
    assert status == 200 and len(dry["changes"]) >= 1, dry
    status, done = ui.ask("POST", f"{place}/actions/update", {**body, "dry_run": False}, If_Match=str(plan["version"]))
    assert status == 200, done
    grown = wait_for_rows(told, bolt, before[bolt] + 1)
    assert grown["plan"]["version"] > plan["version"]
    status, stale = ui.ask("POST", f"{place}/actions/update", body, If_Match=str(plan["version"]))
    assert status == 412, stale
    assert ui.ask("POST", f"{place}/actions/deactivate", {})[0] == 200
    assert heron.status("WordCount")["lifecycle"] == "PAUSED"
    assert ui.ask("POST", f"{place}/actions/restart", {"component": spout, "dry_run": True})[0] == 200
    status, killed = ui.ask("POST", f"{place}/actions/kill", {})
    assert status == 200 and heron.names() == [], killed
    assert next(body for name, body in told if name == "gone")["text"] == "topology 'WordCount' was killed"
    connection.close()
    actions = re.findall(r" requested (\w+) of ", (heron.home / "tracker" / "tracker.log").read_text())
    assert actions == ["update", "deactivate", "kill"], "dry runs change nothing"


def wait_for_rows(told: Iterator[tuple[str, Any]], component: str, tasks: int) -> dict[str, Any]:
    """The first snapshot in which the component has this number of tasks."""
    deadline = time.monotonic() + 60
    for name, body in told:
        assert time.monotonic() < deadline, "the update was not seen"
        if name == "snapshot" and body["load"]:
            for row in body["load"]["components"]:
                if row["name"] == component and row["tasks"] == tasks:
                    return dict(body)
    raise AssertionError("the stream has ended")


def test_its_files_are_private_and_its_port_moves_when_taken(heron: Heron) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8889))
            taken.listen()
        except OSError:
            pass  # another one has it, which is as good
        address = heron("ui").ok().out.strip()
        assert urlsplit(address).port != 8889
    folder = heron.home / "tracker"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    status = heron("ui", "status", "--json").json()
    process = psutil.Process(status["pid"])
    process.kill()
    wait_for(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, 10.0, "its end")
    assert "No tracker runs" in heron("ui", "status").ok().out, "a record of a killed tracker is not believed"
    assert heron("ui").ok().out.strip()
    heron("ui", "stop").ok()
