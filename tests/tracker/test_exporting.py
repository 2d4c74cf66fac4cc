"""The tracker's page for Prometheus, read back by Prometheus's own parser."""

from __future__ import annotations

import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from heronpy.common.errors import RetryableRpcError
from heronpy.metrics.sums import SUMS
from heronpy.tracker import exposition
from heronpy.views.findings import Finding, Verdict
from heronpy.views.load import LoadAnswer
from tests.cli.conftest import FakeTopology
from tests.support.prometheus import prometheus_tool
from tests.tracker.conftest import Asking

PLACE = {"cluster": "local", "role": "me", "environ": "default", "topology": "wordy"}


def page_of(asking: Asking, **headers: str) -> dict[tuple[str, str], tuple[dict[str, str], float]]:
    """Name and component to labels and value; every name on the page is registered."""
    response = asking.ask("GET", "/metrics", headers=headers)
    assert response.status_code == 200 and "version=" in response.headers["content-type"]
    found = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            assert sample.name in SUMS
            if sample.name == "heron_tracker_refused_requests_total":
                assert sample.value == 0
                continue
            found[sample.name, sample.labels.get("component", "")] = sample.labels, sample.value
    return found


def test_the_page_has_the_sums_of_each_component_and_the_findings(asking: Asking, busy: FakeTopology) -> None:
    page = page_of(asking)
    assert page["heron_topology_state", ""] == (PLACE | {"state": "RUNNING"}, 1)
    assert page["heron_topology_finding", "count"] == (PLACE | {"component": "count", "verdict": "skew"}, 1)
    assert page["heron_component_executed_per_second", "count"] == (PLACE | {"component": "count"}, 998)
    assert page["heron_component_busy_max_ratio", "count"][1] == 0.96875
    assert page["heron_component_restarts_total", "count"][1] == 2
    assert page["heron_topology_acked_total", ""][1] == 41
    assert ("heron_component_executed_per_second", "word") not in page, "nobody has reported it, and 0 would be wrong"


def test_a_master_that_does_not_answer_leaves_a_state_and_no_figures(asking: Asking, busy: FakeTopology) -> None:
    busy.answers["get_load"] = RetryableRpcError("busy")
    page = page_of(asking)
    assert page["heron_topology_state", ""][0]["state"] == "NO ANSWER"
    assert set(page) == {("heron_topology_state", "")}


def test_two_findings_of_one_component_are_one_series(asking: Asking, busy: FakeTopology) -> None:
    reply = busy.answers["get_load"]
    assert isinstance(reply, LoadAnswer)
    for task in ("container_1_count_2", "container_1_count_3"):
        reply.findings.append(Finding(Verdict.CRASHING, component="count", task=task, figures={"times": 2}))
    text = asking.ask("GET", "/metrics").text
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines)) and 'verdict="crashing"' in text


def test_series_are_bounded(asking: Asking, busy: FakeTopology, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "SERIES_MAX", 5)
    page = page_of(asking)
    assert page["heron_tracker_series_discarded", ""][1] > 10 and len(page) == 6


def test_promtool_finds_nothing_to_complain_of(asking: Asking, busy: FakeTopology) -> None:
    promtool = prometheus_tool("promtool")
    text = asking.ask("GET", "/metrics").text
    done = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
