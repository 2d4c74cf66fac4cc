"""Rules and dashboard name only what is on the pages, and Prometheus itself accepts them."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from heronpy.metrics.monitoring import ALERTS, PANELS, dashboard, rules
from heronpy.metrics.names import METRICS, Kind
from heronpy.metrics.prometheus import Page
from heronpy.metrics.sums import SUMS
from heronpy.proto import control_pb2
from tests.support.prometheus import prometheus_tool
from tests.support.waiting import wait_for

EXPRESSIONS = [alert.expr for alert in ALERTS] + [expr for panel in PANELS for expr, _ in panel.lines]


def reports() -> list[control_pb2.MetricsReport]:
    """One task that reports every metric."""
    report = control_pb2.MetricsReport(process="container_1_word_1", task_id=1, component="word", container=1)
    types = {Kind.COUNTER: "COUNTER", Kind.GAUGE: "GAUGE", Kind.HISTOGRAM: "HISTOGRAM"}
    for metric in METRICS.values():
        report.samples.add(name=metric.name, type=types[metric.kind])
    return [report]


@pytest.fixture(scope="module")
def on_pages() -> set[str]:
    """Every name that a page can have."""
    page = Page("t").text(reports())
    return {re.split(r"[{ ]", line)[0] for line in page.splitlines() if not line.startswith("#")} | SUMS.keys()


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_expressions_name_only_what_is_on_a_page(expr: str, on_pages: set[str]) -> None:
    names = set(re.findall(r"\bheron_\w+", expr))
    assert names and names <= on_pages


def test_every_alert_can_be_acted_on() -> None:
    names = [alert.name for alert in ALERTS]
    assert 10 <= len(names) == len(set(names))
    for alert in ALERTS:
        assert alert.fix.startswith("heron ") and alert.severity in ("critical", "warning")


def test_the_dashboard_shows_each_panel_once() -> None:
    model = json.loads(json.dumps(dashboard()))
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in model["panels"]}
    assert len(places) == len(model["panels"]) == len(PANELS)
    assert [one["name"] for one in model["templating"]["list"]] == ["datasource", "cluster", "topology"]


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    promtool = prometheus_tool("promtool")
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump(rules()))
    done = subprocess.run([promtool, "check", "rules", path], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


def test_promtool_finds_nothing_wrong_with_a_page() -> None:
    promtool = prometheus_tool("promtool")
    text = Page("t").text(reports())
    done = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@contextmanager
def _served(text: str) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _ask(port: int, path: str) -> Any:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None  # it starts


def test_the_real_prometheus_scrapes_evaluates_and_fires(tmp_path: Path) -> None:
    prometheus = prometheus_tool("prometheus")
    at_once = rules()
    for rule in at_once["groups"][0]["rules"]:
        rule["for"] = "0s"
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(at_once))
    down = 'heron_topology_state{cluster="local",topology="t",state="FAILED"} 1\n'
    with _served(Page("t").text(reports()) + down) as page:
        (tmp_path / "targets.json").write_text(
            json.dumps([{"targets": [f"127.0.0.1:{page}"], "labels": {"cluster": "local"}}])
        )
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "heron", "file_sd_configs": [{"files": ["targets.json"]}]}],
        }
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        port = _free_port()
        words = [prometheus, "--config.file", str(tmp_path / "prometheus.yml"), "--storage.tsdb.path", str(tmp_path / "data"),
                 "--web.listen-address", f"127.0.0.1:{port}"]  # fmt: skip
        with open(tmp_path / "log", "wb") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            wait_for(lambda: {"HeronTopologyDown", "HeronTasksDown"} <= _firing(port), 60, "an alert")
            groups = _ask(port, "/api/v1/rules")["groups"]
            assert {rule["health"] for rule in groups[0]["rules"]} == {"ok"}
            for expr, _ in (line for panel in PANELS for line in panel.lines):
                shown = expr.replace("$topology", "t").replace("$cluster", ".*").replace("$__rate_interval", "1m")
                assert _ask(port, "/api/v1/query?" + urllib.parse.urlencode({"query": shown})) is not None, shown
        finally:
            process.terminate()
            process.wait(20)


def _firing(port: int) -> set[str]:
    found = _ask(port, "/api/v1/alerts")
    return {one["labels"]["alertname"] for one in found["alerts"] if one["state"] == "firing"} if found else set()
