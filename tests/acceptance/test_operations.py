"""Operating a running topology through the command: each verb waits for its effect, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import EXAMPLES, Heron, component
from tests.support.waiting import alive, wait_for

COUNTING = Path(__file__).parent / "programs" / "counting.py"
WORD_COUNT = str(EXAMPLES / "word_count.py")
FAILED, USAGE = 1, 2


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def counting(heron: Heron, out: Path, name: str = "count", **options: object) -> None:
    """Submit the counting topology; `flags` go to heron, the rest to the program."""
    flags = options.pop("flags", ())
    words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", value)]
    heron.submit(*flags, COUNTING, name, "--out", out, *words)  # type: ignore[misc]


def stored(out: Path) -> Counter[int]:
    """How often each number was written."""
    return Counter(int(line) for path in out.iterdir() for line in path.read_text().split())


def settled(status: dict[str, Any]) -> bool:
    """Whether all that was emitted has been stored."""
    return bool(component(status, "store")["executed"] == component(status, "numbers")["emitted"])


def check_exact(heron: Heron, out: Path) -> None:
    """End the input; once finished, every number was stored exactly once."""
    (out.parent / "stop").touch()
    status = heron.when_state("count", "FINISHED")
    numbers = stored(out)
    count = max(numbers) + 1
    lost = [number for number in range(count) if number not in numbers]
    twice = [number for number, times in numbers.items() if times > 1]
    assert not lost and not twice and len(numbers) == count, f"{count}: lost {lost[:20]}, twice {twice[:20]}"
    assert status["discarded_tuples"] == 0
    assert component(status, "store")["executed"] == component(status, "numbers")["emitted"] == count


# ---- submit, activate, deactivate ---------------------------------------------------------------


def test_submit_returns_when_every_task_has_initialised(heron: Heron, out: Path) -> None:
    counting(heron, out, works=3, containers=2)
    status = heron.status("count")
    assert status["lifecycle"] == "RUNNING" and status["cause"] == ""
    assert [task["state"] for task in status["tasks"]] == ["RUNNING"] * 5
    assert len(re.findall(r"work pauses for", heron.log_text("count"))) == 3
    assert {c["container"] for c in status["containers"]} == {0, 1, 2}
    assert all(p["state"] == "RUNNING" and p["pid"] for c in status["containers"] for p in c["processes"])


def test_detach_does_not_wait(heron: Heron, tmp_path: Path) -> None:
    program = tmp_path / "slow.py"
    program.write_text(
        Path(WORD_COUNT).read_text().replace("self.seen = 0", "import time; time.sleep(1.5); self.seen = 0")
    )
    said = heron.submit("--detach", program, "slow").out
    assert "Successfully launched topology 'slow' (its tasks are still starting)" in said
    assert heron.names() == ["slow"]
    status = heron.when_state("slow", "RUNNING")
    assert [row["up"] for row in status["components"]] == [1, 1, 2]


@pytest.mark.heavy
def test_deploy_deactivated_then_activate_then_deactivate(heron: Heron, out: Path) -> None:
    counting(heron, out, flags=("--deploy-deactivated",), spout_pause_ms=0.2, work_pause_ms=0.2)
    status = heron.status("count")
    assert (status["lifecycle"], component(status, "numbers")["emitted"]) == ("PAUSED", 0)
    assert heron("activate", "local", "count").ok().out == "Successfully activated topology 'count'\n"
    heron.when("count", lambda now: component(now, "store")["executed"] > 200, "tuples flowing")
    assert heron("deactivate", "local", "count").ok().out == "Successfully deactivated topology 'count'\n"
    assert heron.status("count")["lifecycle"] == "PAUSED"

    # What was emitted is still processed; then nothing comes any more.
    done = heron.when("count", settled, "everything being stored")
    total = component(done, "numbers")["emitted"]
    numbers = stored(out)
    assert numbers == Counter(range(total))
    # Both are idempotent.
    heron("deactivate", "local", "count").ok()
    assert component(heron.status("count"), "numbers")["emitted"] == total
    heron("activate", "local", "count").ok()
    heron("activate", "local", "count").ok()
    heron.when("count", lambda now: component(now, "store")["executed"] > total + 200, "tuples flowing again")


# ---- restart ------------------------------------------------------------------------------------


def epochs(status: dict[str, Any]) -> dict[str, int]:
    return {task["instance_id"]: task["epoch"] for task in status["tasks"]}


@pytest.mark.heavy
def test_restart_of_a_task_a_container_and_all(heron: Heron, out: Path) -> None:
    counting(heron, out, works=2, containers=2, spout_pause_ms=1)
    before = heron.status("count")
    victim = next(task["instance_id"] for task in before["tasks"] if task["component"] == "work")
    said = heron("restart", "local", "count", victim).ok().out
    assert said == f"Successfully restarted topology 'count' ({victim}: 1 task back)\n"
    after = heron.status("count")
    changed = {name for name, epoch in epochs(after).items() if epoch > epochs(before)[name]}
    assert changed == {victim}
    assert [task["state"] for task in after["tasks"]] == ["RUNNING"] * 4
    assert heron.log_text("count", "executor-0").count("restarting") == 0

    before = after
    heron("restart", "local", "count", "2").ok()
    after = heron.status("count")
    changed = {name for name, epoch in epochs(after).items() if epoch > epochs(before)[name]}
    assert changed == {name for name in epochs(before) if name.startswith("container_2_")}

    before, tmaster = after, heron.pid("count", "tmaster")
    said = heron("restart", "local", "count").ok().out
    assert said == "Successfully restarted topology 'count' (all containers: 4 tasks back)\n"
    after = heron.when("count", lambda now: now["lifecycle"] == "RUNNING", "a topology master")
    assert all(epoch > epochs(before)[name] for name, epoch in epochs(after).items())
    wait_for(lambda: not alive(tmaster), 10.0)

    tmaster = heron.when("count", lambda now: heron.pid("count", "tmaster") != tmaster, "a new master") and heron.pid(
        "count", "tmaster"
    )
    assert heron("restart", "local", "count", "0").ok().out.startswith("Successfully restarted topology 'count'")
    wait_for(lambda: not alive(tmaster), 10.0)
    last = heron.when_state("count", "RUNNING")
    assert epochs(last) == epochs(after)
    emitted = component(last, "store")["executed"]
    heron.when("count", lambda now: component(now, "store")["executed"] > emitted, "tuples flowing")


# ---- update -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "containers"),
    [
        ("ATMOST_ONCE", 1),
        pytest.param("ATLEAST_ONCE", 3, marks=pytest.mark.heavy),
        pytest.param("ATMOST_ONCE", 3, marks=pytest.mark.heavy),
        pytest.param("ATLEAST_ONCE", 1, marks=pytest.mark.heavy),
    ],
)
def test_parallelism_up_and_down_while_running_loses_nothing(
    heron: Heron, out: Path, mode: str, containers: int
) -> None:
    counting(heron, out, works=2, spout_pause_ms=0.2, containers=containers, mode=mode)
    said = heron("update", "local", "count", "--component-parallelism", "work:4").ok().out
    assert "Successfully updated topology 'count': 2 tasks added, 0 removed" in said
    assert len(re.findall(r"^  \+ container_\d_work_\d$", said, re.MULTILINE)) == 2
    assert component(heron.status("count"), "work")["up"] == 4
    said = heron("update", "local", "count", "--component-parallelism", "work:1").ok().out
    assert "Successfully updated topology 'count': 0 tasks added, 3 removed" in said
    assert "discarded" not in said
    status = heron.status("count")
    assert (component(status, "work")["tasks"], status["lifecycle"]) == (1, "RUNNING")
    work = [p for c in status["containers"] for p in c["processes"] if "_work_" in p["name"]]
    assert len(work) == 1
    heron("update", "local", "count", "--component-parallelism", "work:3", "--json").ok()
    check_exact(heron, out)


@pytest.mark.heavy
@pytest.mark.parametrize("mode", [pytest.param("ATMOST_ONCE", marks=pytest.mark.heavy), "ATLEAST_ONCE"])
def test_container_number_up_and_down(heron: Heron, out: Path, mode: str) -> None:
    counting(heron, out, works=3, spout_pause_ms=0.2, containers=1, mode=mode)
    dry = heron("update", "local", "count", "--container-number", "3", "--dry-run").ok().out
    assert "would be changed as follows; nothing was changed" in dry and "  > " in dry
    said = heron("update", "local", "count", "--container-number", "3").ok().out
    moved = re.findall(r"^  > (container_1_\w+) -> container_[23]_\w+$", said, re.MULTILINE)
    assert moved and f"0 tasks added, 0 removed, {len(moved)} moved" in said
    status = heron.status("count")
    assert {c["container"] for c in status["containers"]} == {0, 1, 2, 3}
    assert all(task["state"] == "RUNNING" for task in status["tasks"])
    again = heron("update", "local", "count", "--container-number", "3").ok().out
    assert again == "Topology 'count' is already as requested; nothing changed\n"
    heron("update", "local", "count", "--container-number", "1").ok()
    status = heron.when("count", lambda now: len(now["containers"]) == 2, "two containers being gone")
    assert len({task["instance_id"].split("_")[1] for task in status["tasks"]}) == 1
    heron.when("count", lambda now: all(task["state"] == "RUNNING" for task in now["tasks"]), "moved tasks running")
    if mode == "ATLEAST_ONCE":
        # A spout that moved began anew; whatever was on its way to a task that moved has been repeated,
        # or comes again once the spout is where it had been.
        top = max(stored(out))
        wait_for(lambda: max(stored(out)) > top, 60.0, "the spout being where it had been")
        (out.parent / "stop").touch()
        heron.when_state("count", "FINISHED")
        assert set(stored(out)) == set(range(max(stored(out)) + 1))


@pytest.mark.heavy
def test_runtime_config_reaches_the_tasks(heron: Heron, out: Path) -> None:
    counting(heron, out, works=2, spout_pause_ms=1)
    before = epochs(heron.status("count"))
    said = heron("update", "local", "count", "--runtime-config", "work:work_pause_ms:3").ok().out
    assert said == "set work_pause_ms of component 'work' to 3\nSuccessfully updated topology 'count'\n"
    seen = heron.when_logged("count", r"updated: \[\('work_pause_ms', 3\)\], config has 3", count=2)
    assert len(seen) == 2
    heron("update", "local", "count", "--runtime-config", "my.note:a:b", "--runtime-config", "work_pause_ms:4").ok()
    heron.when_logged("count", r"updated: .*'a:b'.*, config has 3", count=2)
    assert epochs(heron.status("count")) == before, "a task was restarted"
    # A task that starts later has the new values, too.
    heron("restart", "local", "count", "container_1_work_2").ok()
    assert heron.when_logged("count", r"work pauses for (\S+) ms", "*work_2")[-1] == "3"


@pytest.mark.heavy
def test_second_update_of_the_same_plan_is_refused_or_waits(heron: Heron, out: Path) -> None:
    counting(heron, out, works=1, spout_pause_ms=1)
    racers = [heron.start("update", "local", "count", "--component-parallelism", f"work:{n}") for n in (3, 4)]
    results = [(racer.communicate(timeout=90), racer.returncode) for racer in racers]
    winners = [n for n, (_, code) in zip((3, 4), results, strict=True) if code == 0]
    assert winners, results
    for (_, err), code in results:
        assert code == 0 or (code == FAILED and err.startswith("error: ") and err.count("\n") == 1), results
    status = heron.status("count")
    assert component(status, "work")["up"] in winners and status["lifecycle"] == "RUNNING"


# ---- backpressure -------------------------------------------------------------------------------


@pytest.fixture
def clogged(heron: Heron, out: Path) -> Iterator[Heron]:
    """A topology whose only work task takes a second per tuple: full backpressure."""
    counting(heron, out, works=1, work_pause_ms=1000)
    status = heron.when("count", lambda now: now["backpressure"], "backpressure")
    assert status["backpressure"][0]["instance_id"] == "container_1_work_2"
    yield heron


def quickly(heron: Heron, *words: object, within_s: float = 10.0) -> str:
    began = time.monotonic()
    said = heron(*words).ok().out
    took = time.monotonic() - began
    assert took < within_s, f"{words} took {took:.1f} s"
    return said


@pytest.mark.heavy
def test_update_under_full_backpressure(clogged: Heron) -> None:
    said = quickly(clogged, "update", "local", "count", "--component-parallelism", "work:3")
    assert "2 tasks added" in said
    quickly(clogged, "update", "local", "count", "--runtime-config", "work:work_pause_ms:0")
    clogged.when("count", lambda now: component(now, "store")["executed"] > 2000, "tuples flowing")


def test_status_names_the_culprit_and_verbs_work_under_full_backpressure(clogged: Heron) -> None:
    said = clogged("status", "local", "count").ok().out
    assert re.search(r"backpressure: container_1_work_2 is too slow \(.* queued for .*, announced by stmgr-1\)", said)
    top = clogged("top", "local", "count", "-n", "1").ok().out
    assert "causes it" in next(line for line in top.splitlines() if line.startswith(" work "))
    quickly(clogged, "deactivate", "local", "count")
    assert clogged.status("count")["lifecycle"] == "PAUSED"
    quickly(clogged, "activate", "local", "count")
    quickly(clogged, "restart", "local", "count", "container_1_work_2")
    quickly(clogged, "kill", "local", "count")
    clogged.check_clean()


# ---- deaths -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "victim",
    [
        pytest.param("scheduler", marks=pytest.mark.heavy),
        pytest.param("executor-0", marks=pytest.mark.heavy),
        "executor-1",
        pytest.param("tmaster", marks=pytest.mark.heavy),
        pytest.param("stmgr-1", marks=pytest.mark.heavy),
    ],
)
def test_kill_9_is_survived(heron: Heron, out: Path, victim: str) -> None:
    counting(heron, out, works=2, containers=2, spout_pause_ms=1)
    before = heron.status("count")
    pid = heron.scheduler_pid("count") if victim == "scheduler" else heron.pid("count", victim)
    family = {process.pid for process in heron.processes()}
    os.kill(pid, signal.SIGKILL)

    def replaced() -> bool:
        with contextlib.suppress(AssertionError, json.JSONDecodeError):
            now = heron.scheduler_pid("count") if victim == "scheduler" else heron.pid("count", victim)
            return now not in (0, pid)
        return False

    wait_for(replaced, 15.0, f"{victim} being replaced")
    status = heron.when(
        "count",
        lambda now: now["lifecycle"] == "RUNNING" and all(task["state"] == "RUNNING" for task in now["tasks"]),
        "everything running again",
        30.0,
    )
    assert not alive(pid)
    stored_now = component(status, "store")["executed"]
    heron.when("count", lambda now: component(now, "store")["executed"] > stored_now, "tuples flowing again", 30.0)
    if victim in ("stmgr-1", "executor-1"):
        # A master that was replaced itself, or whose executor was, begins to look then.
        told = heron.when_events("count", "restart", 1)
        assert told[-1]["warning"] and "was started again" in told[-1]["text"]
    # Nobody of the old family is left but those that status shows.
    shown = {p["pid"] for c in heron.status("count")["containers"] for p in c["processes"]}
    shown |= {c["pid"] for c in heron.status("count")["containers"]}
    survivors = {task["pid"] for task in before["tasks"]} & family
    orphans = {pid for pid in survivors if alive(pid)} - shown
    assert not orphans
    heron.kill("count")
    heron.check_clean()


# ---- reading ------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_reading_verbs(heron: Heron) -> None:
    heron.submit(WORD_COUNT, "wc")
    heron.when("wc", lambda now: component(now, "count")["executed"] > 1000, "tuples flowing")

    rows = heron("list", "local", "--json").json()
    assert [(row["name"], row["state"], row["tasks"]) for row in rows] == [("wc", "RUNNING", 4)]
    assert set(rows[0]) >= {"cluster", "environ", "id", "role", "submitted_at", "uptime_s"}
    assert re.search(r"wc +RUNNING +\S+ +default +4 ", heron("list", "local").ok().out)
    assert heron("list", "local/nobody").ok().out == "No topology runs in local/nobody\n"

    status = heron("status", "local", "wc").ok().out
    assert "  state      RUNNING\n" in status and "  tasks      4 of 4 up, physical plan 2\n" in status

    logical = heron("plan", "local", "wc", "--json").json()
    assert json.dumps(logical).count("split") >= 2
    packing = heron("plan", "local", "wc", "packing", "--json").json()
    assert json.dumps(packing).count("count") >= 2
    physical = heron("plan", "local", "wc", "physical", "--json").json()
    assert "container_1_count_3" in json.dumps(physical)
    for plan in ("logical", "packing", "physical"):
        assert "count" in heron("plan", "local", "wc", plan).ok().out

    exceptions = heron("exceptions", "local", "wc").ok().out
    assert exceptions == "No exceptions in topology 'wc'\n"
    assert heron("exceptions", "local", "wc", "--json").json()["exceptions"] == []


@pytest.mark.heavy
def test_metrics(heron: Heron) -> None:
    heron.submit(WORD_COUNT, "wc")

    def reported() -> bool:
        return "__execute-count" in heron("metrics", "local", "wc", "count", "--all").ok().out

    wait_for(reported, 20.0, "metrics of the counters")
    shown = heron("metrics", "local", "wc", "count", "--name", "__execute-count").ok().out
    total = int(re.search(r"count +__execute-count +split/default +([\d,]+)", shown)[1].replace(",", ""))  # type: ignore[index]
    assert total > 0
    both = (
        heron("metrics", "local", "wc", "--component", "count", "--name", "__execute-count", "--by-instance").ok().out
    )
    assert "container_1_count_3" in both and "container_1_count_4" in both
    for process in heron("metrics", "local", "wc", "--json").json()["processes"]:
        assert {"process", "component", "task_id", "container", "pid", "metrics"} <= set(process)
    recent = heron("metrics", "local", "wc", "--name", "__execute-count", "--interval", "5s").ok().out
    assert re.search(r"Metrics of 'wc' in the last \d", recent) and re.search(r"split/default +[1-9]", recent)
    assert heron("metrics", "local", "wc", "--name", "no-such-metric").code == 2


@pytest.mark.heavy
def test_top(heron: Heron) -> None:
    heron.submit(WORD_COUNT, "wc")
    text = heron("top", "local", "wc", "-n", "2", "--interval", "0.5").ok().out
    assert text.count("wc  RUNNING  up ") == 2 and "split" in text
    looks = [json.loads(line) for line in heron("top", "local", "wc", "-n", "2", "--json").ok().out.splitlines()]
    assert [look["lifecycle"] for look in looks] == ["RUNNING", "RUNNING"]
    assert {row["name"] for row in looks[0]["components"]} == {"line", "split", "count"}


@pytest.mark.heavy
def test_logs(heron: Heron, out: Path) -> None:
    heron.submit(EXAMPLES / "multi_stream.py", "ms")
    heron.when_logged("ms", "is broken", "*report*", count=2)
    text = heron("logs", "local", "ms").ok().out
    stamps = re.findall(r"^(\d{4}-\S+) ", text, re.MULTILINE)
    assert stamps == sorted(stamps) and len(stamps) > 20
    warnings = heron("logs", "local", "ms", "report", "--level", "WARNING").ok().out.splitlines()
    assert warnings and all(" WARN  container_1_report_4 [" in line for line in warnings)
    assert heron("logs", "local", "ms", "sensors", "-n", "1").ok().out.count("\n") == 1
    recent = heron("logs", "local", "ms", "report", "--since", "250ms").ok().out
    assert 0 < recent.count("\n") < 8
    assert heron("logs", "local", "ms", "tmaster", "--since", "2100-01-01T00:00:00").ok().out == ""
    record = json.loads(heron("logs", "local", "ms", "tmaster", "--json").ok().out.splitlines()[0])
    assert (record["process"], record["level"]) == ("tmaster", "INFO")

    follower = heron.start("logs", "local", "ms", "report", "-f", "-n", "0")
    assert follower.stdout is not None
    try:
        lines = [follower.stdout.readline() for _ in range(5)]
    finally:
        follower.send_signal(signal.SIGINT)
        _, err = follower.communicate(timeout=20)
    assert all("container_1_report_4" in line for line in lines)
    assert (follower.returncode, err) == (0, "")

    # The logs of a killed topology can be read; those of a new one of its name begin with it.
    heron.kill("ms")
    assert "all 4 tasks of ms have started" in heron("logs", "local", "ms", "tmaster").ok().out
    heron.submit(EXAMPLES / "multi_stream.py", "ms")
    assert heron("logs", "local", "ms", "tmaster").ok().out.count("all 4 tasks of ms have started") == 1
    assert (
        heron("logs", "local", "ms", "tmaster", "--since", "1h").ok().out.count("all 4 tasks of ms have started") == 2
    )


def test_one_topology_from_its_settings_to_its_end(heron: Heron, tmp_path: Path) -> None:
    """A setting of submit is shown, bash completes the name, and kill says what it did."""
    key = "heron.stmgr.backpressure_high_bytes"
    heron.submit(WORD_COUNT, "wc", "--config-property", f"{key}=2MB")
    shown = heron("config", "show", "local", "--topology", "wc", "--origin").ok().out
    assert re.search(rf"{re.escape(key)} +2097152 +--config-property", shown)
    check_completion(heron, tmp_path)
    killed = heron("kill", "local", "wc", "--json").json()
    assert (killed["topology"], killed["killed"], killed["by_scheduler"]) == ("wc", True, True)
    assert Path(killed["log_dir"]).is_dir()
    heron("kill", "local", "wc").refused(3, "no topology 'wc'")
    heron.check_clean()


def check_completion(heron: Heron, tmp_path: Path) -> None:
    script = tmp_path / "completion.sh"
    script.write_text(heron("completion", "bash").ok().out)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "heron"
    program.write_text(f'#!/bin/sh\nexec {" ".join(heron.argv)} "$@"\n')
    program.chmod(0o755)
    env = {**heron.env, "PATH": f"{program.parent}:{os.environ['PATH']}"}

    def complete(line: str) -> set[str]:
        words = line.split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        body = (
            f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}';"
            " COMP_POINT=${#COMP_LINE}; _heron_completion heron; printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        done = subprocess.run(["bash", "-c", body], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and not done.stderr, done.stderr
        return set(done.stdout.split())

    assert {"kill", "list"} <= complete("heron ")
    assert complete("heron stat") == {"status"}
    assert complete("heron status lo") == {"local"}
    assert complete("heron status local w") == {"wc"}
    assert "--component-parallelism" in complete("heron update local wc --comp")
