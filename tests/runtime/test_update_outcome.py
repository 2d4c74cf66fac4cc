"""`heron update` whose topology master is killed meanwhile still says what became of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.command import EXAMPLES, Heron
from tests.support.inside import inside, master_endpoint
from tests.support.waiting import wait_for

#: Added tasks take until the file `go` is there, and fail where there is a file `fail`.
SLOW = """
        import os, time
        if context.get_task_id() > 4:
            while not os.path.exists({folder!r} + "/go"):
                time.sleep(0.02)
            if os.path.exists({folder!r} + "/fail"):
                raise ValueError("this task never starts")
        self.seen = 0
"""


def connections(path: str) -> int:
    """Connections to a listening socket, also those that nobody has accepted."""
    return sum(line.endswith(f" {path}") for line in Path("/proc/net/unix").read_text().splitlines())


@pytest.mark.heavy
def test_settings_outlive_the_master_that_was_asked(heron: Heron) -> None:
    """It is killed while it is asked."""
    heron.submit(EXAMPLES / "word_count.py", "wc")
    master = heron.pid("wc", "tmaster")
    socket = master_endpoint(heron, "wc").removeprefix("ipc://")
    os.kill(master, signal.SIGSTOP)
    before = connections(socket)
    update = heron.start("update", "local", "wc", "--runtime-config", "my.limit:10")
    try:
        wait_for(lambda: connections(socket) > before, 30.0, "the question")
        os.kill(master, signal.SIGKILL)
        said, err = update.communicate(timeout=90)
    finally:
        update.kill()
        update.wait()
    assert (update.returncode, said.splitlines()[-1]) == (0, "Successfully updated topology 'wc'"), said + err
    assert "ended before it answered" in err and "sending the request again" in err
    config = inside(heron, "wc").plan.topology.topology_config
    assert [entry.value for entry in config.kvs if entry.key == "my.limit"] == ["10"]


@pytest.mark.heavy
@pytest.mark.parametrize("fails", [False, True])
def test_an_update_outlives_its_master(heron: Heron, out: Path, fails: bool) -> None:
    program = out / "slow.py"
    text = (EXAMPLES / "word_count.py").read_text()
    assert text.count("self.seen = 0") == 1
    program.write_text(text.replace("        self.seen = 0\n", SLOW.format(folder=str(out))))
    heron.submit(program, "wc")
    master = heron.pid("wc", "tmaster")
    update = heron.start("update", "local", "wc", "--component-parallelism", "count:3")
    try:
        heron.when("wc", lambda now: "update" in str(now["lifecycle"]).lower() or "UPDATING" in str(now), "an update")
        os.kill(master, signal.SIGKILL)
        # Until the new master runs, the status command fails.
        wait_for(
            lambda: heron("status", "local", "wc", "--json").code == 0 and heron.pid("wc", "tmaster") != master,
            30.0, "a new master",
        )  # fmt: skip
        assert update.poll() is None
        if fails:
            (out / "fail").touch()
        (out / "go").touch()
        said, err = update.communicate(timeout=90)
    finally:
        update.kill()
        update.wait()
    assert "ended before it answered" in err and "checking the outcome" in err
    tasks = len(heron.status("wc")["tasks"])
    if fails:
        assert update.returncode == 1 and "rolled back and the topology runs as before" in err, err
        assert tasks == 4
    else:
        assert update.returncode == 0 and "container_1_count_5" in said and "1 task added" in said, said + err
        assert tasks == 5
