"""A topology that has ended still answers, as it did last; what runs under its name is another one."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from msgspec import structs

from heronpy.net.answers import packed
from heronpy.proto import control_pb2, plan_pb2
from heronpy.scheduler import teardown
from heronpy.spark.gateway import LAST_REPORT
from heronpy.statemgr import paths
from heronpy.tmaster.minutes import Minutes
from heronpy.tracker import ended, reading
from heronpy.tracker.ended import Ended
from heronpy.views.findings import Finding, Verdict
from heronpy.views.load import LoadAnswer
from tests.cli.conftest import FakeTopology
from tests.support.views import event, events
from tests.tracker.conftest import WORDY, Asking

PLACE = WORDY.rpartition("/")[0]
MINUTE = 27_000_000


@pytest.fixture
def seen(asking: Asking, busy: FakeTopology) -> FakeTopology:
    """wordy, whose master tells events and exceptions."""
    runs = event(7, at=5.0, first_at=5.0, reason="running", text="wordy is RUNNING")
    busy.answers["get_events"] = events(runs, last=7)
    exceptions = control_pb2.ExceptionsReply()
    exceptions.exceptions.add(
        component="count", task_id=2, instance_id="container_1_count_2", type="ValueError", message="no number", count=3
    )
    busy.answers["get_exceptions"] = exceptions
    metrics = control_pb2.MetricsReply(interval_s=10.0)
    metrics.reports.add(component="p-keeper").samples.add(name="units-backlog-bytes", label="p", value=7)
    busy.answers["get_metrics"] = metrics
    busy.answers["get_checkpoints"] = control_pb2.CheckpointsReply()
    busy.record.submitted_at = time.time() - 30.0
    busy.state.set(paths.execution_state("wordy"), busy.record.SerializeToString())
    busy.state.set(paths.launch("wordy"), busy.launch.submitted.to_bytes())
    return busy


def last_of(fake: FakeTopology) -> control_pb2.LastAnswers:
    """What its master leaves behind."""
    load = fake.answers["get_load"]
    assert isinstance(load, LoadAnswer)
    last, minutes = control_pb2.LastAnswers(topology_id="wordy-1", load=packed(load)), Minutes()
    last.status.CopyFrom(fake.status)
    last.tasks.CopyFrom(fake.answers["get_metrics"])
    last.counts.CopyFrom(fake.answers["get_metrics"])
    last.exceptions.CopyFrom(fake.answers["get_exceptions"])
    last.checkpoints.CopyFrom(fake.answers["get_checkpoints"])
    for number, executed in enumerate((3.0, 4.0)):
        minutes.add(MINUTE + number, {"count": {"executed": executed}})
    last.minutes.CopyFrom(minutes.ledger("wordy-1"))
    return last


def end_of(asking: Asking, fake: FakeTopology, reason: str = "running") -> None:
    """Its master leaves its last answers, and its nodes are removed."""
    kept = control_pb2.EventLedger(topology_id="wordy-1", last=99)
    for one in fake.answers["get_events"].events:  # type: ignore[union-attr]
        fields = {**structs.asdict(one), "lasted_s": one.lasted_s or 0.0, "kind": f"EVENT_{one.kind.upper()}"}
        kept.events.add(**fields)
    text = f"wordy is {reason}"
    kept.events.add(number=99, at=6.0, first_at=6.0, kind=control_pb2.EVENT_LIFE, reason=reason, text=text)
    fake.state.set(paths.events("wordy"), kept.SerializeToString())
    fake.state.set(paths.last_answers("wordy"), last_of(fake).SerializeToString())
    teardown.remove_state(fake.state, "wordy")


@pytest.mark.parametrize("reason, state", [("running", "KILLED"), ("finished", "FINISHED"), ("failed", "FAILED")])
def test_it_answers_as_it_did_last(reason: str, state: str, asking: Asking, seen: FakeTopology) -> None:
    before = {name: asking.get(f"{WORDY}/{name}") for name in ("plan", "load", "exceptions", "checkpoints")}
    end_of(asking, seen, reason)
    shown = asking.get(WORDY)
    assert (shown["name"], shown["id"], shown["state"]) == ("wordy", "wordy-1", state)
    assert abs(shown["ended_at"] - time.time()) < 60.0 and shown["tasks"] == 3
    assert (shown["sentence"] is None) == (state == "FAILED"), "its cause says it"
    assert {name: asking.get(f"{WORDY}/{name}") for name in before} == before
    assert len(asking.get(f"{WORDY}/tasks?component=count")["tasks"]) == 2
    assert asking.get(f"{WORDY}/batches")["sinks"] == [] and asking.get(f"{WORDY}/config")["settings"]
    assert asking.get(f"{WORDY}/units")["pipelines"][0]["backlog_bytes"] == 7
    assert [event["number"] for event in asking.get(f"{WORDY}/events")["events"]] == [7, 99]
    assert [event["number"] for event in asking.get(f"{WORDY}/events?after=7&limit=1")["events"]] == [99]
    found = asking.get(f"{WORDY}/timeline?since={MINUTE * 60}&metric=executed_per_s")
    assert found["series"] == [{"component": "count", "metric": "executed_per_s", "values": [3.0, 4.0]}]
    assert len(asking.get(f"{WORDY}/exceptions?component=count")["groups"]) == 1
    assert asking.get(f"{WORDY}/exceptions?component=word")["groups"] == []
    [listed] = asking.get("/api/v1/history")["topologies"]
    assert listed == shown
    assert asking.get("/api/v1/topologies")["total"] == 0


def test_its_row_has_what_the_doctor_said_last(asking: Asking, seen: FakeTopology) -> None:
    """A topology that had been slow for hours was listed as killed, and nothing more."""
    reply = seen.answers["get_load"]
    assert isinstance(reply, LoadAnswer)
    figures = {"share": 0.9, "even": 0.5, "tasks": 2, "busy": 1.0, "median": 0.1, "of_key": 0.8}
    slow = Finding(Verdict.SKEW, "count", "container_1_count_2", figures, "user='big'")
    reply.findings = [slow]
    end_of(asking, seen)
    [listed] = asking.get("/api/v1/history")["topologies"]
    assert listed["sentence"].startswith(
        "topology 'wordy' was killed; the doctor's last finding: data skew: container_1_count_2,"
    )
    assert listed["sentence"].endswith("80 % of its tuples have user='big'")
    assert (listed["verdict"], listed["calm"], listed["next"]) == ("skew", False, None)
    assert "big" not in listed["unquoted"] and listed["unquoted"].endswith("80 % of its tuples have one key")
    assert asking.get(WORDY)["sentence"] == listed["sentence"]


def test_nothing_of_it_can_be_changed_or_asked_anew(asking: Asking, seen: FakeTopology) -> None:
    end_of(asking, seen)
    refused = asking.act("kill")
    assert refused.status_code == 410 and "topology 'wordy' was killed" in refused.json()["title"]
    taken = asking.ask("POST", f"{WORDY}/tasks/2/stacks", json={}, headers={"X-Heron": "1"})
    said = "topology 'wordy' was killed, and all its processes have ended"
    assert (taken.status_code, taken.json()["title"]) == (410, said)


def test_its_tasks_and_processes_do_not_run(asking: Asking, seen: FakeTopology) -> None:
    """They were shown as they were seen last, RUNNING."""
    seen.status.tasks[2].state = control_pb2.TASK_FAILED
    executor = seen.status.executors.add(container=1, host="here")
    executor.processes.add(name="stmgr-1", state=control_pb2.PROC_RUNNING, pid=11)
    end_of(asking, seen)
    found = asking.get(f"{WORDY}/tasks")
    assert [(one["state"], one["up"]) for one in found["tasks"]] == [("ENDED", False)] * 2 + [("FAILED", False)]
    assert {one["state"] for one in found["processes"]} == {"ENDED"}


def test_the_doctor_tells_what_its_last_minutes_and_events_tell(asking: Asking, seen: FakeTopology) -> None:
    end_of(asking, seen)
    found = asking.get(f"{WORDY}/doctor")
    assert "ended" in [one["verdict"] for one in found["findings"]]
    assert found["findings"][0]["sentence"].startswith("topology 'wordy' was killed")
    assert found["ended_at"] and found["tasks"] == [] and "are no longer known" in found["not_known"]


def test_its_logs_are_read_where_they_lie(asking: Asking, seen: FakeTopology) -> None:
    folder = Path(seen.record.working_dir) / "log-files"
    (folder / "container_1_count_2.log").write_text("2026-01-01T00:00:00.000+0000 INFO  count [x] seen\n")
    end_of(asking, seen)
    assert [one["process"] for one in asking.get(f"{WORDY}/logs")["files"]] == ["container_1_count_2"]
    assert "seen" in asking.get(f"{WORDY}/logs/container_1_count_2")["lines"][0]["text"]
    assert asking.ask("GET", f"{WORDY}/logs/..%2F..%2Flaunch").status_code == 404


def test_a_live_stream_shows_it_and_says_that_it_is_over(asking: Asking, seen: FakeTopology) -> None:
    end_of(asking, seen, "finished")
    answer = asking.ask("GET", "/api/v1/live?topology=local/me/default/wordy")
    kinds = [line for line in answer.text.splitlines() if line.startswith("event:")]
    assert kinds == ["event: snapshot", "event: gone"] and "topology 'wordy' has finished" in answer.text


@pytest.mark.parametrize(("limit", "level"), [(1, "component"), (1000, "tasks")])
def test_a_page_gets_the_tasks_where_there_are_few(
    asking: Asking, seen: FakeTopology, monkeypatch: pytest.MonkeyPatch, limit: int, level: str
) -> None:
    end_of(asking, seen, "finished")
    monkeypatch.setattr(reading, "TASKS_MAX", limit)
    answer = asking.ask("GET", "/api/v1/live?topology=local/me/default/wordy&level=fitting")
    assert json.loads(answer.text.partition("data: ")[2].partition("\n")[0])["level"] == level


def test_both_runs_of_one_name_are_reached(asking: Asking, seen: FakeTopology) -> None:
    nodes = {path: seen.state.get(path)[0] for path in (paths.topology("wordy"), paths.packing_plan("wordy"))}
    end_of(asking, seen)
    again = plan_pb2.ExecutionState()
    again.CopyFrom(seen.record)
    again.topology_id = "wordy-2"
    for path, value in {**nodes, paths.execution_state("wordy"): again.SerializeToString()}.items():
        seen.state.create(path, value)
    assert asking.get(WORDY)["id"] == "wordy-2" and asking.get(WORDY)["ended_at"] is None
    assert asking.get(f"{PLACE}/wordy-2")["id"] == "wordy-2"
    assert asking.get(f"{PLACE}/wordy-1")["state"] == "KILLED"
    assert asking.ask("GET", f"{PLACE}/wordy-3").status_code == 404


def test_one_whose_master_left_nothing_is_known_by_what_the_state_held(asking: Asking, seen: FakeTopology) -> None:
    totals = control_pb2.TotalsLedger(topology_id="wordy-1")
    totals.tasks.add(task_id=1, spout=True, component="word", before=[0] * 7, latest=[9, 9, 8, 1, 0, 0, 0])
    seen.state.set(paths.totals("wordy"), totals.SerializeToString())
    minutes = Minutes()
    minutes.add(MINUTE, {"count": {"executed": 3.0}})
    seen.state.set(paths.minutes("wordy"), minutes.ledger("wordy-1").SerializeToString())
    # Of an earlier topology of this name.
    earlier = control_pb2.LastAnswers(topology_id="wordy-0")
    seen.state.set(paths.last_answers("wordy"), earlier.SerializeToString())
    (spark := Path(seen.record.working_dir) / "spark").mkdir()
    report = control_pb2.MetricsReport(process="spark-gateway")
    report.samples.add(name="spark-rows-committed", label="table", type=control_pb2.Sample.COUNTER, value=12.0)
    (spark / f"{LAST_REPORT}wordy-1").write_bytes(report.SerializeToString())
    seen.state.set(
        paths.launch("wordy"), seen.launch.submitted.to_bytes().replace(b'"needs_spark": false', b'"needs_spark": true')
    )
    teardown.remove_state(seen.state, "wordy")
    assert list(spark.iterdir()) == []
    folder = Path(seen.record.working_dir) / teardown.ENDED
    assert [path.name for path in folder.iterdir()] == ["wordy-1"]
    (folder / "damaged").write_bytes(b"\xff" * 100)
    [shown] = asking.get("/api/v1/history")["topologies"]
    assert (shown["id"], shown["state"], shown["tasks"], shown["spark"]) == ("wordy-1", "KILLED", 3, True)
    assert [node["name"] for node in asking.get(f"{WORDY}/plan")["nodes"]] == ["word", "count"]
    assert [sink["rows"] for sink in asking.get(f"{WORDY}/batches")["sinks"]] == [12]
    assert asking.get(f"{WORDY}/timeline?metric=executed_per_s")["series"][0]["values"] == [3.0]
    for missing in ("exceptions", "tasks", "units", "slow"):
        answer = asking.ask("GET", f"{WORDY}/{missing}")
        assert (
            answer.status_code == 410
            and answer.json()["title"] == "topology 'wordy' was killed; this information was not kept"
        )
    assert asking.ask("GET", f"{WORDY}/load").status_code == 410


def test_the_counts_of_several_spark_gateways_are_those_of_the_master(asking: Asking, seen: FakeTopology) -> None:
    report = seen.answers["get_metrics"].reports.add(process="spark-gateway")  # type: ignore[union-attr]
    report.samples.add(name="spark-rows-committed", label="table", type=control_pb2.Sample.COUNTER, value=30.0)
    seen.state.set(
        paths.launch("wordy"), seen.launch.submitted.to_bytes().replace(b'"needs_spark": false', b'"needs_spark": true')
    )
    (spark := Path(seen.record.working_dir) / "spark").mkdir()
    last = control_pb2.MetricsReport(process="spark-gateway")
    last.samples.add(name="spark-rows-committed", label="table", type=control_pb2.Sample.COUNTER, value=12.0)
    (spark / f"{LAST_REPORT}wordy-1").write_bytes(last.SerializeToString())
    end_of(asking, seen)
    assert [sink["rows"] for sink in asking.get(f"{WORDY}/batches")["sinks"]] == [30]


def test_what_no_spark_gateway_has_left_had_no_spark(asking: Asking, seen: FakeTopology) -> None:
    """Its page has no tab for batches."""
    teardown.remove_state(seen.state, "wordy")
    [shown] = asking.get("/api/v1/history")["topologies"]
    assert (shown["id"], shown["spark"]) == ("wordy-1", False)


def test_a_file_is_read_once_while_it_stays_the_same(
    asking: Asking, seen: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_of(asking, seen)
    read, all_read = ended.read_kept, []
    monkeypatch.setattr(ended, "read_kept", lambda path: all_read.append(path.name) or read(path))
    known = Ended()
    assert known.listed(["local"], ()) == known.listed(["local"], ()) and all_read == ["wordy-1"]
    assert known.listed(["local"], ["wordy-1"]) == known.listed(["other"], ()) == []
    path = Path(seen.record.working_dir) / teardown.ENDED / "wordy-1"
    os.utime(path, (1, 1))
    assert known.listed(["local"], ()) and all_read == ["wordy-1"] * 2


def test_a_file_in_the_folder_of_another_topology_is_not_believed(asking: Asking, seen: FakeTopology) -> None:
    end_of(asking, seen)
    path = Path(seen.record.working_dir) / teardown.ENDED / "wordy-1"
    other = path.parents[2] / "other" / teardown.ENDED
    other.mkdir(mode=0o700, parents=True)
    (other / "wordy-1").write_bytes(path.read_bytes())
    assert len(asking.get("/api/v1/history")["topologies"]) == 1
    assert asking.ask("GET", f"{PLACE}/other").status_code == 404


def test_old_files_are_removed_but_for_the_newest(seen: FakeTopology) -> None:
    folder = Path(seen.record.working_dir) / teardown.ENDED
    for number in range(teardown.ENDED_MAX + 3):
        seen.record.topology_id = f"wordy-{number}"
        seen.state.set(paths.execution_state("wordy"), seen.record.SerializeToString())
        teardown.keep_ended(seen.state, "wordy")
        if number < 2:
            os.utime(folder / seen.record.topology_id, (number, number))
    assert {one.name for one in folder.iterdir()} == {f"wordy-{number}" for number in range(2, teardown.ENDED_MAX + 3)}
    kept = control_pb2.EndedTopology.FromString((folder / f"wordy-{teardown.ENDED_MAX + 2}").read_bytes())
    assert kept.topology.name == "wordy" and not any(one.comp.serialized_object for one in kept.topology.bolts)


# ---- one name in two roles ----------------------------------------------------------------------

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
