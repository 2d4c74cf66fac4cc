"""Verbs that look at a running topology, against a fake topology master."""

from __future__ import annotations

import json
import time

import pytest

from heronpy.proto import control_pb2 as control
from tests.cli.conftest import FakeTopology, Heron


def test_list_shows_the_lifecycle(heron: Heron, wordy: FakeTopology) -> None:
    result = heron("list", "local")
    assert result.code == 0
    assert "wordy" in result.out and "RUNNING" in result.out
    rows = json.loads(heron("list", "local/me", "--json").out)
    assert [(row["name"], row["state"], row["tasks"]) for row in rows] == [("wordy", "RUNNING", 3)]
    assert json.loads(heron("list", "local/somebody", "--json").out) == []


def test_unknown_topology_is_exit_3_with_the_nearest_name(heron: Heron, wordy: FakeTopology) -> None:
    for verb in ("status", "kill", "activate", "plan", "metrics", "exceptions", "top", "logs", "restart"):
        result = heron(verb, "local", "wordi")
        assert (result.code, "did you mean 'wordy'?" in result.err) == (3, True), verb
        assert len(result.err.splitlines()) == 1
    result = heron("status", "local/other", "wordy")
    assert result.code == 3 and "local/me/default" in result.err


def test_status_names_who_is_down_and_who_holds_back(heron: Heron, wordy: FakeTopology) -> None:
    wordy.status.tasks[2].state = control.TASK_LOST
    wordy.status.tasks[2].error = "silent for 12 s\x1b[2J"
    wordy.status.culprits.add(
        task_id=2, component="count", instance_id="container_1_count_2", stmgr_id="stmgr-1", queued_bytes=2 << 20
    )
    executor = wordy.status.executors.add(container=1, pid=7, host="here")
    executor.processes.add(name="stmgr-1", pid=8, state=control.PROC_RUNNING, restarts=2, exit_reason="killed")
    result = heron("status", "local", "wordy")
    assert result.code == 0
    for text in ("2 of 3 up", "container_1_count_3", "LOST", "container_1_count_2 is too slow", "2MB", "killed"):
        assert text in result.out
    assert "\x1b" not in result.out and "\\x1b[2J" in result.out
    shown = json.loads(heron("status", "local", "wordy", "--json").out)
    assert shown["backpressure"][0]["component"] == "count"
    assert shown["tasks"][2]["state"] == "LOST"
    assert shown["containers"][0]["processes"][0]["restarts"] == 2


def test_status_of_a_failed_topology_is_exit_1(heron: Heron, wordy: FakeTopology) -> None:
    wordy.status.lifecycle = control.LIFE_FAILED
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


def test_metrics_are_summed_by_component(heron: Heron, wordy: FakeTopology) -> None:
    reply = control.MetricsReply()
    for task in (2, 3):
        report = reply.reports.add(process=f"container_1_count_{task}", component="count", task_id=task)
        report.samples.add(name="__execute-count", label="word/default", value=5 * task)
        report.samples.add(
            name="__execute-latency",
            label="word/default",
            type=control.Sample.HISTOGRAM,
            sum=4e6,
            count=2,
            buckets=[control.Bucket(le=1e6, count=1), control.Bucket(le=float("inf"), count=2)],
        )
    wordy.answers["get_metrics"] = reply
    result = heron("metrics", "local", "wordy", "--component", "count", "--interval", "5m")
    assert result.code == 0
    assert "25" in result.out and "2ms (mean of 4)" in result.out
    request = wordy.asked[-1][1]
    assert isinstance(request, control.GetMetrics)
    assert (request.component, request.interval_s) == ("count", 300.0)
    by_instance = heron("metrics", "local", "wordy", "--by-instance").out
    assert "container_1_count_2" in by_instance and "container_1_count_3" in by_instance
    shown = json.loads(heron("metrics", "local", "wordy", "--json").out)
    assert shown["processes"][0]["metrics"][1]["buckets"][1] == {"le": "+Inf", "count": 2}
    wrong = heron("metrics", "local", "wordy", "--component", "coun")
    assert wrong.code == 2 and "did you mean 'count'?" in wrong.err


def test_exceptions_show_whole_tracebacks(heron: Heron, wordy: FakeTopology) -> None:
    text = "Traceback (most recent call last):\n  File 'x'\nValueError: no\x1b]0;title\x07"
    reply = control.ExceptionsReply(discarded=3)
    reply.exceptions.add(instance_id="container_1_count_2", type="ValueError", traceback=text, count=4, message="no")
    wordy.answers["get_exceptions"] = reply
    result = heron("exceptions", "local", "wordy")
    assert "Traceback (most recent call last):\n  File 'x'\nValueError: no\\x1b]0;title\\x07" in result.out
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
    assert "tmaster" not in heron("logs", "local", "wordy", "count").out
    assert len(heron("logs", "local", "wordy", "-n", "1", "--json").out.splitlines()) == 1
    wrong = heron("logs", "local", "wordy", "tmastr")
    assert wrong.code == 2 and "did you mean 'tmaster'?" in wrong.err
    assert heron("logs", "local", "wordy", "--since", "yesterday").code == 2


def test_logs_can_be_read_after_the_topology_was_killed(heron: Heron, wordy: FakeTopology) -> None:
    from heronpy.statemgr import paths

    (wordy.launch.log_dir / "tmaster.log").write_text("crash dump\n", encoding="utf-8")
    wordy.state.delete(paths.execution_state("wordy"))
    assert "crash dump" in heron("logs", "local", "wordy").out


def test_a_dead_topology_says_so(heron: Heron, wordy: FakeTopology) -> None:
    from heronpy.statemgr import paths

    wordy.state.delete(paths.tmaster("wordy"))
    wordy.answers["get_containers"] = control.ContainersReply()
    result = heron("status", "local", "wordy")
    assert result.code == 1 and "topology master of 'wordy' is not running" in result.err
    given_up = control.ProcessRecord(name="executor-0", state=control.PROC_FAILED, exit_detail="its plan is damaged")
    wordy.answers["get_containers"] = control.ContainersReply(containers=[given_up])
    assert "its plan is damaged" in heron("status", "local", "wordy").err
    wordy.state.delete(paths.scheduler("wordy"))
    assert "heron kill local wordy" in heron("status", "local", "wordy").err
    assert "DEAD" in heron("list", "local").out


def test_a_narrow_table_fits_80_columns() -> None:
    from rich.console import Console

    from heronpy.cli.summary import ComponentRow
    from heronpy.cli.top import component_table, short

    counts = (0, 950, 999.6, 12_345, 99_960, 1_862_719, 10**14)
    assert [short(count) for count in counts] == ["0", "950", "1.00k", "12.3k", "100k", "1.86M", "100T"]
    row = ComponentRow("a_component", False, 10, 10, *[12_345_678] * 4, 2e6, 2e6, 99_999, 1, 99_999, 5, 0.0, True)
    screen = Console(width=80, file=open("/dev/null", "w"))
    lines = screen.render_lines(component_table([row], narrow=True))
    assert len([line for line in lines if "".join(part.text for part in line).strip()]) == 3
