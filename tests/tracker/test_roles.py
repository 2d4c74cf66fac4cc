"""One name in two roles: what runs and what has ended are told apart."""

from __future__ import annotations

import pytest

from heronpy.proto import plan_pb2
from heronpy.statemgr import paths
from tests.cli.conftest import FakeTopology
from tests.tracker.conftest import WORDY, Asking
from tests.tracker.test_ended import end_of, seen

__all__ = ["seen"]

YOURS = WORDY.replace("/me/", "/you/")
HERON = "/topologies/metadata?cluster=local&environ=default&topology=wordy"


@pytest.fixture
def both(asking: Asking, seen: FakeTopology) -> FakeTopology:
    """wordy of role me has ended, and you have submitted another one of this name since."""
    nodes = {path: seen.state.get(path)[0] for path in (paths.topology("wordy"), paths.packing_plan("wordy"))}
    end_of(asking, seen)
    yours = plan_pb2.ExecutionState()
    yours.CopyFrom(seen.record)
    yours.topology_id, yours.role = "wordy-2", "you"
    for path, value in {**nodes, paths.execution_state("wordy"): yours.SerializeToString()}.items():
        seen.state.create(path, value)
    return seen


def test_the_other_role_is_named_where_one_is_asked_for(asking: Asking, busy: FakeTopology) -> None:
    for part in ("", "/plan", "/logs", "/doctor"):
        answer = asking.ask("GET", YOURS + part)
        said = answer.json()
        assert answer.status_code == 404
        assert said["title"] == "topology 'wordy' is not in local/you/default"
        assert (said["detail"], said["nearest"]) == ("it is in local/me/default", "wordy")
    refused = asking.ask("POST", f"{YOURS}/actions/kill", json={}, headers={"X-Heron": "1"})
    assert refused.status_code == 404 and "is not in local/you/default" in refused.json()["title"]
    assert not busy.asked, "the other role's was left alone"


def test_each_role_reaches_its_own(asking: Asking, both: FakeTopology) -> None:
    mine, yours = asking.get(WORDY), asking.get(YOURS)
    assert (mine["id"], mine["state"], mine["role"]) == ("wordy-1", "KILLED", "me")
    assert (yours["id"], yours["ended_at"], yours["role"]) == ("wordy-2", None, "you")
    listed = asking.get("/api/v1/topologies?role=you")["topologies"]
    assert [one["id"] for one in listed] == ["wordy-2"] and not asking.get("/api/v1/topologies?role=me")["topologies"]
    assert [one["id"] for one in asking.get("/api/v1/history?role=me")["topologies"]] == ["wordy-1"]
    assert asking.get(HERON)["role"] == "you" and asking.get(f"{HERON}&role=you")["role"] == "you"
    missing = asking.ask("GET", f"{HERON}&role=me")
    assert missing.status_code == 404 and missing.json()["title"] == "there is no topology 'wordy' in local/default"
    ended = asking.act("kill")
    assert ended.status_code == 410, "what has ended is not killed, nor is the one of the other role"
    assert both.state.exists(paths.execution_state("wordy"))
