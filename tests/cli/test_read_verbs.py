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

from heronpy.cli.look import stateful
from heronpy.common.errors import InvalidRpcError
from heronpy.health.diagnose import diagnose
from heronpy.health.signals import Signals, TaskSignals
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths
from heronpy.views.findings import Finding, Verdict
from heronpy.views.past import start_of
from tests.cli.conftest import FakeTopology, Heron, Server
from tests.support.histories import replay
from tests.support.views import event, events, load_answer


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
        "1 of 2 tasks of count is down, restart 9, next in 26 s, failing for 59 s, restarts stop after 10 min:"
        " OSError: away"
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
        "2 containers are not limited to the requested CPU and memory, because no control group can be"
        " created ([Errno 13] Permission denied: '/x/1'); allow the scheduler's user to create control groups, or set"
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
    assert refused.code == 1 and "the topology master of 'wordy' has no record of the phases" in refused.err
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
    assert calm.code == 0 and calm.out.startswith("NO INPUT   no input: word emitted nothing in the last 1m00s")
    oom = event(
        at=time.time(), times=3, kind="oom", subject="container_1_count_2", detail="limit 64MB\x1b[2J", text="x",
        warning=True,
    )  # fmt: skip
    wordy.answers["get_events"] = events(oom)
    ill = heron("doctor", "local", "wordy")
    assert ill.code == 1 and ill.out.startswith("MEMORY     container_1_count_2 ran out of memory 3 times")
    assert (
        "limit 64MB\\x1b[2J" in ill.out
        and "\nnext       heron heap local wordy container_1_count_2 shows its objects" in ill.out
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
    assert found.code == 1 and f"in {file}; review it before you share it" in found.out
    text = file.read_text()
    assert secret not in text and "***" in text and stat.S_IMODE(file.stat().st_mode) == 0o600
    parts = [json.loads(line) for line in text.splitlines()]
    keys = {key for part in parts for key in part}
    assert {"format", "signals", "findings", "events", "exceptions", "status", "settings", "log"} <= keys
    log = next(part for part in parts if part.get("log") == "container_1_count_2")
    assert len(log["lines"]) == 50 and log["lines"][-1] == "line 1999 token: ***"
    ((_, signals),) = replay(text.splitlines())
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
    assert f"in {file.name}; review it before you share it" in found.out
    assert list(replay(file.read_text().splitlines()))


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


def test_a_late_checkpoint_says_what_its_barrier_waits_for() -> None:
    status, reply = control_pb2.StatusReply(), control_pb2.CheckpointsReply(pending=4, pending_s=0.5)
    status.tasks.add(component="slow", in_queue_tuples=300)
    status.tasks.add(component="slow", in_queue_tuples=500)
    status.tasks.add(component="fast", in_queue_tuples=7)
    assert stateful.barrier_text(reply, status) == ""
    reply.pending_s = 8.0
    assert "until slow has processed the 800 tuples before their barrier" in stateful.barrier_text(reply, status)
    assert "until slow has" in stateful.barrier_text(control_pb2.CheckpointsReply(aborted=3), status)
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
        assert result.code == 0 and "Topology 'wordy' had no scheduler" in result.out
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
    assert result.code != 0 and f"its topology master listens at {other.endpoint}, outside" in result.err, result.err
    assert "Traceback" not in result.err


def test_requests_name_their_topology(heron: Heron, wordy: FakeTopology) -> None:
    assert heron("deactivate", "local", "wordy").code == 0
    assert wordy.topologies == {"wordy-1"}
