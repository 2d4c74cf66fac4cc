"""`heron metrics targets|rules|dashboard`."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import yaml

from heronpy.clusters.session import Session
from heronpy.common.errors import RetryableRpcError
from heronpy.metrics.monitoring import ALERTS
from heronpy.proto import control_pb2
from heronpy.tracker import place
from heronpy.tracker.folder import folder_of
from tests.cli.conftest import FakeTopology, Heron


def test_targets_are_the_pages_of_all_containers(heron: Heron, wordy: FakeTopology, tmp_path: Path) -> None:
    for container, port in ((1, 9471), (0, 9470), (2, 0)):
        wordy.status.executors.add(container=container, host="far", metrics_port=port)
    wanted = [
        {
            "targets": ["127.0.0.1:9470", "127.0.0.1:9471"],
            "labels": {"cluster": "local", "role": "me", "environ": "default"},
        }
    ]
    assert json.loads(heron("metrics", "targets").out) == wanted
    assert json.loads(heron("metrics", "targets", "local/me").out) == wanted
    assert json.loads(heron("metrics", "targets", "local/you").out) == []
    file = tmp_path / "targets.json"
    assert heron("metrics", "targets", "--output", str(file)) == (0, "", "")
    assert json.loads(file.read_text()) == wanted
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_pages_on_loopback_of_other_hosts_are_named_and_left_out(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "engine_of", lambda *_: "slurm")
    wordy.status.executors.add(container=0, host="n1", metrics_port=9470, metrics_host="127.0.0.1")
    wordy.status.executors.add(container=1, host="n2", metrics_port=9471, metrics_host="10.1.0.7")
    wordy.status.executors.add(container=2, host="n3", metrics_port=9472)
    here = socket.gethostname()
    wordy.status.executors.add(container=3, host=here, metrics_port=9473, metrics_host="127.0.0.1")
    result = heron("metrics", "targets")
    assert [one["targets"] for one in json.loads(result.out)] == [["10.1.0.7:9471", "127.0.0.1:9473"]]
    assert result.err == (
        "warning: topology 'wordy': the metrics pages of container 0 on n1, container 2 on n3 listen on loopback, so other"
        " hosts cannot reach them; submit the topology with heron.executor.metrics_host=host\n"
    )


def test_a_topology_that_does_not_answer_is_left_out_with_a_warning(heron: Heron, wordy: FakeTopology) -> None:
    def refuse(name: str) -> None:
        raise RetryableRpcError("busy")

    wordy.on_ask = refuse
    result = heron("metrics", "targets")
    assert (result.code, json.loads(result.out)) == (0, [])
    assert result.err.startswith("warning: topology 'wordy' is left out: ")


def test_unknown_clusters_and_wrong_files_are_one_sentence(heron: Heron, wordy: FakeTopology) -> None:
    assert "cluster 'nowhere'" in heron("metrics", "targets", "nowhere").err
    result = heron("metrics", "targets", "-o", "/nowhere/targets.json")
    assert result.code != 0 and result.err.count("\n") == 1 and "/nowhere" in result.err


def test_the_tracker_is_one_target_if_one_runs(heron: Heron, home: Path) -> None:
    home.mkdir(mode=0o700)
    result = heron("metrics", "targets", "--tracker")
    assert result.code != 0 and result.err == "error: no tracker runs; start one with 'heron tracker'\n"
    assert heron("metrics", "targets", "local", "--tracker").code == 2
    assert place.read(folder_of(home)) is None


def test_rules_and_dashboard_are_printed_without_a_cluster(heron: Heron) -> None:
    [group] = yaml.safe_load(heron("metrics", "rules").out)["groups"]
    assert [rule["alert"] for rule in group["rules"]] == [alert.name for alert in ALERTS]
    assert json.loads(heron("metrics", "dashboard").out)["panels"]


def test_a_topology_with_the_name_of_a_subcommand_needs_its_cluster(heron: Heron, wordy: FakeTopology) -> None:
    wordy.answers["get_metrics"] = control_pb2.MetricsReply()
    assert "heron metrics local rules" in " ".join(heron("metrics", "--help").out.split())
    for word in ("rules", "targets", "dashboard"):
        assert f"no topology '{word}'" in heron("metrics", "local", word).err
    assert heron("metrics", "wordy").code == heron("metrics", "local", "wordy", "--all").code == 0
