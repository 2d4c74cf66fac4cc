"""A topology that has ended still answers, as it did last; what runs under its name is another one."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import struct
import time
from pathlib import Path

import httpx
import pytest

from heronpy.proto import control_pb2, plan_pb2
from heronpy.scheduler import teardown
from heronpy.spark.gateway import LAST_REPORT
from heronpy.statemgr import paths
from heronpy.tracker import streaming
from heronpy.tracker.history_ended import finish
from heronpy.tracker.history_keeper import Keeper
from heronpy.tracker.history_store import Store
from heronpy.tracker.tracker import Tracker
from tests.cli.conftest import FakeTopology
from tests.tracker.conftest import WORDY, Asking

PLACE = WORDY.rpartition("/")[0]
MINUTE = 27_000_000


@pytest.fixture
def seen(asking: Asking, busy: FakeTopology) -> FakeTopology:
    """wordy, whose master tells events, minutes and exceptions."""
    events = control_pb2.EventsReply(last=7)
    events.events.add(
        number=7, at=5.0, first_at=5.0, kind=control_pb2.EVENT_LIFE, reason="running", text="wordy is RUNNING"
    )
    busy.answers["get_events"] = events
    minutes = control_pb2.TimelineReply(first=MINUTE * 60.0, step_s=60.0, points=2, known_since=MINUTE * 60.0)
    minutes.series.add(component="count", name="executed", values=struct.pack("<2f", 3.0, 4.0))
    busy.answers["get_timeline"] = minutes
    exceptions = control_pb2.ExceptionsReply()
    exceptions.exceptions.add(
        component="count", task_id=2, instance_id="container_1_count_2", type="ValueError", message="no number", count=3
    )
    busy.answers["get_exceptions"] = exceptions
    busy.answers["get_metrics"] = control_pb2.MetricsReply(interval_s=10.0)
    busy.answers["get_checkpoints"] = control_pb2.CheckpointsReply()
    busy.record.submitted_at = time.time() - 30.0
    busy.state.set(paths.execution_state("wordy"), busy.record.SerializeToString())
    return busy


async def settled(keeper: Keeper) -> None:
    """A look, and the end of what it has begun."""
    await keeper.look()
    await asyncio.gather(*(one.under_way for one in keeper._kept.values() if one.under_way is not None))  # noqa: SLF001


def watch_it_end(asking: Asking, fake: FakeTopology, reason: str = "running") -> None:
    """One tracker sees it run, and then that it is gone."""

    async def do(client: httpx.AsyncClient, tracker: Tracker) -> None:
        keeper = Keeper(tracker)
        await settled(keeper)
        kept = control_pb2.EventLedger(topology_id="wordy-1", last=8)
        kept.events.add(
            number=8, at=6.0, first_at=6.0, kind=control_pb2.EVENT_LIFE, reason=reason, text=f"wordy is {reason}"
        )
        fake.state.set(paths.events("wordy"), kept.SerializeToString())
        teardown.remove_state(fake.state, "wordy")
        tracker.clusters["local"]._records._answer = None  # noqa: SLF001
        await settled(keeper)
        await keeper.close()

    asking.within(do)


@pytest.mark.parametrize("reason, state", [("running", "KILLED"), ("finished", "FINISHED"), ("failed", "FAILED")])
def test_it_answers_as_it_did_last(reason: str, state: str, asking: Asking, seen: FakeTopology) -> None:
    before = {name: asking.get(f"{WORDY}/{name}") for name in ("plan", "load", "exceptions", "checkpoints")}
    watch_it_end(asking, seen, reason)
    shown = asking.get(WORDY)
    assert (shown["name"], shown["id"], shown["state"]) == ("wordy", "wordy-1", state)
    assert abs(shown["ended_at"] - time.time()) < 60.0 and shown["tasks"] == 3
    assert (shown["sentence"] is None) == (state == "FAILED"), "its cause says it"
    assert {name: asking.get(f"{WORDY}/{name}") for name in before} == before
    assert len(asking.get(f"{WORDY}/tasks?component=count")["tasks"]) == 2
    assert asking.get(f"{WORDY}/batches")["sinks"] == [] and asking.get(f"{WORDY}/config")["settings"]
    assert [event["number"] for event in asking.get(f"{WORDY}/events")["events"]] == [7, 8]
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
    slow = control_pb2.HealthFinding(verdict=control_pb2.VERDICT_SKEW, component="count", task="container_1_count_2")
    slow.figures.update(share=0.9, even=0.5, tasks=2, busy=1.0, median=0.1, of_key=0.8)
    slow.quote = "user='big'"
    del reply.findings[:]
    reply.findings.append(slow)

    async def do(client: httpx.AsyncClient, tracker: Tracker) -> None:
        keeper = Keeper(tracker)
        await settled(keeper)
        # That it changes, as it does before it ends, is not what is kept.
        del reply.findings[:]
        reply.findings.add(verdict=control_pb2.VERDICT_CHANGING, names=["finishing"])
        tracker.clusters["local"].topologies["wordy"]._load._answer = None  # noqa: SLF001
        one = next(iter(keeper._kept.values()))  # noqa: SLF001
        one.asked_at = one.documents_at = float("-inf")
        await settled(keeper)
        teardown.remove_state(seen.state, "wordy")
        tracker.clusters["local"]._records._answer = None  # noqa: SLF001
        await settled(keeper)
        # It was seen once more for a moment, and is gone again.
        await keeper._history.do(lambda store: [finish(store, run, time.time()) for run in store.runs()])  # noqa: SLF001
        await keeper.close()

    asking.within(do)
    [listed] = asking.get("/api/v1/history")["topologies"]
    assert listed["sentence"].count("the doctor said last") == 1
    assert listed["sentence"].startswith(
        "topology 'wordy' was killed; the doctor said last: data skew: container_1_count_2,"
    )
    assert listed["sentence"].endswith("80 % of its tuples have user='big'")
    assert (listed["verdict"], listed["calm"], listed["next"]) == ("skew", False, None)
    assert "big" not in listed["unquoted"] and listed["unquoted"].endswith("80 % of its tuples have one key")
    assert asking.get(WORDY)["sentence"] == listed["sentence"]

    async def note_again(client: httpx.AsyncClient, tracker: Tracker) -> None:
        """As a page does that looked just before the end was noted."""

        def note(store: Store) -> None:
            [run] = store.runs()
            finish(store, dataclasses.replace(run, ended_at=None), time.time())

        await tracker.history.do(note)

    asking.within(note_again)
    [again] = asking.get("/api/v1/history")["topologies"]
    assert again == listed, "the sentence was nested in itself"


def test_nothing_of_it_can_be_changed_or_asked_anew(asking: Asking, seen: FakeTopology) -> None:
    watch_it_end(asking, seen)
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
    watch_it_end(asking, seen)
    found = asking.get(f"{WORDY}/tasks")
    assert [(one["state"], one["up"]) for one in found["tasks"]] == [("ENDED", False)] * 2 + [("FAILED", False)]
    assert {one["state"] for one in found["processes"]} == {"ENDED"}


def test_the_doctor_tells_what_its_last_minutes_and_events_tell(asking: Asking, seen: FakeTopology) -> None:
    watch_it_end(asking, seen)
    found = asking.get(f"{WORDY}/doctor")
    assert "ended" in [one["verdict"] for one in found["findings"]]
    assert found["findings"][0]["sentence"].startswith("topology 'wordy' was killed")
    assert found["ended_at"] and found["tasks"] == [] and "are not known any more" in found["not_known"]


def test_its_logs_are_read_where_they_lie(asking: Asking, seen: FakeTopology) -> None:
    folder = Path(seen.record.working_dir) / "log-files"
    (folder / "container_1_count_2.log").write_text("2026-01-01T00:00:00.000+0000 INFO  count [x] seen\n")
    watch_it_end(asking, seen)
    assert [one["process"] for one in asking.get(f"{WORDY}/logs")["files"]] == ["container_1_count_2"]
    assert "seen" in asking.get(f"{WORDY}/logs/container_1_count_2")["lines"][0]["text"]
    assert asking.ask("GET", f"{WORDY}/logs/..%2F..%2Flaunch").status_code == 404


def test_a_live_stream_shows_it_and_says_that_it_is_over(asking: Asking, seen: FakeTopology) -> None:
    watch_it_end(asking, seen, "finished")
    answer = asking.ask("GET", "/api/v1/live?topology=local/me/default/wordy")
    kinds = [line for line in answer.text.splitlines() if line.startswith("event:")]
    assert kinds == ["event: snapshot", "event: gone"] and "topology 'wordy' has finished" in answer.text


@pytest.mark.parametrize(("limit", "level"), [(1, "component"), (1000, "tasks")])
def test_a_page_gets_the_tasks_where_there_are_few(
    asking: Asking, seen: FakeTopology, monkeypatch: pytest.MonkeyPatch, limit: int, level: str
) -> None:
    watch_it_end(asking, seen, "finished")
    monkeypatch.setattr(streaming, "TASKS_MAX", limit)
    answer = asking.ask("GET", "/api/v1/live?topology=local/me/default/wordy&level=fitting")
    assert json.loads(answer.text.partition("data: ")[2].partition("\n")[0])["level"] == level


def test_both_runs_of_one_name_are_reached(asking: Asking, seen: FakeTopology) -> None:
    nodes = {path: seen.state.get(path)[0] for path in (paths.topology("wordy"), paths.packing_plan("wordy"))}
    watch_it_end(asking, seen)
    again = plan_pb2.ExecutionState()
    again.CopyFrom(seen.record)
    again.topology_id = "wordy-2"
    for path, value in {**nodes, paths.execution_state("wordy"): again.SerializeToString()}.items():
        seen.state.create(path, value)
    assert asking.get(WORDY)["id"] == "wordy-2" and asking.get(WORDY)["ended_at"] is None
    assert asking.get(f"{PLACE}/wordy-2")["id"] == "wordy-2"
    assert asking.get(f"{PLACE}/wordy-1")["state"] == "KILLED"
    assert asking.ask("GET", f"{PLACE}/wordy-3").status_code == 404


def test_a_topology_that_no_tracker_saw_is_found_by_what_is_left(asking: Asking, seen: FakeTopology) -> None:
    totals = control_pb2.TotalsLedger(topology_id="wordy-1")
    totals.tasks.add(task_id=1, spout=True, component="word", before=[0] * 7, latest=[9, 9, 8, 1, 0, 0, 0])
    seen.state.set(paths.totals("wordy"), totals.SerializeToString())
    (spark := Path(seen.record.working_dir) / "spark").mkdir()
    report = control_pb2.MetricsReport(process="spark-gateway")
    report.samples.add(name="spark-rows-committed", label="table", type=control_pb2.Sample.COUNTER, value=12.0)
    (spark / f"{LAST_REPORT}wordy-1").write_bytes(report.SerializeToString())
    teardown.remove_state(seen.state, "wordy")
    assert list(spark.iterdir()) == []
    folder = Path(seen.record.working_dir) / teardown.ENDED
    assert [path.name for path in folder.iterdir()] == ["wordy-1"]
    (folder / "damaged").write_bytes(b"\xff" * 100)
    asking.within(lambda _, tracker: Keeper(tracker).look())
    [shown] = asking.get("/api/v1/history")["topologies"]
    assert (shown["id"], shown["state"], shown["tasks"], shown["spark"]) == ("wordy-1", "KILLED", 3, True)
    assert [node["name"] for node in asking.get(f"{WORDY}/plan")["nodes"]] == ["word", "count"]
    assert [sink["rows"] for sink in asking.get(f"{WORDY}/batches")["sinks"]] == [12]
    assert asking.ask("GET", f"{WORDY}/exceptions").status_code == 404


def test_what_no_spark_gateway_has_left_had_no_spark(asking: Asking, seen: FakeTopology) -> None:
    """Its page has no tab for batches."""
    teardown.remove_state(seen.state, "wordy")
    asking.within(lambda _, tracker: Keeper(tracker).look())
    [shown] = asking.get("/api/v1/history")["topologies"]
    assert (shown["id"], shown["spark"]) == ("wordy-1", False)


def test_the_folder_of_ended_runs_is_bounded(seen: FakeTopology) -> None:
    for number in range(teardown.ENDED_MAX + 3):
        seen.record.topology_id = f"wordy-{number}"
        seen.state.set(paths.execution_state("wordy"), seen.record.SerializeToString())
        teardown.keep_ended(seen.state, "wordy")
    folder = Path(seen.record.working_dir) / teardown.ENDED
    assert len(list(folder.iterdir())) == teardown.ENDED_MAX
    kept = control_pb2.EndedTopology.FromString((folder / f"wordy-{teardown.ENDED_MAX + 2}").read_bytes())
    assert kept.topology.name == "wordy" and not any(one.comp.serialized_object for one in kept.topology.bolts)


def test_charts_and_events_outlive_a_topology_master(asking: Asking, seen: FakeTopology) -> None:
    asking.within(lambda _, tracker: settled(Keeper(tracker)))
    seen.state.delete(paths.tmaster("wordy"))
    found = asking.get(f"{WORDY}/timeline?metric=executed_per_s")
    assert found["series"][0]["values"] == [3.0, 4.0]
    assert [event["number"] for event in asking.get(f"{WORDY}/events")["events"]] == [7]


def test_what_is_older_than_the_master_knows_comes_from_the_history(asking: Asking, seen: FakeTopology) -> None:
    asking.within(lambda _, tracker: settled(Keeper(tracker)))
    later = control_pb2.TimelineReply(first=(MINUTE + 90) * 60.0, step_s=60.0, points=1)
    later.known_since = later.first
    later.series.add(component="count", name="executed", values=struct.pack("<f", 9.0))
    seen.answers["get_timeline"] = later
    everything = asking.get(f"{WORDY}/timeline?since={MINUTE * 60}&metric=executed_per_s")
    assert everything["times"][0] == MINUTE * 60.0 and everything["kept_from"] == MINUTE * 60.0
    newest = asking.get(f"{WORDY}/timeline?since={(MINUTE + 90) * 60}")
    assert newest["series"][0]["values"] == [9.0] and newest["kept_from"] == MINUTE * 60.0
