"""`heron submit` and `heron kill` with real child processes and a stand-in for the runtime."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from heronpy.cli import exits
from heronpy.cli.submit import command, watching
from heronpy.clusters import takedown
from heronpy.clusters.ended import kept_files, read_kept
from heronpy.launching import submission
from heronpy.plan.launch import LAUNCH_VARIABLE, LaunchSpec, Submitted, load_submitted, sockets_dir
from heronpy.scheduler.teardown import last_life
from heronpy.statemgr import open_state, paths
from tests.cli.conftest import Heron

TOPOLOGY = """
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.topology import TopologyBuilder

class Words(Spout):
    outputs = ["word"]

class Count(Bolt):
    pass

def build(name):
    builder = TopologyBuilder(name)
    word = builder.add_spout("word", Words, par=1)
    builder.add_bolt("count", Count, par=2, inputs=[word])
    builder.build_and_submit()
"""
MAIN = TOPOLOGY + 'if __name__ == "__main__":\n    build("wordy")\n'


@pytest.fixture
def topo(tmp_path: Path) -> Path:
    path = tmp_path / "topo.py"
    path.write_text(MAIN, encoding="utf-8")
    return path


def nothing_left(home: Path, started: list[subprocess.Popen[bytes]]) -> None:
    state = open_state("local", str(home / "state" / "local"))
    for name in ("executionstate", "topologies", "packingplans", "schedulers", "tmasters"):
        assert state.children(name) == []
    state.close()
    for process in started:
        process.wait(5)
    for launch in home.glob("topologies/*/*/*/launch.json"):
        assert not sockets_dir(load_submitted(launch).topology_id).exists()


def test_submit_refuse_kill(heron: Heron, home: Path, topo: Path, runtime: Any) -> None:
    started = runtime("running")
    result = heron("submit", "local", str(topo))
    assert (result.code, result.err) == (0, "")
    assert "Launching topology: 'wordy'" in result.out and "Successfully launched topology 'wordy'" in result.out
    launch = LaunchSpec.load(next(home.glob("topologies/local/*/wordy/launch.json")))
    assert launch.main_file is not None and Path(launch.main_file).read_text(encoding="utf-8") == MAIN
    assert Path(launch.main_file).parent == Path(launch.package_dir or "")
    with zipfile.ZipFile(launch.package_archive or "") as archive:  # tasks may open it
        assert archive.read("topo.py").decode() == MAIN
    assert Path(launch.package_archive or "").parent == Path(launch.package_dir or "")
    assert json.loads(heron("list", "local", "--json").out)[0]["state"] == "RUNNING"

    again = heron("submit", "local", str(topo))
    assert again.code == 4
    assert again.err == (
        "error: topology 'wordy' is already running in cluster local; kill it first or choose another name\n"
    )
    assert started[0].poll() is None

    killed = heron("kill", "local", "wordy")
    assert killed.code == 0 and "Successfully killed topology 'wordy'" in killed.out
    nothing_left(home, started)
    assert (launch.log_dir / "scheduler.log").exists()
    assert heron("kill", "local", "wordy").code == 3


@pytest.mark.parametrize(("mode", "is_hinted"), [("bacth", False), ("fast", True)])
def test_an_unknown_mode_may_be_that_of_the_program(heron: Heron, topo: Path, mode: str, is_hinted: bool) -> None:
    told = heron("submit", "local", str(topo), "--mode", mode)
    assert told.code == 2 and f"'{mode}' is not one of 'stream', 'batch', 'auto'" in told.err
    assert ("write -- before the options of the program" in told.err) is is_hinted


def test_what_has_finished_is_not_said_to_run(heron: Heron, topo: Path, runtime: Any) -> None:
    """As with --restore latest: it goes on from the last checkpoint once the finished run is removed."""
    runtime("finishing")
    assert heron("submit", "local", str(topo)).code == 0
    again = heron("submit", "local", str(topo))
    assert again.code == 4 and again.err == (
        "error: topology 'wordy' in cluster local has finished but has not been removed; submit again after"
        " heron kill local wordy, which keeps its checkpoints\n"
    )
    assert heron("kill", "local", "wordy").code == 0


def test_deploy_deactivated_waits_for_paused(heron: Heron, topo: Path, runtime: Any) -> None:
    runtime("running")
    assert heron("submit", "local", str(topo), "--deploy-deactivated").code == 0
    assert json.loads(heron("list", "local", "--json").out)[0]["state"] == "PAUSED"
    assert heron("kill", "local", "wordy").code == 0


def test_a_task_that_cannot_start_fails_the_submit(heron: Heron, home: Path, topo: Path, runtime: Any) -> None:
    started = runtime("failing")
    result = heron("submit", "local", str(topo))
    assert result.code == 1
    assert "  Traceback (most recent call last):\n    File ...\n  ZeroDivisionError: division by zero" in result.err
    assert "container_1_word_1 failed: ZeroDivisionError" in result.err.splitlines()[-1]
    [kept] = kept_files(home, "local")
    told = last_life(read_kept(kept))  # type: ignore[arg-type]
    assert (told.reason, told.text) == ("failed", "wordy is FAILED: container_1_word_1 failed: ZeroDivisionError")
    nothing_left(home, started)


def test_a_topology_that_is_late_is_removed_and_what_lacks_is_named(
    heron: Heron, home: Path, topo: Path, runtime: Any
) -> None:
    started = runtime("stuck")
    result = heron("submit", "local", str(topo), "--timeout", "4")
    assert result.code == 5
    assert "3 of 3 tasks not ready: container_1_word_1" in result.err
    nothing_left(home, started)


def test_a_scheduler_that_dies_shows_its_log(heron: Heron, home: Path, topo: Path, runtime: Any) -> None:
    started = runtime("dying")
    result = heron("submit", "local", str(topo))
    assert result.code == 1
    assert "the fake scheduler is dying on purpose" in result.err and "ended with code 9" in result.err
    nothing_left(home, started)


def test_wait_ends_with_the_topology(heron: Heron, home: Path, topo: Path, runtime: Any) -> None:
    started = runtime("finishing")
    result = heron("submit", "local", str(topo), "--wait")
    assert (result.code, result.err) == (0, "")
    assert "FINISHED | word" in result.out and "'wordy' has finished and is removed" in result.out
    nothing_left(home, started)


def test_wait_says_how_many_tuples_are_missing_and_fails(heron: Heron, home: Path, topo: Path, runtime: Any) -> None:
    started = runtime("losing")
    result = heron("submit", "local", str(topo), "--wait")
    assert result.code == exits.LOSSES
    ends = result.out.splitlines()[-2:]
    told = "tuples: acked 100, failed 3, replayed up to 3 (may be counted twice), dead letters 2, lost 10"
    assert ends[0].strip() == told
    assert ends[1] == "Topology 'wordy' FINISHED WITH LOSSES: 12; it is removed"
    assert "abandoned tuples (" in result.err and "heron dead-letters local wordy" in result.err
    nothing_left(home, started)


TOLD = "  tuples: acked 100, failed 3, replayed up to 3 (may be counted twice), dead letters 2, lost 10"


def test_wait_says_what_became_of_the_tuples_of_a_topology_that_failed(
    heron: Heron, home: Path, topo: Path, runtime: Any
) -> None:
    started = runtime("collapsing")
    result = heron("submit", "local", str(topo), "--wait")
    assert (result.code, result.err.splitlines()[0]) == (1, "error: topology 'wordy' failed: task 3 failed")
    assert result.out.splitlines()[-1] == TOLD
    nothing_left(home, started)


@pytest.mark.parametrize("flags", [(), ("--kill-on-interrupt",)])
def test_wait_says_what_became_of_the_tuples_when_it_is_interrupted(
    heron: Heron, home: Path, topo: Path, runtime: Any, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    started = runtime("losing")

    def interrupted(text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watching, "say", interrupted)
    result = heron("submit", "local", str(topo), "--wait", *flags)
    assert result.code == exits.INTERRUPTED
    assert result.out.splitlines()[-1] == TOLD
    if flags:
        assert "topology 'wordy' was removed" in result.err
    else:
        assert "topology 'wordy' keeps running" in result.err
        assert heron("kill", "local", "wordy").code == 0
    nothing_left(home, started)


def test_wait_warns_of_a_spout_that_began_again(heron: Heron, home: Path, topo: Path, runtime: Any) -> None:
    """What may be counted twice is no loss: the exit code stays 0."""
    started = runtime("doubling")
    result = heron("submit", "local", str(topo), "--wait")
    assert result.code == 0 and "and is removed" in result.out.splitlines()[-1]
    assert "replayed 0, but task 1 of word began again (may be counted twice)" in result.out.splitlines()[-2]
    assert result.err.startswith("warning: task 1 of word began again, so an unknown number of tuples may be counted")
    nothing_left(home, started)


def test_wait_does_not_take_another_topology_of_its_name_for_its_own(
    heron: Heron, home: Path, topo: Path, runtime: Any
) -> None:
    started = runtime("replaced")
    result = heron("submit", "local", str(topo), "--wait")
    assert result.code == exits.NOT_FOUND
    assert result.err.strip() == (
        "error: topology 'wordy' was removed, and another topology of that name was submitted; how the first topology"
        " ended is unknown"
    )
    assert heron("kill", "local", "wordy").code == 0
    nothing_left(home, started)


def test_a_name_that_is_being_submitted_is_marked(
    heron: Heron, home: Path, topo: Path, runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime("running")
    shown: list[str] = []
    spawn = submission.spawn_scheduler

    def spawn_and_look(*arguments: Any) -> Any:
        shown.append(heron("list", "local").out)
        return spawn(*arguments)

    monkeypatch.setattr(submission, "spawn_scheduler", spawn_and_look)
    assert heron("submit", "local", str(topo)).code == 0
    assert "STARTING: its scheduler has not started yet" in shown[0]
    assert heron("kill", "local", "wordy").code == 0


@pytest.mark.parametrize("kind", ["pipe", "full"])
def test_a_launched_topology_stays_when_nobody_can_read_that(
    heron: Heron, home: Path, topo: Path, runtime: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    started = runtime("running")
    error = BrokenPipeError(errno.EPIPE, "Broken pipe") if kind == "pipe" else OSError(errno.ENOSPC, "No space left")
    say = command.say

    def fails(text: str = "") -> None:
        if text.startswith("Successfully"):
            raise error
        say(text)

    monkeypatch.setattr(command, "say", fails)
    result = heron("submit", "local", str(topo))
    assert result.err == ("" if kind == "pipe" else "error: No space left\n")
    assert (result.code != 0) or kind == "pipe"
    assert started[0].poll() is None
    assert json.loads(heron("list", "local", "--json").out)[0]["state"] == "RUNNING"
    assert heron("kill", "local", "wordy").code == 0


def test_a_name_that_is_too_long_is_refused_in_one_sentence(heron: Heron, home: Path, topo: Path) -> None:
    topo.write_text(MAIN.replace('"wordy"', '"n" * 300'))
    result = heron("submit", "local", str(topo))
    assert result.code == exits.USAGE
    assert result.err == f"error: topology name '{'n' * 300}' is longer than 200 bytes; choose another name\n"


def test_interrupt_removes_everything(heron: Heron, home: Path, topo: Path, runtime: Any) -> None:
    started = runtime("stuck")

    def interrupt() -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not list(home.glob("state/local/**/*wordy*")):
            time.sleep(0.01)
        while time.monotonic() < deadline and not started:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = heron("submit", "local", str(topo))
    thread.join()
    assert result.code == 130 and "interrupted" in result.err
    nothing_left(home, started)


def test_what_was_submitted_names_nothing_of_this_host(
    heron: Heron, home: Path, topo: Path, runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the state manager can be read on a host with other folders and another interpreter."""
    runtime("running")
    assert heron("submit", "local", str(topo)).code == 0
    launch_file = next(home.glob("topologies/local/*/wordy/launch.json"))
    state = open_state("local", str(home / "state" / "local"))
    found = state.get(paths.launch("wordy"))
    state.close()
    assert found is not None and found[0] == launch_file.read_bytes()
    content = json.loads(found[0])
    for_people = {name: content.pop(name) for name in ("source", "argv", "origins")}
    assert for_people["source"] == str(topo.parent)
    text = json.dumps(content)
    for own in (str(home), str(topo.parent), sys.prefix, sys.executable, tempfile.gettempdir(), str(Path.home())):
        assert own not in text, own
    here = LaunchSpec.load(launch_file)
    assert (here.package_dir or "").startswith(str(home)) and here.python == sys.executable
    assert heron("kill", "local", "wordy").code == 0


def test_a_submit_divides_the_logs_of_earlier_topologies(heron: Heron, home: Path, topo: Path, runtime: Any) -> None:
    runtime("running")
    for _ in range(2):
        assert heron("submit", "local", str(topo)).code == 0
        [folder] = home.glob("topologies/local/*/wordy/log-files")
        with open(folder / "container_1_count_2.log", "a", encoding="utf-8") as log:
            log.write("raw | counted\n")
        assert heron("kill", "local", "wordy").code == 0
    first, divider, second = (folder / "container_1_count_2.log").read_text(encoding="utf-8").splitlines()
    assert first == second == "raw | counted"
    assert "---- topology 'wordy' was submitted again (" in divider


def test_kill_removes_what_a_dead_scheduler_left(heron: Heron, home: Path, topo: Path, runtime: Any) -> None:
    started = runtime("running")
    assert heron("submit", "local", str(topo)).code == 0
    launch = next(home.glob("topologies/local/*/wordy/launch.json"))
    started[0].kill()
    started[0].wait(5)
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    left = subprocess.Popen(sleep, env={**os.environ, LAUNCH_VARIABLE: str(launch)}, start_new_session=True)
    editor = subprocess.Popen([*sleep, "--launch", str(launch)])  # only names the file
    try:
        found = takedown.leftovers(str(launch))
        assert [process.pid for process in found] == [left.pid]
        result = heron("kill", "local", "wordy")
        assert result.code == 0 and "Topology 'wordy' had no scheduler" in result.out
        assert left.wait(5) is not None  # psutil reaped it, so its code is not known here
        assert editor.poll() is None
    finally:
        for process in (left, editor):
            if process.poll() is None:
                process.kill()
                process.wait(5)
    nothing_left(home, started)


def test_a_dead_topology_of_that_name_must_be_killed_first(heron: Heron, home: Path, topo: Path, runtime: Any) -> None:
    started = runtime("running")
    assert heron("submit", "local", str(topo)).code == 0
    started[0].kill()
    started[0].wait(5)
    result = heron("submit", "local", str(topo))
    assert result.code == 4 and "heron kill local wordy" in result.err
    assert heron("kill", "local", "wordy").code == 0


def test_a_failure_half_way_undoes_the_nodes(
    heron: Heron, home: Path, topo: Path, runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = runtime("running")

    def refuse(submitted: Submitted, path: str) -> None:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(submission, "save_submitted", refuse)
    result = heron("submit", "local", str(topo))
    assert result.code == 1 and "No space left on device" in result.err
    nothing_left(home, started)


def test_two_submits_at_once_start_one_topology(heron: Heron, home: Path, topo: Path, runtime: Any) -> None:
    from heronpy.cli.main import main

    runtime("running")
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(main(["submit", "local", str(topo)]))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(codes) == [0, 4]
    assert heron("kill", "local", "wordy").code == 0


def test_sockets_folder_of_another_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "heron-0"
    base.mkdir(mode=0o777)
    base.chmod(0o777)
    with pytest.raises(Exception, match="does not belong to you alone"):
        submission.make_private(base / "abc")


def test_leftovers_never_include_this_process(home: Path) -> None:
    own = psutil.Process().cmdline()[0]
    assert os.getpid() not in [process.pid for process in takedown.leftovers(own)]
    assert takedown.leftovers("") == []


def test_a_refused_setting_is_named(heron: Heron, home: Path, topo: Path) -> None:
    result = heron("submit", "local", str(topo), "--config-property", "heron.instance.tuple_max_byts=3")
    assert result.code == 2 and "tuple_max_bytes" in result.err
    assert not (home / "state").exists() or not list((home / "state").rglob("*wordy*"))


def test_dry_run_touches_nothing(heron: Heron, home: Path, topo: Path) -> None:
    for form in ("table", "colored_table", "raw", "json"):
        result = heron("submit", "local", str(topo), "Other", "--dry-run", "--dry-run-format", form)
        assert result.code == 0 and "Other" in result.out, form
    assert json.loads(result.out)["packing_plan"]["container_plans"][0]["id"] == 1
    assert not home.exists()


def test_detach_and_wait_exclude_each_other(heron: Heron, topo: Path) -> None:
    assert heron("submit", "local", str(topo), "--detach", "--wait").code == 2


def test_paths_of_nodes_are_those_of_the_state_manager() -> None:
    assert paths.execution_state("x") == "executionstate/x"


def test_an_interrupt_before_the_scheduler_runs_says_what_became_of_it(
    heron: Heron, home: Path, topo: Path, runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = runtime("stuck")
    monkeypatch.setattr(submission, "wait_scheduler", lambda *_: signal.raise_signal(signal.SIGINT))
    result = heron("submit", "local", str(topo))
    assert result.code == 130
    said = [line for line in result.err.splitlines() if line]
    assert said == ["interrupted: topology 'wordy' had not started; it is removed", "error: interrupted"]
    nothing_left(home, started)


def test_an_interrupt_that_leaves_something_does_not_say_removed(
    heron: Heron, home: Path, topo: Path, runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime("stuck")
    monkeypatch.setattr(command, "until_running", lambda *_: signal.raise_signal(signal.SIGINT))
    original = submission.take_down
    monkeypatch.setattr(submission, "take_down", lambda *given: [*original(*given), "process 7"])
    result = heron("submit", "local", str(topo))
    assert result.code == 130 and "not removed: process 7; run: heron kill local wordy" in result.err
    assert "is removed" not in result.err and "was removed" not in result.err
