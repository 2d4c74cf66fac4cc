"""Traces and slow tuples of running topologies: in each mode, over each grouping, across containers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Heron
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

#: Each grouping in a topology of two containers; `quick` is fast, but for one tuple now and then.
PROGRAM = """
import sys, time
from heronpy import Bolt, Grouping, Spout, StatefulComponent, TopologyBuilder, TopologyReliabilityMode
from heronpy.api import api_constants

mode = sys.argv[1]

class Source(Spout, StatefulComponent):
    outputs = ["number", "word"]
    def init_state(self, state):
        self.state = state
    def pre_save(self, checkpoint_id):
        pass
    def initialize(self, config, context):
        self.number = 0
    def next_tuple(self):
        for _ in range(50):
            self.number += 1
            self.emit([self.number, "word%d" % (self.number % 7)], tup_id=self.number)
        self.wait(0.02)
    def ack(self, tup_id):
        pass
    def fail(self, tup_id):
        pass

class Relay(Bolt):
    outputs = ["number", "word"]
    def process(self, tup):
        self.emit(list(tup.values), anchors=[tup])
        self.ack(tup)

class Window(Bolt):
    outputs = ["number", "word"]
    def process(self, tup):
        self.ack(tup)

class Quick(Bolt):
    def process(self, tup):
        if tup.values[0] % 3000 == 1500:
            time.sleep(0.25)
        self.ack(tup)

class Sink(Bolt):
    def process(self, tup):
        self.ack(tup)

builder = TopologyBuilder(sys.argv[2])
source = builder.add_spout("source", Source, par=1)
if mode == "ATLEAST_ONCE":
    groupings = {
        "shuffle": Grouping.SHUFFLE, "fields": Grouping.fields("word"), "all": Grouping.ALL, "global": Grouping.GLOBAL,
        "none": Grouping.NONE, "local": Grouping.LOCAL_OR_SHUFFLE,
    }
    for name, grouping in groupings.items():
        builder.add_bolt(name, Sink, par=2, inputs={source: grouping})
else:
    relay = builder.add_bolt("relay", Relay, par=2, inputs={source: Grouping.fields("word")})
    builder.add_bolt("sink", Sink, par=1, inputs={relay: Grouping.SHUFFLE})
    window = builder.add_bolt("window", Window, par=1, inputs={relay: Grouping.SHUFFLE})
    builder.add_bolt("after", Sink, par=1, inputs={window: Grouping.SHUFFLE})
    builder.add_bolt("quick", Quick, par=1, inputs={source: Grouping.SHUFFLE})
builder.set_config({
    api_constants.TOPOLOGY_RELIABILITY_MODE: getattr(TopologyReliabilityMode, mode),
    api_constants.TOPOLOGY_STMGRS: 2,
    api_constants.TOPOLOGY_MAX_SPOUT_PENDING: 1000,
})
builder.build_and_submit()
"""

MODES = {"most": "ATMOST_ONCE", "least": "ATLEAST_ONCE", "once": "EFFECTIVELY_ONCE"}


def trace(heron: Heron, name: str, *flags: str) -> Any:
    return heron("trace", "local", name, "--seconds", "2", "--json", *flags).json()


def ways(found: Any) -> dict[tuple[str, str], set[str]]:
    """The hops that are known of each way between two components."""
    known: dict[tuple[str, str], set[str]] = {}
    for hop in found["hops"]:
        assert 0 <= hop["p50_s"] <= hop["p99_s"] <= hop["max_s"] and hop["count"] > 0
        known.setdefault((hop["source"], hop["target"]), set()).add(hop["hop"])
    return known


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """A collector of OpenTelemetry, which keeps what it is sent."""
    bodies: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_traces_in_every_mode(heron: Heron, tmp_path: Path) -> None:
    program = tmp_path / "traced.py"
    program.write_text(PROGRAM)
    for name, mode in MODES.items():
        heron("submit", "local", program, "-", mode, name).ok()

    whole = {"batch", "queue", "wire", "in-queue", "process"}
    found = trace(heron, "least")
    assert found["matching"] > 20 and found["p50_s"] <= found["p99_s"]
    known = ways(found)
    for name in ("shuffle", "fields", "all", "global", "none", "local"):
        assert known["source/default", name] == whole, name
    assert known["", "source"] == {"process", "ack"}
    tasks = {span["instance_id"].split("_")[1] for one in found["traces"] for span in one["spans"]}
    assert tasks == {"1", "2"}, "both containers"
    counts = {(hop["target"], hop["hop"]): hop["count"] for hop in found["hops"]}
    near = {"rel": 0.2}  # a busy task may have to give up spans
    assert counts["all", "process"] == pytest.approx(2 * counts["global", "process"], **near)
    assert counts["shuffle", "process"] == pytest.approx(counts["all", "process"], **near), "50 tuples in a call"
    assert counts["source", "ack"] > 0.5 * found["matching"], "the newest ones may not be acked yet"
    for one in found["traces"]:
        assert one["spans"][0]["parent"] is None and {span["end"] for span in one["spans"][1:]} <= {"ends", "acked"}
        assert all(span["exact"] for span in one["spans"])

    for name in ("most", "once"):
        found = trace(heron, name)
        known = ways(found)
        assert known["source/default", "relay"] == known["relay/default", "sink"] == whole, name
        assert ("window/default", "after") not in known
        ends = {(span["component"], span["end"]) for one in found["traces"] for span in one["spans"]}
        assert {("relay", "goes_on"), ("sink", "ends"), ("window", "held"), ("quick", "ends")} <= ends
        assert known["", "source"] == {"process"}

    with collector() as (url, bodies):
        shown = heron("trace", "local", "most", "--seconds", "2", "--otlp", url).ok().out
        assert "the slowest, " in shown and f"spans were sent to {url}/v1/traces" in shown
        [span, *_] = bodies[0]["resourceSpans"][0]["scopeSpans"][0]["spans"]
        assert len(span["traceId"]) == 32 and len(span["spanId"]) == 16 and span["name"] == "source.next_tuple"

    def slow() -> Any:
        tuples = heron("slow", "local", "most", "--component", "quick", "--json").json()["tuples"]
        return [one for one in tuples if one["value"] is not None]

    for one in wait_for(slow, 60.0, "a slow tuple among quick ones with its value"):
        number = json.loads(one["value"].replace("'", '"'))[0]
        assert number % 3000 == 1500 and one["took_s"] >= 0.24 and one["source"] == "source/default"
