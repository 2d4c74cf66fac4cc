"""Verbs that look at a running topology, against a fake topology master."""

from __future__ import annotations

import json
import re
import stat
import threading
import time
from pathlib import Path
from textwrap import indent

import msgspec
import pytest
from msgspec.structs import replace

from heronpy.cli.look import doctor, stateful
from heronpy.common.errors import InvalidRpcError
from heronpy.health.diagnose import diagnose
from heronpy.health.recording import replay
from heronpy.health.signals import Signals, TaskSignals
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths
from heronpy.tmaster.traces import Span, placed, shown
from heronpy.views.findings import Finding, Verdict
from heronpy.views.past import Slow, SlowTuple, start_of
from heronpy.views.traces import Hop, Trace
from tests.cli.conftest import FakeTopology, Heron, Server
from tests.support.views import event, events, load_answer, traces


def test_list_shows_the_lifecycle(heron: Heron, wordy: FakeTopology) -> None:
    result = heron("list", "local")
    assert result.code == 0
    assert "wordy" in result.out and "RUNNING" in result.out
    rows = json.loads(heron("list", "local/me", "--json").out)
    assert [(row["name"], row["state"], row["tasks"]) for row in rows] == [("wordy", "RUNNING", 3)]
    assert json.loads(heron("list", "local/somebody", "--json").out) == []


def test_unknown_topology_is_exit_3_with_the_nearest_name(heron: Heron, wordy: FakeTopology) -> None:
    verbs = "status kill activate plan metrics doctor events exceptions top logs restart"
    for verb in verbs.split():
        result = heron(verb, "local", "wordi")
        assert (result.code, "did you mean 'wordy'?" in result.err) == (3, True), verb
        assert len(result.err.splitlines()) == 1
    result = heron("status", "local/other", "wordy")
    assert result.code == 3 and "local/me/default" in result.err


def test_status_names_who_is_down_and_who_holds_back(heron: Heron, wordy: FakeTopology) -> None:
    wordy.status.tasks[2].state = control_pb2.TASK_LOST
    wordy.status.tasks[2].error = "silent for 12 s\x1b[2J"
    wordy.status.culprits.add(
        task_id=2,
        component="count",
        instance_id="container_1_count_2",
        stmgr_id="stmgr-1",
        queued_bytes=2 << 20,
        since_s=4,
    )
    executor = wordy.status.executors.add(container=1, pid=7, host="here")
    executor.processes.add(name="stmgr-1", pid=8, state=control_pb2.PROC_RUNNING, restarts=2, exit_reason="killed")
    result = heron("status", "local", "wordy")
    assert result.code == 0
    for text in ("2 of 3 up", "container_1_count_3", "LOST", "container_1_count_2 is too slow", "2MB", "killed"):
        assert text in result.out
    assert "\x1b" not in result.out and "\\x1b[2J" in result.out
    shown = json.loads(heron("status", "local", "wordy", "--json").out)
    assert shown["backpressure"][0]["component"] == "count"
    assert shown["tasks"][2]["state"] == "LOST"
    assert shown["containers"][0]["processes"][0]["restarts"] == 2


def test_status_breaks_no_word_on_a_terminal(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 80 columns the cause of a crash loop was cut in the middle of its words."""
    wordy.status.lifecycle = control_pb2.LIFE_DEGRADED
    wordy.status.cause = (
        "1 of 2 tasks of count is down, restart 9, next in 26 s, failing for 59 s, given up after 10 min: OSError: away"
    )
    wordy.status.culprits.add(task_id=2, component="count", instance_id="container_1_count_2", stmgr_id="stmgr-1")
    whole = heron("status", "local", "wordy").out
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    shown = heron("status", "local", "wordy").out
    assert shown.split() == whole.split() and wordy.status.cause in whole
    assert all(len(line) <= 80 for line in shown.splitlines()), shown
    assert "DEGRADED: 1 of 2 tasks of count is down, restart 9, next in 26 s,\n             failing" in shown


def test_status_says_once_which_containers_have_no_limits_why_and_what_helps(heron: Heron, wordy: FakeTopology) -> None:
    assert "not limited" not in heron("status", "local", "wordy").out
    for container in (2, 1):
        wordy.status.executors.add(container=container, not_limited=f"[Errno 13] Permission denied: '/x/{container}'")
    said = (
        "2 containers are not limited to the CPU and memory that the topology asks for, because no control group can be"
        " made ([Errno 13] Permission denied: '/x/1'); let the scheduler's user make some, or set"
        " heron.executor.control_groups to false if no limits are wanted"
    )
    shown = heron("status", "local", "wordy").out
    assert said in " ".join(shown.split()) and shown.count("not limited") == 1
    found = json.loads(heron("status", "local", "wordy", "--json").out)["containers"]
    assert sorted(one["not_limited"][-3:-1] for one in found if one["not_limited"]) == ["/1", "/2"]


def test_status_of_a_failed_topology_is_exit_1(heron: Heron, wordy: FakeTopology) -> None:
    wordy.status.lifecycle = control_pb2.LIFE_FAILED
    wordy.status.cause = "container_1_word_1 cannot start"
    result = heron("status", "local", "wordy")
    assert result.code == 1 and "container_1_word_1 cannot start" in result.err


@pytest.mark.parametrize("which", ["logical", "packing", "physical"])
def test_plans_in_every_form(heron: Heron, wordy: FakeTopology, which: str) -> None:
    for form in ("table", "colored_table", "raw", "json"):
        result = heron("plan", "local", "wordy", which, "--format", form)
        assert result.code == 0 and "count" in result.out
    shown = json.loads(heron("plan", "local", "wordy", which, "--json").out)
    if which == "logical":
        assert shown["bolts"]["count"]["inputs"][0] == {
            "stream_name": "default",
            "component_name": "word",
            "grouping": "FIELDS",
            "fields": ["word"],
        }
    elif which == "packing":
        assert [item["task_id"] for item in shown["container_plans"][0]["instances"]] == [1, 2, 3]
    else:
        assert shown["instance_groups"]["container_1"] == [
            "container_1_word_1",
            "container_1_count_2",
            "container_1_count_3",
        ]
        assert shown["stmgrs"]["stmgr-1"]["pid"] == 11


def test_metrics_show_the_links_between_stream_managers(heron: Heron, wordy: FakeTopology) -> None:
    reply = control_pb2.MetricsReply(interval_s=10.0)
    task = reply.reports.add(process="container_1_word_1", component="word")
    task.samples.add(name="__emit-count", label="default", type=control_pb2.Sample.COUNTER, value=30)
    for frames, tuples, peer in ((200, 3100, "stmgr-2"), (0, 0, "stmgr-3")):
        report = next((one for one in reply.reports if one.process == "stmgr-1"), None) or reply.reports.add(
            process="stmgr-1"
        )
        for name, value in (("frames", frames), ("tuples", tuples)):
            report.samples.add(
                name=f"__{name}_to_stmgrs_by_peer", label=peer, type=control_pb2.Sample.COUNTER, value=value
            )
    wordy.answers["get_metrics"] = reply
    shown = heron("metrics", "local", "wordy", "--interval", "10s").out
    row = next(line for line in shown.splitlines() if "stmgr-1 to stmgr-2" in line)
    assert row.replace("│", " ").split()[-4:] == ["200", "20", "3,100", "15.5"]
    assert "stmgr-3" not in shown, "nothing passes there"
    shown = heron("metrics", "local", "wordy").out.partition("Between stream managers")[2]
    assert "frames/s" in shown, "of late, beside what has passed in all"
    of_late = wordy.asked[-1][1]
    assert isinstance(of_late, control_pb2.GetMetrics)
    assert of_late.interval_s == 10
    assert list(of_late.names) == ["__frames_to_stmgrs_by_peer", "__tuples_to_stmgrs_by_peer"]


def test_metrics_are_summed_by_component(heron: Heron, wordy: FakeTopology) -> None:
    reply = control_pb2.MetricsReply()
    for task in (2, 3):
        report = reply.reports.add(process=f"container_1_count_{task}", component="count", task_id=task)
        report.samples.add(name="__execute-count", label="word/default", value=5 * task)
        report.samples.add(
            name="__execute-latency",
            label="word/default",
            type=control_pb2.Sample.HISTOGRAM,
            sum=4e6,
            count=2,
            buckets=[control_pb2.Bucket(le=1e6, count=1), control_pb2.Bucket(le=float("inf"), count=2)],
        )
    wordy.answers["get_metrics"] = reply
    result = heron("metrics", "local", "wordy", "--component", "count", "--interval", "5m", "--all")
    assert result.code == 0
    assert "25" in result.out and "2ms (mean of 4)" in result.out
    request = wordy.asked[-1][1]
    assert isinstance(request, control_pb2.GetMetrics)
    assert (request.component, request.interval_s) == ("count", 300.0)
    by_instance = heron("metrics", "local", "wordy", "--by-instance", "--all").out
    assert "container_1_count_2" in by_instance and "container_1_count_3" in by_instance
    shown = json.loads(heron("metrics", "local", "wordy", "--json").out)
    assert shown["processes"][0]["metrics"][1]["buckets"][1] == {"le": "+Inf", "count": 2}
    wrong = heron("metrics", "local", "wordy", "--component", "coun")
    assert wrong.code == 2 and "did you mean 'count'?" in wrong.err


def test_metrics_are_few_unless_all_are_wanted(heron: Heron, wordy: FakeTopology) -> None:
    reply = control_pb2.MetricsReply()
    for task in (2, 3):
        report = reply.reports.add(process=f"container_1_count_{task}", component="count", task_id=task)
        for name, value in (("__execute-count", 1000.0 * task), ("__py-user-cpu-time-secs", 1.5),
                            ("__py-sys-cpu-time-secs", 0.5), ("__py-physical-memory-byte", 10 << 20),
                            ("__gateway-in-stream-queue-size", 7), ("__fail-count", 0),
                            ("__gateway-sent-packets-per-sec", 0), ("__gateway-consumed-packets-per-sec", 100 * task),
                            ("__gateway-consumed-tuples-per-packet", task)):  # fmt: skip
            report.samples.add(name=name, type=control_pb2.Sample.GAUGE, value=value)
        latency = report.samples.add(name="__execute-latency", type=control_pb2.Sample.HISTOGRAM, sum=2e6, count=2)
        latency.buckets.add(le=1e6, count=1)
        latency.buckets.add(le=5e6, count=2)
    reply.reports[0].at_least = True
    reply.reports.add(process="stmgr-1").samples.add(name="__stmgr_garbage", value=0)
    wordy.answers["get_metrics"] = reply
    short = heron("metrics", "local", "wordy").out
    [row] = [line.split() for line in short.splitlines() if line.strip().startswith("count ")]
    assert row == ["count", "-", "5,000", "-", "0", "1ms", "5ms", "14", "4.0s", "20MB", "500", "2.6"]
    assert "stmgr" not in short and "'--all' shows every metric" in short
    assert "the counts of count are lower bounds" in short
    assert "container_1_count_3" in heron("metrics", "local", "wordy", "--by-instance").out
    everything = heron("metrics", "local", "wordy", "--all").out
    assert "__stmgr_garbage" in everything and "__execute-count" in everything
    assert "__fail-count" in heron("metrics", "local", "wordy", "--name", "__fail-count").out
    assert "__fail-count" in heron("metrics", "local", "wordy", "--instance", "container_1_count_2").out


def test_exceptions_are_grouped_by_type_and_line(heron: Heron, wordy: FakeTopology) -> None:
    def trace(line: int, message: str) -> str:
        return (
            'Traceback (most recent call last):\n  File "/home/me/topo.py", line 9, in process\n    f()\n'
            f'  File "/home/me/topo.py", line {line}, in f\n    g()\n'
            f'  File "/usr/lib/python3.11/json/decoder.py", line 5, in decode\nValueError: {message}'
        )

    reply = control_pb2.ExceptionsReply()
    for task, line, message, at in ((2, 17, "bad 1", 1e9), (3, 17, "bad 2", 1.1e9), (2, 30, "other", 1.2e9)):
        reply.exceptions.add(instance_id=f"container_1_count_{task}", component="count", type="ValueError", count=2,
                             message=message, traceback=trace(line, message), first_at=at, last_at=at)  # fmt: skip
    reply.exceptions.add(process="container_1_count_2", component="count", type="Killed", message="x", count=1)
    wordy.answers["get_exceptions"] = reply
    out = heron("exceptions", "local", "wordy").out
    assert "ValueError at /home/me/topo.py:17 in f: 4 times" in out and "topo.py:30 in f: 2 times" in out
    assert "container_1_count_2, container_1_count_3" in out and "also      bad 1" in out
    # The newest traceback of the two stands for the group, whole.
    newest, older = (indent(trace(17, text).rstrip(), "  ") for text in ("bad 2", "bad 1"))
    assert newest in out and older not in out and out.count("Traceback") == 2
    assert heron("exceptions", "local", "wordy", "--all").out.count("Traceback") == 3
    assert heron("exceptions", "local", "wordy", "--summary").out.count("topo.py:17 in f") == 1
    groups = json.loads(heron("exceptions", "local", "wordy", "--json").out)["groups"]
    assert [(group["where"], group["count"]) for group in groups] == [
        ("/home/me/topo.py:30 in f", 2), ("/home/me/topo.py:17 in f", 4), ("", 1)]  # fmt: skip
    assert "exceptions" not in heron("status", "local", "wordy").out
    wordy.status.exceptions = 7
    assert "exceptions 7 of user code; see 'heron exceptions local wordy'" in heron("status", "local", "wordy").out


def test_events_are_shown_oldest_first_and_by_kind(heron: Heron, wordy: FakeTopology) -> None:
    wordy.answers["get_events"] = events()
    assert heron("events", "local", "wordy").out == "No events in topology 'wordy'\n"
    oom = event(
        7, at=1e9, first_at=9.9e8, times=3, kind="oom", subject="count-7", reason="oom", warning=True,
        text="count-7 was started again\x1b[2J",
    )  # fmt: skip
    update = event(8, at=1.1e9, first_at=1.1e9, kind="update", text="update done")
    newer = event(9, at=1.2e9, first_at=1.2e9, kind="kind-99", text="of a newer release")
    wordy.answers["get_events"] = events(oom, update, newer, last=9, forgotten=4)
    lines = heron("events", "local", "wordy").out.splitlines()
    assert "! oom" in lines[0] and "count-7 was started again\\x1b[2J  (3 times since" in lines[0]
    assert lines[1].endswith("  update       update done") and "kind-99" in lines[2]
    assert lines[3] == "4 older events no longer kept"
    assert len(heron("events", "local", "wordy", "--limit", "1").out.splitlines()) == 2
    assert "count-7" not in heron("events", "local", "wordy", "--kind", "update").out
    assert heron("events", "local", "wordy", "--kind", "restore").out.startswith("No events of this kind")
    shown = json.loads(heron("events", "local", "wordy", "--json").out)
    assert shown["forgotten"] == 4 and [one["kind"] for one in shown["events"]] == ["oom", "update", "kind-99"]
    assert shown["events"][0] == {
        "kind": "oom", "number": 7, "at": 1e9, "first_at": 9.9e8, "times": 3, "subject": "count-7", "reason": "oom",
        "text": oom.text, "lasted_s": 0.0, "warning": True,
    }  # fmt: skip
    assert heron("events", "local", "wordy", "--kind", "nonsense").code == 2


def test_the_phases_of_a_start_are_shown(heron: Heron, wordy: FakeTopology) -> None:
    wordy.answers["get_events"] = reply = events()
    refused = heron("events", "local", "wordy", "--start")
    assert refused.code == 1 and "how topology 'wordy' was started is not known" in refused.err
    times = control_pb2.StartTimes(begun_at=1e9, packaged_at=1e9 + 1.5, launched_at=1e9 + 2)
    reply.start = start_of(times)
    shown = heron("events", "local", "wordy", "--start").out
    assert ": 2s so far" in shown and "package" in shown and "register" not in shown
    times.registered_at, times.planned_at, times.running_at = 1e9 + 3, 1e9 + 3.25, 1e9 + 5
    reply.start = start_of(times)
    told = json.loads(heron("events", "local", "wordy", "--start", "--json").out)
    assert (told["took_s"], told["running"], told["begun_at"]) == (5.0, True, 1e9)
    phases = {"package": 1.5, "launch": 0.5, "register": 1.0, "plan": 0.25, "initialise": 1.75}
    assert told["phases"] == phases and sum(phases.values()) == told["took_s"]
    shown = heron("events", "local", "wordy", "--start").out
    assert ": 5s\n" in shown and "the tasks start and initialise" in shown
    assert heron("events", "local", "wordy", "--start", "--follow").code == 2


def test_the_doctor_says_what_is_wrong_and_exits_with_1(heron: Heron, wordy: FakeTopology) -> None:
    wordy.answers["get_metrics"] = control_pb2.MetricsReply(interval_s=60.0)
    wordy.answers["get_events"] = events()
    calm = heron("doctor", "local", "wordy")
    assert calm.code == 0 and calm.out.startswith("NO INPUT   nothing to read: word emitted nothing in the last 1m00s")
    oom = event(
        at=time.time(), times=3, kind="oom", subject="container_1_count_2", detail="limit 64MB\x1b[2J", text="x",
        warning=True,
    )  # fmt: skip
    wordy.answers["get_events"] = events(oom)
    ill = heron("doctor", "local", "wordy")
    assert ill.code == 1 and ill.out.startswith("MEMORY     container_1_count_2 ran out of memory 3 times")
    assert (
        "limit 64MB\\x1b[2J" in ill.out
        and "\nnext       heron heap local wordy container_1_count_2 shows what it keeps" in ill.out
        and "\nseen       1m00s" in ill.out
    )
    shown = heron("doctor", "local", "wordy", "--json")
    assert shown.code == 1
    found = json.loads(shown.out)
    assert not found["healthy"] and found["findings"][0]["verdict"] == "memory"
    assert {"busy", "executed", "lag_s"} <= found["tasks"][0].keys()


def test_what_is_not_answered_in_time_is_named_and_the_masters_own_finding_stands(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven questions had five seconds each."""
    goes_on = threading.Event()
    wordy.on_ask = lambda name: name != "get_metrics" or goes_on.wait(60.0)  # type: ignore[assignment, func-returns-value]
    wordy.answers["get_events"] = events()
    hung = Finding(Verdict.HUNG, task="container_1_count_2", figures={"silent_s": 31.0})
    wordy.answers["get_load"] = load_answer(findings=[hung])
    try:
        shown = heron("doctor", "local", "wordy", "--json")
        asked = [name for name, _ in wordy.asked]
    finally:
        goes_on.set()
    found = json.loads(shown.out)
    assert shown.code == 1 and [one["verdict"] for one in found["findings"]] == ["hung"]
    assert found["unanswered"] == ["figures", "lines and keys", "the last hour"]
    assert asked[-1] == "get_metrics", "what there is no time for is not asked"
    signals = Signals("wordy", control_pb2.LIFE_RUNNING, "", 60.0, unanswered=["figures", "checkpoints"])
    monkeypatch.setattr("heronpy.cli.look.doctor.look", lambda *_: (signals, diagnose(signals)))
    said = heron("doctor", "local", "wordy").out
    assert "\nseen       the topology master did not answer in time: figures, checkpoints; try again\n" in said


def test_each_look_of_a_watch_says_when_it_was(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an hour of looks in a terminal nobody could tell which one was of when."""
    looks = iter([0.0, 31.0])

    def look(*_: object) -> tuple[Signals, list[Finding]]:
        for silent_s in looks:
            task = TaskSignals("container_1_count_2", "count", False, True, silent_s=silent_s)
            signals = Signals("wordy", control_pb2.LIFE_RUNNING, "", 60.0, [task])
            return signals, diagnose(signals)
        raise KeyboardInterrupt  # as Ctrl-C

    monkeypatch.setattr("heronpy.cli.look.doctor.look", look)
    monkeypatch.setattr("heronpy.cli.look.doctor.LOOK_S", 0.0)
    watched = heron("doctor", "local", "wordy", "--watch")
    assert watched.code == 0
    calm, ill = watched.out.strip().split("\n\n")
    day = time.strftime("%Y-%m-")
    assert calm.startswith(f"at         {day}") and "HEALTHY" in calm
    assert ill.startswith(f"at         {day}") and "HUNG" in ill


def test_the_diagnosis_of_the_master_is_in_status_and_top(heron: Heron, wordy: FakeTopology) -> None:
    assert "doctor" not in heron("status", "local", "wordy").out
    hung = Finding(Verdict.HUNG, task="container_1_count_2\x1b[2J", figures={"silent_s": 31.0})
    wordy.answers["get_load"] = load_answer(findings=[hung])
    told = "doctor: container_1_count_2\\x1b[2J has been in one call for 31s"
    assert told in heron("status", "local", "wordy").out
    assert told in heron("top", "local", "wordy", "--iterations", "1").out
    wordy.answers["get_load"] = InvalidRpcError("the topology master does not answer get_load")
    assert "doctor" not in heron("status", "local", "wordy").out, "a master of an earlier release"
    later = msgspec.msgpack.encode({**msgspec.to_builtins(load_answer()), "findings": [{"verdict": "of a later one"}]})
    wordy.answers["get_load"] = control_pb2.Answer(kind="LoadAnswer", data=later)
    assert "doctor" not in heron("status", "local", "wordy").out, "a master of a later one"


def test_evidence_is_one_private_file_without_secrets(heron: Heron, wordy: FakeTopology, tmp_path: Path) -> None:
    secret = "c4naryC4NARY"
    wordy.answers["get_metrics"] = control_pb2.MetricsReply(interval_s=60.0)
    oom = event(
        at=time.time(), times=3, kind="oom", subject="container_1_count_2", text=f"password={secret}",
        detail="limit 64MB", warning=True,
    )  # fmt: skip
    wordy.answers["get_events"] = events(oom)
    wordy.answers["get_exceptions"] = raised = control_pb2.ExceptionsReply()
    raised.exceptions.add(message=f"amqp://me:{secret}@host is away")
    logs = Path(wordy.record.working_dir) / "log-files"
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "container_1_count_2.log").write_text("".join(f"line {n} token: {secret}\n" for n in range(2000)))
    file = tmp_path / "evidence.jsonl"
    found = heron("doctor", "local", "wordy", "--evidence", str(file))
    assert found.code == 1 and f"in {file}; read it before you pass it on" in found.out
    text = file.read_text()
    assert secret not in text and "***" in text and stat.S_IMODE(file.stat().st_mode) == 0o600
    parts = [json.loads(line) for line in text.splitlines()]
    keys = {key for part in parts for key in part}
    assert {"format", "signals", "findings", "events", "exceptions", "status", "settings", "log"} <= keys
    log = next(part for part in parts if part.get("log") == "container_1_count_2")
    assert len(log["lines"]) == 50 and log["lines"][-1] == "line 1999 token: ***"
    ((_, signals),) = replay(text.splitlines(), str(file))
    assert diagnose(signals)[0].verdict is Verdict.MEMORY
    again = heron("doctor", "local", "wordy", "--evidence", str(file))
    assert again.code == 2 and again.err == f"error: {file} exists; name another file\n" and file.read_text() == text


def test_evidence_without_a_file_is_in_one_of_this_folder(
    heron: Heron, wordy: FakeTopology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took what came behind it for the file, or was refused."""
    wordy.answers["get_metrics"] = control_pb2.MetricsReply(interval_s=60.0)
    wordy.answers["get_events"] = events()
    wordy.answers["get_exceptions"] = control_pb2.ExceptionsReply()
    monkeypatch.chdir(tmp_path)
    found = heron("doctor", "local", "wordy", "--evidence")
    [file] = tmp_path.glob("*.jsonl")
    assert re.fullmatch(r"wordy-evidence-\d{8}T\d{6}Z\.jsonl", file.name)
    assert f"in {file.name}; read it before you pass it on" in found.out
    assert list(replay(file.read_text().splitlines(), file.name))


def test_a_metric_that_does_not_exist_is_an_error(heron: Heron, wordy: FakeTopology) -> None:
    """It exited with 0, so that a script took a misspelt name for a count of 0."""
    wordy.answers["get_metrics"] = control_pb2.MetricsReply()
    refused = heron("metrics", "local", "wordy", "--name", "__emit-cuont")
    assert refused.code == 2
    assert "has no metric '__emit-cuont'; did you mean '__emit-count'?" in refused.err
    assert heron("metrics", "local", "wordy", "--name", "mine", "--json").code == 2
    assert heron("metrics", "local", "wordy", "--name", "__emit-count").code == 0, "it may come"


def test_a_rate_of_the_window_is_not_told_as_that_of_now() -> None:
    """The doctor said that a spout emits nothing for 55 s, and in the next line that spouts emit 1,576/s."""
    spout = TaskSignals("words-1", "words", True, True, emitted=1576.0)
    signals = Signals("wordy", control_pb2.LIFE_RUNNING, "", 300.0, [spout])
    assert doctor.seen(signals)[0] == "5m00s: spouts emit 1,576/s, held 0 %"
    signals.still_s = {"words": 55.0}
    assert doctor.seen(signals)[0] == "5m00s: spouts emitted 1,576/s, nothing in the last 55s, held 0 %"


def test_metrics_by_instance_show_tasks_that_have_counted_nothing(heron: Heron, wordy: FakeTopology) -> None:
    reply = control_pb2.MetricsReply()
    report = reply.reports.add(process="container_1_count_2", component="count", task_id=2)
    report.samples.add(name="__execute-count", label="word/default", value=7)
    report.samples.add(name="__pending", type=control_pb2.Sample.GAUGE, value=3)
    wordy.answers["get_metrics"] = reply
    lines = [
        line.split()
        for line in heron("metrics", "local", "wordy", "--by-instance", "--name", "__execute-count").out.splitlines()
    ]
    counts = {words[0]: words[1:4] for words in lines if "__execute-count" in words}
    assert counts == {
        "container_1_count_2": ["__execute-count", "word/default", "7"],
        "container_1_count_3": ["__execute-count", "word/default", "0"],
    }
    assert not [words for words in lines if words[:2] == ["container_1_count_3", "__pending"]], "a gauge has no zero"
    assert (
        "container_1_word_1" not in heron("metrics", "local", "wordy", "--by-instance", "--name", "__execute-count").out
    )
    shown = json.loads(heron("metrics", "local", "wordy", "count", "--json").out)["processes"]
    assert [(row["process"], row["metrics"][0]["value"]) for row in shown] == [
        ("container_1_count_2", 7.0),
        ("container_1_count_3", 0.0),
    ]


def test_slow_shows_values_as_one_line_each(heron: Heron, wordy: FakeTopology) -> None:
    wordy.answers["get_slow"] = reply = Slow(tuples=[])
    assert "No slow tuples in topology 'wordy'" in heron("slow", "local", "wordy").out
    one = SlowTuple(
        at=9.0, instance_id="container_1_count_2", component="count", task_id=2, source="word/default", source_task=1,
        took_s=1.5, value="['\x1b[31m<b>\n']", tuples=1,
    )  # fmt: skip
    reply.tuples += [one, replace(one, took_s=0.2, value=None, tuples=512)]
    out = heron("slow", "local", "wordy", "--component", "count").out
    assert "1.5s" in out and "['\\x1b[31m<b>\\n']" in out and "not known: one of 512 tuples" in out
    asked = dict(wordy.asked)["get_slow"]
    assert isinstance(asked, control_pb2.GetSlow) and asked.component == "count"
    first, second = json.loads(heron("slow", "local", "wordy", "--json").out)["tuples"]
    assert (first["value"], first["took_s"], second["value"]) == ("['\x1b[31m<b>\n']", 1.5, None)


def test_trace_shows_hops_and_the_slowest_tuple(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heronpy.cli.look.trace.LATE_S", 0.0)
    wordy.answers["get_traces"] = reply = traces(at=50.0)
    assert (
        "No tuple of topology 'wordy' was traced that took at least 5ms"
        in heron("trace", "local", "wordy", "--seconds", "1", "--min-ms", "5").out
    )
    nothing = heron("trace", "local", "wordy", "--seconds", "1").out
    assert nothing == "No tuple of topology 'wordy' was traced; if its spouts are held, heron doctor says by whom\n"
    orders = [body for name, body in wordy.asked if isinstance(body, control_pb2.GetTraces)]
    assert (orders[0].per_s, orders[0].lease_s) == (100.0, 3.0)
    assert [(one.per_s, one.since, one.until, one.min_s) for one in orders if one.min_s] == [(0.0, 50.0, 51.0, 0.005)]
    hop = Hop(
        source="word/default", target="count", hop="wire", count=1, p50_s=0.1, p99_s=0.1, max_s=0.1, error_s=0.0
    )  # fmt: skip
    spans = [
        Span(trace=7, number=1, began=0, ended=2_000_000, process="container_1_word_1\x1b[31m", component="word"),
        Span(trace=7, number=2, parent=1, emitted=2_000_000, sealed=4_000_000, hops=[5_000_000, 6_000_000],
             began=9_000_000, ended=10_000_000, process="container_1_count_2", end=control_pb2.SPAN_HELD),
    ]  # fmt: skip
    trace = Trace(id=f"{7:016x}", at=9.0, took_s=0.01, spans=[shown(one) for one in placed(spans)])
    wordy.answers["get_traces"] = reply = traces(
        at=50.0, matching=1, kept=1, p50_s=0.01, p99_s=0.01, discarded=4, hops=[hop], traces=[trace]
    )
    out = heron("trace", "local", "wordy", "--seconds", "1").out
    assert "the slowest, 10ms, trace 0000000000000007" in out and "4 calls were not kept" in out
    first, second = [line for line in out.splitlines() if line.lstrip().startswith("container_1")]
    assert "\\x1b[31m" in first and "|PPPPPPPPPP " in first
    assert re.search(r"\| +b{9,11}w{4,6}q{4,6}i{13,16}P{4,6}\|", second) and "held here" in second
    assert out.startswith("1 tuples: p50 10ms, p99 10ms from") and "under way" not in out
    reply.under_way = 3
    out = heron("trace", "local", "wordy", "--seconds", "1").out
    assert out.startswith("1 tuples: p50 at least 10ms, p99 at least 10ms from")
    assert "under way  3 traced tuples have not arrived everywhere yet, or are in a call" in out
    found = json.loads(heron("trace", "local", "wordy", "--seconds", "1", "--json").out)
    assert found["traces"][0]["spans"][1]["parts"][0] == {"hop": "batch", "took_s": 0.002} and found["under_way"] == 3
    away = heron("trace", "local", "wordy", "--seconds", "1", "--otlp", "http://127.0.0.1:1")
    assert away.code == 1 and "the collector at http://127.0.0.1:1/v1/traces does not take the traces: " in away.err
    assert len(away.err.splitlines()) == 1
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=hidden\x1b")
    bad = heron("trace", "local", "wordy", "--otlp", "http://127.0.0.1:1")
    assert bad.code == 2 and "OTEL_EXPORTER_OTLP_HEADERS has a part that is no header" in bad.err
    assert "hidden" not in bad.err
    bad = heron("trace", "local", "wordy", "--otlp", "ftp://x")
    assert bad.code == 2 and "--otlp ftp://x is not an address; use one like http://127.0.0.1:4318" in bad.err


def test_exceptions_show_whole_tracebacks(heron: Heron, wordy: FakeTopology) -> None:
    text = "Traceback (most recent call last):\n  File 'x'\nValueError: no\x1b]0;title\x07\n2026 ERROR forged"
    reply = control_pb2.ExceptionsReply(discarded=3)
    reply.exceptions.add(instance_id="container_1_count_2", type="ValueError", traceback=text, count=4, message="no")
    wordy.answers["get_exceptions"] = reply
    result = heron("exceptions", "local", "wordy")
    indented = (
        "\n  Traceback (most recent call last):\n    File 'x'\n  ValueError: no\\x1b]0;title\\x07\n  2026 ERROR forged"
    )
    assert indented in result.out, "no line of a message stands where heron's own lines stand"
    assert "4 times" in result.out and "3 further kinds" in result.out
    assert "ValueError" in heron("exceptions", "local", "wordy", "--summary").out
    assert json.loads(heron("exceptions", "local", "wordy", "--json").out)["exceptions"][0]["traceback"] == text


def test_top_prints_snapshots_without_a_terminal(heron: Heron, wordy: FakeTopology) -> None:
    def work(name: str) -> None:
        wordy.status.tasks[1].executed += 100

    wordy.on_ask = work
    result = heron("top", "local", "wordy", "-n", "2", "--interval", "0.1")
    assert result.code == 0
    assert result.out.count("wordy  RUNNING") == 2 and "count" in result.out
    lines = heron("top", "local", "wordy", "-n", "2", "--interval", "0.1", "--json").out.splitlines()
    count = json.loads(lines[-1])["components"][1]
    assert count["name"] == "count" and count["executed_per_s"] > 0 and count["up"] == 2


def test_one_look_shows_no_rates(heron: Heron, wordy: FakeTopology) -> None:
    """A rate needs two; 0.0 would say that nothing flows."""
    status = json.loads(heron("status", "local", "wordy", "--json").out)["components"][1]
    top = json.loads(heron("top", "local", "wordy", "-n", "1", "--json").out)["components"][1]
    rates = {"emitted_per_s", "executed_per_s", "frames_per_s", "tuples_per_frame"}
    assert not rates & status.keys() and status["executed"] == 0 and top.keys() - status.keys() == rates


@pytest.mark.parametrize(
    ("count", "texts"),
    [
        (1, ("restored once: its stream manager ended", "1 checkpoint did not complete: checkpoint 4: late")),
        (2, ("restored 2 times, last: its", "2 checkpoints did not complete, last: checkpoint 4: late")),
    ],
)
def test_one_and_many_are_told_apart(count: int, texts: tuple[str, ...]) -> None:
    reply = control_pb2.CheckpointsReply(
        restores=count, last_restore="its stream manager ended", aborted=count, last_failure="checkpoint 4: late"
    )
    shown = stateful.lines(reply, 0.0)
    assert all(any(line.startswith(text) for line in shown) for text in texts), shown


def test_logs_are_merged_by_time_filtered_and_chosen(heron: Heron, wordy: FakeTopology) -> None:
    from heronpy.common.log_format import format_record

    folder = wordy.launch.log_dir
    now = time.time()
    for offset, process, level in (
        (-900, "tmaster", "INFO"),
        (-2, "container_1_count_2", "ERROR"),
        (-1, "tmaster", "WARN"),
    ):
        with open(folder / f"{process}.log", "a", encoding="utf-8") as file:
            file.write(format_record(now + offset, level, process, "x", f"at {offset}\nmore") + "\n")
    everything = heron("logs", "local", "wordy").out
    assert everything.index("at -900") < everything.index("at -2") < everything.index("at -1\n")
    assert "  | more" in everything
    assert "at -900" not in heron("logs", "local", "wordy", "--since", "5m").out
    errors = heron("logs", "local", "wordy", "--level", "ERROR").out
    assert "at -2" in errors and "at -1\n" not in errors
    for name in ("count", "count-2", "container_1_count_2"):
        chosen = heron("logs", "local", "wordy", name).out
        assert "tmaster" not in chosen and "at -2" in chosen, name
    assert len(heron("logs", "local", "wordy", "-n", "1", "--json").out.splitlines()) == 1
    wrong = heron("logs", "local", "wordy", "tmastr")
    assert wrong.code == 2 and "did you mean 'tmaster'?" in wrong.err
    assert heron("logs", "local", "wordy", "--since", "yesterday").code == 2


def test_logs_can_be_read_after_the_topology_was_killed(heron: Heron, wordy: FakeTopology) -> None:
    (wordy.launch.log_dir / "tmaster.log").write_text("crash dump\n", encoding="utf-8")
    wordy.state.delete(paths.execution_state("wordy"))
    assert "crash dump" in heron("logs", "local", "wordy").out


def test_logs_of_earlier_topologies_are_shown_when_they_are_asked_for(heron: Heron, wordy: FakeTopology) -> None:
    """The log of a task went on where one of an earlier topology of its name had ended, without a word."""
    from heronpy.common.log_files import divide_logs
    from heronpy.common.log_format import format_record
    from heronpy.procs.child_log import last_line_of

    def write(name: str, when: float, text: str) -> None:
        with open(folder / f"{name}.log", "a", encoding="utf-8") as file:
            file.write(format_record(when, "INFO", name, "x", text) + "\n")

    folder, began = wordy.launch.log_dir, time.time() - 60
    write("tmaster", began - 900, "of yesterday")
    (folder / "stmgr-1.log").write_text("", encoding="utf-8")
    with open(folder / "tmaster.log", "a", encoding="utf-8") as file:
        file.write("raw | torn")
    for _ in range(2):
        divide_logs(folder, began - 0.002, "topology 'wordy' was submitted again")
    assert not (folder / "stmgr-1.log").read_text()
    lines = (folder / "tmaster.log").read_text().splitlines()
    assert [line.rpartition("] ")[2] for line in lines] == [
        "of yesterday", "raw | torn", "---- topology 'wordy' was submitted again ----"
    ]  # fmt: skip
    assert last_line_of((folder / "tmaster.log").read_bytes()) == "", "an earlier one has said that"
    write("tmaster", began + 1, "of today")
    wordy.record.submitted_at = began
    wordy.state.set(paths.execution_state("wordy"), wordy.record.SerializeToString())
    for found in (heron("logs", "local", "wordy"), heron("logs", "local", "wordy", "-n", "9")):
        assert "of today" in found.out and "yesterday" not in found.out and "----" not in found.out
    everything = heron("logs", "local", "wordy", "--earlier").out
    assert everything.index("yesterday") < everything.index("----") < everything.index("of today")
    assert heron("logs", "local", "wordy", "--earlier", "--since", "5m").code == 2


def test_a_dead_topology_says_so(heron: Heron, wordy: FakeTopology) -> None:
    wordy.state.delete(paths.tmaster("wordy"))
    wordy.answers["get_containers"] = control_pb2.ContainersReply()
    result = heron("status", "local", "wordy")
    assert result.code == 1 and "topology master of 'wordy' is not running" in result.err
    given_up = control_pb2.ProcessRecord(
        name="executor-0", state=control_pb2.PROC_FAILED, exit_detail="its plan is damaged"
    )
    wordy.answers["get_containers"] = control_pb2.ContainersReply(containers=[given_up])
    assert "its plan is damaged" in heron("status", "local", "wordy").err
    wordy.state.delete(paths.scheduler("wordy"))
    assert "heron kill local wordy" in heron("status", "local", "wordy").err
    assert "DEAD" in heron("list", "local").out


def test_a_topology_that_is_being_submitted_is_starting_not_dead(heron: Heron, wordy: FakeTopology) -> None:
    wordy.state.delete(paths.tmaster("wordy"))
    wordy.state.delete(paths.physical_plan("wordy"))
    wordy.answers["get_containers"] = control_pb2.ContainersReply()

    def shown() -> tuple[int, str, str, str]:
        plain, row = heron("status", "local", "wordy"), json.loads(heron("list", "local", "--json").out)[0]
        found = json.loads(heron("status", "local", "wordy", "--json").out)
        assert found["cause"] == row["cause"] and f"STARTING: {row['cause']}" in plain.out
        return plain.code, found["lifecycle"], row["state"], row["cause"]

    assert shown() == (0, "STARTING", "STARTING", "its topology master has not started yet")
    wordy.state.delete(paths.scheduler("wordy"))
    assert heron("status", "local", "wordy").code == 1 and "DEAD" in heron("list", "local").out
    wordy.state.create(paths.submission("wordy"), b"", ephemeral=True)
    assert shown() == (0, "STARTING", "STARTING", "its scheduler has not started yet")
    assert "STARTING: its scheduler has not started yet" in heron("list", "local").out
    assert "dead" not in heron("list", "local").out


def test_a_late_aligned_checkpoint_says_what_its_barrier_waits_for() -> None:
    status, reply = control_pb2.StatusReply(), control_pb2.CheckpointsReply(pending=4, pending_s=0.5)
    status.tasks.add(component="slow", in_queue_tuples=300)
    status.tasks.add(component="slow", in_queue_tuples=500)
    status.tasks.add(component="fast", in_queue_tuples=7)
    assert stateful.barrier_text(reply, status) == ""
    reply.pending_s = 8.0
    assert "until slow has processed the 800 tuples before their barrier" in stateful.barrier_text(reply, status)
    assert "heron.checkpoint.unaligned" in stateful.barrier_text(control_pb2.CheckpointsReply(aborted=3), status)
    assert stateful.barrier_text(control_pb2.CheckpointsReply(aborted=3), control_pb2.StatusReply()) == ""


@pytest.mark.parametrize("verb", ["status", "deactivate", "kill"])
def test_no_verb_talks_to_a_socket_that_somebody_else_could_have_put_there(
    heron: Heron, wordy: FakeTopology, verb: str
) -> None:
    found = wordy.state.get(paths.tmaster("wordy"))
    assert found is not None
    folder = Path(plan_pb2.TmasterLocation.FromString(found[0]).endpoint.removeprefix("ipc://")).parent
    folder.chmod(0o755)
    try:
        result = heron(verb, "local", "wordy")
    finally:
        folder.chmod(0o700)
    assert not wordy.asked
    if verb == "kill":  # which needs nobody's help
        assert result.code == 0 and "scheduler of 'wordy' was gone" in result.out
    else:
        assert result.code != 0 and f"{folder} does not belong to you alone" in result.err, result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("verb", ["status", "deactivate"])
def test_no_verb_talks_to_a_socket_of_another_topology(heron: Heron, wordy: FakeTopology, verb: str) -> None:
    other = Server(wordy.answer, "other-1")
    location = plan_pb2.TmasterLocation(topology="wordy", endpoint=other.endpoint)
    wordy.state.set(paths.tmaster("wordy"), location.SerializeToString())
    try:
        result = heron(verb, "local", "wordy")
    finally:
        other.close()
    assert not {"get_status", "set_state"} & {name for name, _ in wordy.asked}
    assert result.code != 0 and f"its topology master listens at {other.endpoint}, but" in result.err, result.err
    assert "Traceback" not in result.err


def test_requests_name_their_topology(heron: Heron, wordy: FakeTopology) -> None:
    assert heron("deactivate", "local", "wordy").code == 0
    assert wordy.topologies == {"wordy-1"}
