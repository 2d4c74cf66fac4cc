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


@pytest.mark.heavy
@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_container_number_up_and_down(heron: Heron, out: Path, mode: str) -> None:
    counting(heron, out, works=3, spout_pause_ms=0.2, containers=1, guarantee=mode)
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
        # A spout that moved has started again. Tuples on their way to a task that moved were repeated,
        # or come again when the spout is where it was before.
        check_all_stored(heron, out)


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
    culprit = r"backpressure: container_1_work_2 is too slow \(full for .*, .* queued in stmgr-1\)"
    # At first the status says only that the task is full.
    wait_for(lambda: re.search(culprit, clogged("status", "local", "count").ok().out), 30.0, "the culprit being named")
    top = clogged("top", "local", "count", "-n", "1").ok().out
    assert "causes it" in next(line for line in top.splitlines() if line.startswith(" work "))
    quickly(clogged, "deactivate", "local", "count")
    assert clogged.status("count")["lifecycle"] == "PAUSED"
    quickly(clogged, "activate", "local", "count")
    quickly(clogged, "restart", "local", "count", "container_1_work_2")
    quickly(clogged, "kill", "local", "count")
    clogged.check_clean()


# ---- deaths -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
def test_kill_9_of_each_kind_of_process_is_survived(heron: Heron, out: Path, mode: str) -> None:
    """Each is replaced, tuples flow again, and no orphan is left; `tests/fault` judges every tuple of such runs."""
    counting(heron, out, works=2, containers=2, spout_pause_ms=1, guarantee=mode)
    before = heron.status("count")["tasks"]
    tasks, work = {task["pid"] for task in before}, next(t["instance_id"] for t in before if t["component"] == "work")
    kill_and_wait(heron, work)
    [told] = heron.when_events("count", "restart", 1)
    assert f"{work} was restarted" in told["text"]
    for victim in ("stmgr-1", "tmaster", "executor-1", "scheduler"):
        kill_and_wait(heron, victim)
    # No old task process is left except those that the status shows.
    containers = heron.status("count")["containers"]
    shown = {p["pid"] for c in containers for p in c["processes"]} | {c["pid"] for c in containers}
    assert not {pid for pid in tasks if alive(pid)} - shown
    if mode == "ATLEAST_ONCE":
        # The spout has started again with its container, and comes to where it was before.
        check_all_stored(heron, out)
    heron.kill("count")
    heron.check_clean()


def check_all_stored(heron: Heron, out: Path) -> None:
    """Let the counting topology end when its spout is where it was before: no number may be missing."""
    top = max(stored(out))
    wait_for(lambda: max(stored(out)) > top, 60.0, "the spout being where it was before")
    (out.parent / "stop").touch()
    heron.when_state("count", "FINISHED")
    assert set(stored(out)) == set(range(max(stored(out)) + 1))


def kill_and_wait(heron: Heron, victim: str) -> None:
    """Kill a process of the counting topology, and wait until it is replaced and tuples flow again."""

    def pid_of() -> int:
        return heron.scheduler_pid("count") if victim == "scheduler" else heron.pid("count", victim)

    pid = pid_of()
    os.kill(pid, signal.SIGKILL)

    def replaced() -> bool:
        with contextlib.suppress(AssertionError, json.JSONDecodeError):
            return pid_of() not in (0, pid)
        return False

    wait_for(replaced, 30.0, f"{victim} being replaced")
    status = heron.when(
        "count",
        lambda now: now["lifecycle"] == "RUNNING" and all(task["state"] == "RUNNING" for task in now["tasks"]),
        f"everything running again after {victim}",
    )
    assert not alive(pid)
    before = component(status, "store")["executed"]
    heron.when("count", lambda now: component(now, "store")["executed"] > before, f"tuples flowing after {victim}")


# ---- reading ------------------------------------------------------------------------------------


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


@pytest.mark.heavy
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
