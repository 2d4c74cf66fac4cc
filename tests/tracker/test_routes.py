"""What each address answers, over a fake topology master."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from heronpy.clusters.records import Doing
from heronpy.common.errors import InvalidRpcError, RetryableRpcError
from heronpy.common.log_files import divide_logs
from heronpy.common.log_format import format_record
from heronpy.executor.file_service import ContainerFiles
from heronpy.proto import control_pb2
from heronpy.statemgr import paths
from heronpy.tmaster.task_reports import TaskReports
from heronpy.tmaster.traces import TraceStore
from heronpy.tracker import reading_files
from heronpy.tracker.tracker import Tracker
from tests.cli.conftest import FakeTopology
from tests.support.container_files import serve_files
from tests.support.views import event, events, timeline
from tests.tracker.conftest import WORDY, Asking, load_reply


def test_the_list_says_what_is_wrong_first(asking: Asking, busy: FakeTopology) -> None:
    page = asking.get("/api/v1/topologies")
    [one] = page["topologies"]
    assert (one["name"], one["state"], one["verdict"], one["calm"]) == ("wordy", "RUNNING", "skew", False)
    assert "90 %" in one["sentence"] and one["rank"] == 2 and one["emitted_per_s"] == 1000.0
    assert (one["tasks"], one["tasks_up"], one["plan_version"], one["totals"]["acked"]) == (3, 3, 1, 41)
    assert (page["total"], page["next"], page["clusters"]) == (1, None, ["local"])
    assert asking.get("/api/v1/topologies?state=FAILED")["total"] == 0
    assert asking.get("/api/v1/topologies?role=me")["total"] == 1


def test_plan_and_load_name_the_same_things(asking: Asking, busy: FakeTopology) -> None:
    plan, load = asking.get(f"{WORDY}/plan"), asking.get(f"{WORDY}/load")
    assert [node["name"] for node in plan["nodes"]] == [one["name"] for one in load["components"]] == ["word", "count"]
    assert [edge["id"] for edge in plan["edges"]] == [edge["id"] for edge in load["edges"]] == ["word/default>count"]
    assert plan["edges"][0]["grouping"] == "FIELDS" and plan["edges"][0]["fields"] == ["word"]
    assert [node["sink"] for node in plan["nodes"]] == [False, True]
    [container] = plan["containers"]
    assert container["host"] == "here" and [task["task_id"] for task in container["tasks"]] == [1, 2, 3]
    count = load["components"][1]
    assert (count["busy_max"], count["busiest"]) == (0.96875, "container_1_count_2")
    assert load["held"] == 0.25 and load["culprits"][0]["component"] == "count" and load["latency_p99_s"] == 1.5


def test_what_nobody_has_reported_is_null(asking: Asking, busy: FakeTopology) -> None:
    word = asking.get(f"{WORDY}/load")["components"][0]
    assert word["executed_per_s"] is word["blocked"] is word["queue_bytes"] is word["latency_p99_s"] is None
    assert word["pending"] == 5 and word["failed_per_s"] is None


def test_tasks_have_rates_shares_and_their_process(asking: Asking, busy: FakeTopology) -> None:
    executor = busy.status.executors.add(container=1, host="here")
    executor.processes.add(name="container_1_count_2", task_id=2, restarts=3, exit_reason="oom", rss_bytes=77)
    executor.processes.add(name="stmgr-1", state=control_pb2.PROC_RUNNING, pid=11)
    report = control_pb2.MetricsReply(interval_s=10.0)
    task = report.reports.add(process="container_1_count_2", component="count", task_id=2)
    for name, value in (("__execute-count", 50.0), ("__busy-time-ns", 9e9), ("__idle-time-ns", 1e9)):
        task.samples.add(name=name, value=value)
    busy.answers["get_metrics"] = report
    found = asking.get(f"{WORDY}/tasks")
    assert [one["task_id"] for one in found["tasks"]] == [1, 2, 3]
    second = found["tasks"][1]
    assert (second["executed_per_s"], second["busy"], second["blocked"], second["idle"]) == (5.0, 0.9, 0.0, 0.1)
    assert (second["restarts"], second["exit_reason"], second["memory_bytes"]) == (3, "oom", 77)
    assert found["tasks"][2]["executed_per_s"] is None and found["tasks"][2]["busy"] is None
    assert [one["name"] for one in found["processes"]] == ["stmgr-1"]
    assert len(asking.get(f"{WORDY}/tasks?component=word")["tasks"]) == 1


def test_timeline_has_gaps_where_nothing_is_known(asking: Asking, busy: FakeTopology) -> None:
    busy.answers["get_timeline"] = timeline(1e9, 3, count__busy_max=[0.5, None, None])
    found = asking.get(f"{WORDY}/timeline?component=count&metric=busy_max&points=3")
    assert found["times"] == [1e9, 1e9 + 60, 1e9 + 120]
    assert found["series"] == [{"component": "count", "metric": "busy_max", "values": [0.5, None, None]}]
    asked = dict(busy.asked)["get_timeline"]
    assert isinstance(asked, control_pb2.GetTimeline)
    assert list(asked.names) == ["busiest"] and list(asked.components) == ["count"]


def test_the_list_shows_the_minutes_in_which_nobody_looked(asking: Asking, busy: FakeTopology) -> None:
    busy.answers["get_timeline"] = timeline(6000.0, 2, __emitted_per_s=[7.0, 8.0])
    assert asking.get(WORDY)["recent_per_s"] == [7.0] * 6 + [8.0] * 6 + [1000.0]
    asked = next(body for name, body in busy.asked if name == "get_timeline")
    assert asked.since == 1e9 + 65 - 300
    busy.answers["get_timeline"] = RetryableRpcError("not now")
    assert asking.get(WORDY)["recent_per_s"] == [1000.0]


def test_the_last_minutes_are_told_as_they_were_seen(asking: Asking, busy: FakeTopology) -> None:
    """A leak's ramp, which minutes hide, and what was there before a page was opened."""

    async def do(client: httpx.AsyncClient, tracker: Tracker) -> Any:
        for at, used in ((1e9 + 65, 100), (1e9 + 67, 200)):
            reply = load_reply()
            reply.load.at, reply.load.components[1].memory_bytes_max = at, used
            busy.answers["get_load"] = reply
            for one in tracker.clusters["local"].topologies.values():
                one._load._answer = None  # noqa: SLF001
            await client.get(WORDY)
        asked = f"{WORDY}/timeline?samples=1&since={1e9}&component=count&metric=memory_bytes_max"
        return (await client.get(asked)).json()

    found = asking.within(do)
    assert found["times"] == [1e9 + 65, 1e9 + 67]
    assert found["series"] == [{"component": "count", "metric": "memory_bytes_max", "values": [100, 200]}]


def test_events_exceptions_and_checkpoints(asking: Asking, busy: FakeTopology) -> None:
    oom = event(9, at=5.0, kind="oom", subject="x", text="<b>no\n</b>", warning=True)
    busy.answers["get_events"] = events(oom, last=9, forgotten=1)
    found = asking.get(f"{WORDY}/events?after=3")
    assert (found["last"], found["events"][0]["kind"], found["events"][0]["text"]) == (9, "oom", "<b>no\n</b>")
    raised = control_pb2.ExceptionsReply()
    raised.exceptions.add(type="ValueError", message="bad", traceback="Traceback", last_at=4.0, count=2, process="p")
    busy.answers["get_exceptions"] = raised
    assert asking.get(f"{WORDY}/exceptions")["groups"][0]["count"] == 2
    report = control_pb2.MetricsReport(process="container_1_word_1", task_id=2, component="word")
    report.slow.add(at=9.0, took_s=1.5, value="<b>")
    report.spans.add(trace=7, number=1, began=10**9, ended=10**9 + 250_000_000, end=control_pb2.SPAN_ENDS)
    tasks, store = TaskReports(), TraceStore()
    tasks.take(report, 0.0)
    store.take(report, 0.0)
    busy.answers["get_slow"] = tasks.slow(control_pb2.GetSlow())
    busy.answers["get_traces"] = store.reply(control_pb2.GetTraces(limit=1), 7.0, 7.0)
    found = asking.get(f"{WORDY}/traces?min_ms=5&limit=3")
    assert found["hops"][0]["hop"] == "process" and found["traces"][0]["id"] == "0000000000000007"
    assert found["traces"][0]["spans"][0]["instance_id"] == "container_1_word_1" and found["p50_s"] == 0.25
    asked = dict(busy.asked)["get_traces"]
    assert isinstance(asked, control_pb2.GetTraces)
    assert (asked.min_s, asked.limit, asked.per_s) == (0.005, 3, 0.0), "a look changes nothing"
    assert asking.get(f"{WORDY}/slow?task=2")["tuples"][0]["value"] == "<b>"
    assert asking.get(f"{WORDY}/checkpoints")["interval_s"] is None
    assert asking.get(f"{WORDY}/batches") == {"sinks": [], "spark_ui": None}
    units = control_pb2.MetricsReply()
    units.reports.add(component="p-keeper").samples.add(name="units-backlog-bytes", label="p", value=7)
    busy.answers["get_metrics"] = units
    [pipeline] = asking.get(f"{WORDY}/units")["pipelines"]
    assert (pipeline["name"], pipeline["backlog_bytes"], pipeline["oldest_s"]) == ("p", 7, 0.0)


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/v1/topologies/local/me/default/wordz", 404, "no topology 'wordz'"),
        ("/api/v1/topologies/local/you/default/wordy", 404, "not in local/you/default"),
        ("/api/v1/topologies/locl/me/default/wordy", 404, "no cluster 'locl'"),
        (f"{WORDY}/events?after=-1", 400, "a whole number"),
        (f"{WORDY}/timeline?points=1001", 400, "from 0 to 1000"),
        (f"{WORDY}/timeline?since=nan", 400, "it must be a number"),
        (f"{WORDY}/tasks?componnt=x", 400, "did you mean 'component'"),
        ("/api/v1/live?topology=wordy", 400, "cluster/role/environ/name"),
        ("/api/v1/live?level=everything", 400, "use component, tasks"),
        (f"{WORDY}/checkpoints/..%2F..%2Fetc", 404, "there is no page or route"),
        (f"{WORDY}/checkpoints/7", 404, "no checkpoint 7"),
    ],
)
def test_bad_input_gets_one_sentence(path: str, status: int, said: str, asking: Asking, busy: FakeTopology) -> None:
    answer = asking.ask("GET", path)
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (status, status) and said in problem["title"], problem


def test_the_nearest_name_is_told(asking: Asking, busy: FakeTopology) -> None:
    assert asking.ask("GET", "/api/v1/topologies/local/me/default/wordz").json()["nearest"] == "wordy"


def test_a_master_of_another_release_is_said_and_its_plan_shown(asking: Asking, busy: FakeTopology) -> None:
    for name in ("get_load", "get_status", "get_metrics"):
        busy.answers[name] = InvalidRpcError(f"there is no request {name}")
    [one] = asking.get("/api/v1/topologies")["topologies"]
    assert one["state"] == "NO ANSWER" and "there is no request get_load" in one["cause"]
    assert asking.get(f"{WORDY}/plan")["version"] == 1
    answer = asking.ask("GET", f"{WORDY}/tasks")
    assert answer.status_code == 400 and "there is no request" in answer.json()["title"]


def test_a_master_that_does_not_answer_costs_the_figures_only(asking: Asking, busy: FakeTopology) -> None:
    busy.answers["get_load"] = RetryableRpcError("the topology master is starting")
    [one] = asking.get("/api/v1/topologies")["topologies"]
    assert (one["state"], one["emitted_per_s"], one["asked_at"]) == ("NO ANSWER", None, None)
    assert "is starting" in one["cause"]
    assert asking.ask("GET", f"{WORDY}/load").status_code == 503
    assert asking.get(f"{WORDY}/plan")["version"] == 1, "the plan is in the state manager"
    busy.state.delete(paths.tmaster("wordy"))
    assert asking.get(WORDY)["state"] == "NO MASTER"
    busy.state.delete(paths.scheduler("wordy"))
    assert asking.get(WORDY)["state"] == "DEAD"


@pytest.mark.parametrize("gone", [("tmaster",), ("tmaster", "scheduler"), ()], ids=["master", "all", "nothing yet"])
def test_one_that_is_being_killed_is_not_taken_for_dead(
    gone: tuple[str, ...], asking: Asking, busy: FakeTopology
) -> None:
    """A kill removes one part after the other, and the list was alarmed by each."""
    busy.answers["get_load"] = RetryableRpcError("the topology master ends")
    busy.state.create(paths.operation("wordy"), Doing.KILLING.value.encode())
    for part in gone:
        busy.state.delete(getattr(paths, part)("wordy"))
    [one] = asking.get("/api/v1/topologies")["topologies"]
    assert (one["state"], one["cause"], one["rank"]) == ("KILLING", "topology 'wordy' is being killed", 0)


def test_settings_have_origins_and_no_secrets(asking: Asking, wordy: FakeTopology) -> None:
    topology = wordy.status.plan.topology
    topology.topology_config.kvs.add(key="db.password", value="hunter2")
    topology.topology_config.kvs.add(key="sink.url", value="jdbc://me:hunter2@db/x")
    wordy.state.set(paths.topology("wordy"), topology.SerializeToString())
    text = asking.ask("GET", f"{WORDY}/config").text
    assert "hunter2" not in text and "jdbc://***@db/x" in text
    keys = {one["key"]: one for one in asking.get(f"{WORDY}/config")["settings"]}
    assert keys["db.password"]["redacted"] and keys["topology.stmgrs"]["value"] == "1"
    assert keys["heron.instance.batch_tuples"]["origin"] == "default"


def test_openapi_names_every_route(asking: Asking) -> None:
    document = asking.get("/api/v1/openapi.json")
    assert document["openapi"] == "3.1.0"
    assert document["paths"]["/api/v1/topologies"]["get"]["x-scope"] == "view"
    operation = document["paths"]["/api/v1/topologies/{cluster}/{role}/{environ}/{name}/actions/kill"]["post"]
    assert operation["x-scope"] == "all" and "requestBody" in operation
    assert document["components"]["schemas"]["Topology"]["properties"]["emitted_per_s"]


def test_a_page_is_not_sent_twice(asking: Asking) -> None:
    first = asking.ask("GET", "/")
    again = asking.ask("GET", "/", headers={"If-None-Match": first.headers["etag"]})
    assert first.headers["content-type"].startswith("text/html") and again.status_code == 304 and not again.content
    assert asking.ask("GET", "/static/../app.py").status_code in (404,)
    assert asking.ask("GET", "/static/%2e%2e/app.py").status_code == 404


# ---- files ----------------------------------------------------------------------------------


@pytest.fixture
def with_files(busy: FakeTopology, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The services answer without a network: what they open is tested with the executor."""
    folder = Path(busy.record.working_dir)

    serve_files(monkeypatch, folder)
    return folder


def test_the_log_of_a_standby_is_read_where_it_lies(
    asking: Asking, with_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers of an engine have folders of their own, and the name of a standby does not tell its container."""
    (with_files / "log-files").mkdir(exist_ok=True)
    (with_files / "log-files" / "tmaster-standby-1.log").write_text("it leads\n")

    async def ask_executor(self: object, container: int, request: Any) -> Any:
        folder = with_files if container == 1 else with_files / "other"
        return ContainerFiles(folder, container, alone=True).answer(request)

    monkeypatch.setattr("heronpy.clusters.masters.Master.ask_executor", ask_executor)
    assert "it leads" in asking.ask("GET", f"{WORDY}/logs/tmaster-standby-1").text
    assert asking.ask("GET", f"{WORDY}/logs/tmaster-standby-2").status_code == 404


def test_logs_are_read_in_pieces(asking: Asking, with_files: Path) -> None:
    records = [f"2026-11-21T00:10:{n:02d}.000+0000 INFO  container_1_word_1 [user] line {n}\n" for n in range(60)]
    (with_files / "log-files" / "container_1_word_1.log").write_text("".join(records) + "unfinished")
    assert asking.get(f"{WORDY}/logs")["files"][0]["process"] == "container_1_word_1"
    place = f"{WORDY}/logs/container_1_word_1"
    last = asking.get(f"{place}?bytes=1024")
    assert last["lines"][-1]["text"] == "line 59" and last["lines"][0]["level"] == "INFO"
    earlier = asking.get(f"{place}?bytes=1024&until={last['begin']}")
    assert earlier["end"] == last["begin"] and earlier["lines"], "nothing is left out or shown twice"
    begin, seen = 0, []
    while True:
        piece = asking.get(f"{place}?bytes=1024&offset={begin}")
        if piece["end"] == begin or begin > 5000:
            break
        seen += [line["text"] for line in piece["lines"]]
        begin = piece["end"]
    assert seen == [f"line {n}" for n in range(60)] + ["unfinished"]
    assert asking.get(f"{place}?offset=0&file=1")["rotated"]
    unknown = asking.ask("GET", f"{WORDY}/logs/container_1_word_2")
    assert unknown.status_code == 404 and unknown.json()["nearest"] == "container_1_word_1"


def test_the_end_of_a_log_is_of_the_topology_that_was_submitted_last(asking: Asking, with_files: Path) -> None:
    """It began with the errors of an earlier topology of the name, at other times of the day."""
    folder, name = with_files / "log-files", "container_1_word_1"
    path, place = folder / f"{name}.log", f"{WORDY}/logs/{name}"

    def add(at: float, text: str, logger: str = "user") -> None:
        with path.open("a") as file:
            file.write(format_record(at, "ERROR", name, logger, text) + "\n")

    add(1e9, "order 49 cannot be booked")
    divide_logs(folder, 1e9 + 5, "topology 'wordy' was submitted again (wordy-1)")
    assert asking.get(place)["lines"] == [], "nothing has come since"
    add(1e9 + 9, "---- no divider ----")
    add(1e9 + 9, "of now")
    shown = asking.get(place)
    assert [line["text"] for line in shown["lines"]] == ["---- no divider ----", "of now"]
    earlier = asking.get(f"{place}?until={shown['begin']}")
    assert earlier["end"] == shown["begin"] > 0 and earlier["lines"][0]["text"] == "order 49 cannot be booked"
    assert len(asking.get(f"{place}?offset=0")["lines"]) == 4, "who says where gets what is there"


@pytest.mark.parametrize("name", ["..%2f..%2flaunch.json", "%2e%2e", "/etc/passwd", "x%00y", "launch.json"])
def test_no_name_leads_out_of_the_logs(name: str, asking: Asking, with_files: Path) -> None:
    answer = asking.ask("GET", f"{WORDY}/logs/{name}")
    assert answer.status_code == 404 and "heron" not in answer.text.replace("heronpy", ""), answer.text


def test_logs_are_searched(asking: Asking, with_files: Path) -> None:
    for process, at in (("container_1_word_1", 1e9), ("container_1_count_2", 1e9 + 1), ("tmaster", 1e9 + 2)):
        lines = [
            format_record(at, "WARN", process, "user", text) for text in ("so", "<b>needle", "it\nended, no needle")
        ]
        (with_files / "log-files" / f"{process}.log").write_text("\n".join(lines) + "\n")
    found = asking.get(f"{WORDY}/logs/search?text=needle&what=word&what=tmaster&context=1")
    assert [(hit["process"], hit["text"]) for hit in found["hits"]] == [
        ("tmaster", "ended, no needle"), ("tmaster", "<b>needle"),
        ("container_1_word_1", "ended, no needle"), ("container_1_word_1", "<b>needle"),
    ]  # fmt: skip
    first = found["hits"][0]
    assert (first["at"], first["level"], first["logger"]) == (1e9 + 2, "WARN", "user")
    assert len(first["before"]) == 1 and first["before"][0].endswith("it")
    assert found["stopped"] == "" and found["unreachable"] == {} and found["searched_bytes"] > 100
    one = asking.get(f"{WORDY}/logs/search?text=needle&limit=1")
    assert one["stopped"] == "after 1 hit" and one["hits"][0]["process"] == "tmaster"
    for query, status in (
        ("", 400),
        ("text=", 400),
        ("text=a%0Ab", 400),
        ("text=a&level=LOUD", 400),
        ("text=a&what=x", 404),
    ):
        assert asking.ask("GET", f"{WORDY}/logs/search?{query}").status_code == status, query


def test_searches_at_once_are_bounded(asking: Asking, with_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_files, "SEARCHES_MAX", 0)
    assert asking.ask("GET", f"{WORDY}/logs/search?text=a").json()["type"] == "busy"


def test_letters_come_newest_first(asking: Asking, with_files: Path) -> None:
    folder = with_files / "dead-letters"
    folder.mkdir()
    for task in (2, 3):
        letter = {"at": task, "component": "count", "instance": "i", "payload": ["<x>"], "tries": 3}
        line = json.dumps(letter) + "\n"
        (folder / f"container_1_count_{task}.jsonl").write_text(line + "not json\n")
    found = asking.get(f"{WORDY}/letters")["letters"]
    assert [letter["at"] for letter in found] == [3.0, 2.0] and found[0]["payload"] == ["<x>"]
    assert asking.get(f"{WORDY}/letters?component=word")["letters"] == []
    assert len(asking.get(f"{WORDY}/letters?limit=1")["letters"]) == 1


@pytest.mark.parametrize(
    ("process", "container"),
    [("stmgr-3", 3), ("executor-12", 12), ("container_2_a_b_7", 2), ("tmaster", 0), ("scheduler", 0)],
)
def test_a_process_is_looked_for_in_its_container(process: str, container: int) -> None:
    assert reading_files.container_of(process) == container


@pytest.mark.parametrize(
    "query",
    [
        "timeline?until=1e308",
        "timeline?since=-inf",
        "traces?since=1e300",
        "traces?min_ms=inf",
        "timeline?" + "a=&" * 1001,
    ],
)
def test_numbers_and_queries_without_bounds_are_refused(query: str, asking: Asking, busy: FakeTopology) -> None:
    answer = asking.ask("GET", f"{WORDY}/{query}")
    assert answer.status_code == 400 and answer.json()["type"] == "bad-request", answer.text
