"""Changes: by the same code as the command, with dry runs and versions, and each in the log."""

from __future__ import annotations

import os

import pytest

from heronpy.common.errors import RpcError
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths
from tests.cli.conftest import FakeTopology
from tests.tracker.conftest import Asking


def requests(topology: FakeTopology) -> list[str]:
    """What the topology master was asked for, but figures."""
    return [name for name, _ in topology.asked if not name.startswith("get_")]


@pytest.mark.parametrize(
    ("action", "body", "said"),
    [
        ("activate", {}, "would let 1 spout task of word emit"),
        ("deactivate", {}, "would pause 1 spout task of word"),
        ("restart", {}, "would restart 3 tasks"),
        ("restart", {"component": "count"}, "would restart 2 tasks"),
        ("restart", {"task": 3}, "would restart 1 task"),
        ("restart", {"container": 1}, "would restart 3 tasks"),
        ("update", {"parallelism": {"count": 3}}, "would add 1 task, remove 0, move 0"),
        ("update", {"settings": {"count:limit": "3"}}, "would set 1 setting"),
        ("kill", {}, "would stop 3 tasks"),
    ],
)
def test_a_dry_run_says_what_it_would_do(
    action: str,
    body: dict[str, object],
    said: str,
    asking: Asking,
    busy: FakeTopology,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "heronpy.tracker")
    answer = asking.act(action, {**body, "dry_run": True}, If_Match='"1"')
    assert answer.status_code == 200, answer.text
    assert said in answer.json()["text"] and answer.json()["dry_run"]
    assert requests(busy) == [] and busy.state.exists(paths.topology("wordy"))
    assert "requested" not in caplog.text


def test_an_action_is_done_and_written_down(
    asking: Asking, busy: FakeTopology, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "heronpy.tracker")
    assert asking.act("deactivate").status_code == 200
    assert asking.act("restart", {"task": 2}).status_code == 200
    assert requests(busy) == ["set_state", "restart_target"]
    asked = dict(busy.asked)["restart_target"]
    assert isinstance(asked, control_pb2.RestartTarget) and asked.task_id == 2
    said = [record.getMessage() for record in caplog.records if "requested" in record.getMessage()]
    assert [text.partition(": ")[0] for text in said] == [
        f"uid {os.getuid()} requested {action} of local/me/default/wordy" for action in ("deactivate", "restart")
    ]


@pytest.mark.parametrize("action", ["activate", "deactivate", "update", "kill"])
def test_what_a_job_would_undo_is_refused(asking: Asking, busy: FakeTopology, action: str) -> None:
    record = plan_pb2.ExecutionState.FromString((busy.state.get(paths.execution_state("wordy")) or (b"", 0))[0])
    busy.state.set(paths.job("wordy"), b"{}")
    running = f'{{"topology_id": "{record.topology_id}", "plan": null}}'
    busy.state.set(paths.running_job("wordy"), running.encode())
    body = {"parallelism": {"count": 3}} if action == "update" else {}
    answer = asking.act(action, body, If_Match='"1"')
    assert answer.status_code >= 400 and "is controlled by its job" in answer.text and requests(busy) == []
    # A topology that has only the name of the job is anybody's.
    busy.state.set(paths.running_job("wordy"), running.replace(record.topology_id, "another").encode())
    assert asking.act(action, {**body, "dry_run": True}, If_Match='"1"').status_code == 200


def test_an_update_needs_the_version_that_was_seen(asking: Asking, busy: FakeTopology) -> None:
    body = {"parallelism": {"count": 3}}
    assert asking.act("update", body).status_code == 428
    stale = asking.act("update", body, If_Match="7")
    assert stale.status_code == 412 and "has version 1 now, not 7" in stale.json()["title"]
    assert requests(busy) == []
    busy.answers["update_topology"] = control_pb2.UpdateReply(added=[4])
    done = asking.act("update", body, If_Match="1").json()
    assert done["text"] == "added 1 task, removed 0, moved 0"
    asked = dict(busy.asked)["update_topology"]
    assert isinstance(asked, control_pb2.UpdateTopology) and asked.expected_version == 1


@pytest.mark.parametrize(
    ("action", "body", "status", "said"),
    [
        ("restart", {"task": 9}, 400, "has no task 9"),
        ("restart", {"component": "cuont"}, 400, "did you mean 'count'"),
        ("restart", {"component": "count", "task": 2}, 400, "name only one of"),
        ("update", {}, 400, "either parallelism or settings"),
        ("update", {"parallelism": {"count": 0}}, 400, "is not NAME:N"),
        ("update", {"parallelism": {"count": "x"}}, 400, "the body is invalid"),
        ("savepoint", {}, 400, "has no checkpoints"),
        ("restore", {"checkpoint": 3}, 400, "has no checkpoints"),
        ("activate", {"task": 3}, 400, "activate does not accept task"),
        ("activate", {"colour": 3}, 400, "the body is invalid"),
        ("deactivate", {"timeout_s": 1e9}, 400, "from 0.1 to 3600"),
        ("explode", {}, 404, "there is no page or route"),
    ],
)
def test_what_cannot_be_done_is_said(
    action: str, body: dict[str, object], status: int, said: str, asking: Asking, busy: FakeTopology
) -> None:
    answer = asking.act(action, body, If_Match="1")
    assert answer.status_code == status and said in answer.json()["title"], answer.text
    assert requests(busy) == []


def test_a_body_that_is_too_large_is_not_read(asking: Asking, busy: FakeTopology) -> None:
    answer = asking.act("activate", {"component": "x" * 70_000})
    assert answer.status_code == 413 and answer.json()["type"] == "too-large"


def test_one_change_of_a_topology_at_a_time(asking: Asking, busy: FakeTopology) -> None:
    async def twice(client: object, tracker: object) -> int:
        tracker.changing.add("wordy-1")  # type: ignore[attr-defined]
        answer = await client.post(  # type: ignore[attr-defined]
            "/api/v1/topologies/local/me/default/wordy/actions/activate", json={}, headers={"X-Heron": "1"}
        )
        return int(answer.status_code)

    assert asking.within(twice) == 409
    assert requests(busy) == []


def test_an_error_that_quotes_others_is_one_line_of_bounded_length(asking: Asking, busy: FakeTopology) -> None:
    """A refusal of the topology master may have the words of user code in it."""
    busy.answers["set_state"] = RpcError("task 3: ValueError('a\x1b[31m\u202eb')\n  in save\n" + "x" * 100_000)
    answer = asking.act("deactivate")
    title = answer.json()["title"]
    assert answer.status_code == 409 and title.startswith("task 3: ValueError('a\\x1b[31m\\u202eb')   in save xxx")
    assert len(title) == 2000 and title.endswith("x…")
