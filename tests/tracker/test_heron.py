"""Programs that were written for Apache Heron's tracker find its addresses, with its fields and types."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.proto import control_pb2
from tests.cli.conftest import FakeTopology
from tests.tracker.conftest import Asking

NAMED = "cluster=local&environ=default&topology=wordy"
#: The models of heron/tools/tracker/src/python/topology.py of Heron 0.20.5.
METADATA = {
    "cluster": str, "environ": str, "role": str, "jobname": str, "submission_time": int, "submission_user": str,
    "release_username": str, "release_tag": str, "release_version": str, "instances": int, "extra_links": list,
}  # fmt: skip
PRESENT = {
    name: bool for name in ("has_physical_plan", "has_packing_plan", "has_tmanager_location", "has_scheduler_location")
}
MODELS: dict[str, dict[str, Any]] = {
    "metadata": METADATA,
    "executionstate": {**METADATA, **PRESENT, "status": str},
    "runtimestate": {**PRESENT, "stmgrs": dict},
    "schedulerlocation": {"name": str, "http_endpoint": str, "job_page_link": str},
    "packingplan": {"id": str, "container_plans": list},
    "physicalplan": {
        "instances": dict, "instance_groups": dict, "stmgrs": dict, "spouts": dict, "bolts": dict, "config": dict,
        "components": dict,
    },
    "logicalplan": {"bolts": dict, "spouts": dict, "stages": int},
    "info": {
        "execution_state": dict, "id": str, "logical_plan": dict, "metadata": dict, "name": str, "packing_plan": dict,
        "physical_plan": dict, "runtime_state": dict, "scheduler_location": dict, "tmanager_location": dict,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_each_document_has_herons_fields(name: str, asking: Asking, busy: FakeTopology) -> None:
    found = asking.get(f"/topologies/{name}?{NAMED}")
    assert {key: type(value) for key, value in found.items()} == MODELS[name]


def test_plans_are_as_heron_writes_them(asking: Asking, busy: FakeTopology) -> None:
    info = asking.get(f"/topologies/info?{NAMED}&role=me")
    physical = info["physical_plan"]
    assert physical["spouts"] == {"word": ["container_1_word_1"]}
    assert physical["instance_groups"] == {
        "container_1": ["container_1_word_1", "container_1_count_2", "container_1_count_3"]
    }
    assert physical["instances"]["container_1_count_3"] == {
        "id": "container_1_count_3", "name": "count", "stmgr_id": "stmgr-1", "logfile": "",
    }  # fmt: skip
    stmgr = physical["stmgrs"]["stmgr-1"]
    assert (stmgr["host"], stmgr["pid"], len(stmgr["instance_ids"])) == ("here", 11, 3)
    bolt = info["logical_plan"]["bolts"]["count"]
    assert bolt["inputs"] == [{"stream_name": "default", "component_name": "word", "grouping": "FIELDS"}]
    assert bolt["inputComponents"] == ["word"] and info["logical_plan"]["stages"] == 1
    spout = info["logical_plan"]["spouts"]["word"]
    assert (spout["spout_type"], spout["spout_source"], spout["outputs"]) == (
        "default",
        "NA",
        [{"stream_name": "default"}],
    )
    [container] = info["packing_plan"]["container_plans"]
    assert container["instances"][0] == {
        "component_name": "word", "task_id": 1, "component_index": 0,
        "instance_resources": {"cpu": 0.0, "ram": 0, "disk": 0},
    }  # fmt: skip
    assert info["execution_state"]["status"] == "Running" and info["metadata"]["instances"] == 3


def test_topologies_are_found_by_their_place(asking: Asking, busy: FakeTopology) -> None:
    assert asking.get("/clusters") == ["local"]
    assert asking.get("/topologies") == {"local": {"me": {"default": ["wordy"]}}}
    assert asking.get("/topologies?environ=prod&environ=test") == {}
    assert asking.get("/topologies/states?role=me")["local"]["default"]["wordy"]["jobname"] == "wordy"
    assert asking.get("/machines") == {"local": {"default": {"wordy": ["here"]}}}
    assert asking.ask("GET", "/topologies/info?cluster=local&environ=prod&topology=wordy").status_code == 404
    assert asking.ask("GET", "/topologies/info?cluster=local&environ=default").status_code == 400


def test_metrics_and_exceptions_are_by_instance(asking: Asking, busy: FakeTopology) -> None:
    reply = control_pb2.MetricsReply(interval_s=60.0)
    report = reply.reports.add(process="container_1_count_2")
    report.samples.add(name="__execute-count", label="word/default", value=7.0)
    busy.answers["get_metrics"] = reply
    found = asking.get(f"/topologies/metrics?{NAMED}&component=count&metricname=__execute-count&interval=60")
    values = {"__execute-count/word/default": {"container_1_count_2": "7.0"}}
    assert found == {"interval": 60, "component": "count", "metrics": values}
    raised = control_pb2.ExceptionsReply()
    for task, count in ((2, 3), (3, 1)):
        raised.exceptions.add(
            type="ValueError", traceback="Traceback", first_at=1.5, last_at=9.5, count=count, container=1,
            instance_id=f"container_1_count_{task}",
        )  # fmt: skip
    busy.answers["get_exceptions"] = raised
    first, _ = asking.get(f"/topologies/exceptions?{NAMED}&component=count")
    assert {key: type(value) for key, value in first.items()} == dict.fromkeys(
        ("hostname", "instance_id", "stacktrace", "lasttime", "firsttime", "count", "logging"), str
    )
    assert len(asking.get(f"/topologies/exceptions?{NAMED}&component=count&instance=container_1_count_3")) == 1
    summary = asking.get(f"/topologies/exceptionsummary?{NAMED}&component=count")
    assert summary == [{"class_name": "ValueError", "lasttime": 9, "firsttime": 1, "count": "4"}]
