"""Commands that cannot be obeyed, and hosts that do not play along: one sentence, and nothing left behind."""

from __future__ import annotations

import contextlib
import signal
import socket
from pathlib import Path

import psutil
import pytest

from tests.support.command import EXISTS, FAILED, NOT_FOUND, USAGE, WORD_COUNT, Heron
from tests.support.waiting import wait_for

# ---- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signum", "after"),
    [
        pytest.param(signal.SIGINT, "container_1_count_4", marks=pytest.mark.heavy),
        (signal.SIGTERM, "Launching topology"),
    ],
)
def test_interrupted_submit_leaves_nothing(heron: Heron, tmp_path: Path, signum: int, after: str) -> None:
    program = tmp_path / "slow.py"
    program.write_text(Path(WORD_COUNT).read_text().replace("self.seen = 0", "import time; time.sleep(60)"))
    submit = heron.start("submit", "local", program, "slow")

    try:
        if after == "Launching topology":
            assert submit.stdout is not None and after in submit.stdout.readline()
        else:
            wait_for(lambda: list(heron.home.glob(f"topologies/local/*/slow/log-files/{after}.log")), 30.0)
        # Users press Ctrl-C more than once.
        for _ in range(3):
            submit.send_signal(signum)
        _, err = submit.communicate(timeout=60)
    finally:
        submit.kill()
        submit.wait()
    ends = ("error: interrupted", "topology 'slow' was removed; its logs: heron logs local slow")
    assert submit.returncode == 130 and err.rstrip().endswith(ends), err
    assert after == "Launching topology" or "interrupted: topology 'slow' had not started; removing it" in err
    assert heron.names() == []
    heron.check_clean()


@pytest.mark.heavy
def test_two_submits_of_one_name_at_the_same_time(heron: Heron) -> None:
    racers = [heron.start("submit", "local", WORD_COUNT, "twin") for _ in range(3)]
    results = [(racer.communicate(timeout=90), racer.returncode) for racer in racers]
    codes = sorted(code for _, code in results)
    assert codes == [0, EXISTS, EXISTS], results
    for (_, err), code in results:
        assert code == 0 or err.startswith("error: topology 'twin' is already running")
    assert heron.names() == ["twin"]
    assert heron.status("twin")["lifecycle"] == "RUNNING"
    heron.kill("twin")
    heron.check_clean()


def test_words_that_heron_does_not_know(heron: Heron) -> None:
    heron("submitt", "local", WORD_COUNT).refused(USAGE, "no verb 'submitt'", "did you mean 'submit'?")
    heron("status", "local", "nope").refused(NOT_FOUND, "no topology 'nope'", "heron list local")
    heron("kill", "local", "nope").refused(NOT_FOUND, "no topology 'nope'")
    heron("status", "mars", "nope").refused(USAGE, "'mars'", "local")
    heron("submit", "mars", WORD_COUNT).refused(USAGE, "'mars'", "local")
    heron("logs", "local", "nope").refused(NOT_FOUND, "nope")
    heron("status", "local").refused(NOT_FOUND, "no topology runs in local")
    heron("lcoal").refused(USAGE, "no verb 'lcoal'", "heron status local")
    heron("kill", "nope").refused(USAGE, "name the cluster first, as in 'heron kill local nope'")
    heron("submit", "wc.py").refused(USAGE, "name the cluster first, as in 'heron submit local wc.py'")
    heron("logs", "lcal").refused(NOT_FOUND, "no logs of a topology 'lcal'", "did you mean 'local'?")
    heron("submit", "local", "--wiat", WORD_COUNT).refused(USAGE, "--wiat", "--wait")
    heron("submit", "local", WORD_COUNT, "--wait", "--detach").refused(USAGE, "--detach and --wait")
    late = heron("submit", "local", WORD_COUNT, "wc", "--wiat")  # the program's own, as it seems, and it refuses it
    assert late.code != 0 and "warning: '--wiat' is passed to the program; did you mean '--wait'?" in late.err
    heron("stop", "local", "wc", "--drain", "--savepoint").refused(USAGE, "--drain and --savepoint are mutually")
    heron.check_clean()


@pytest.mark.heavy
def test_a_dead_topology_can_be_read_and_removed(heron: Heron) -> None:
    heron.submit(WORD_COUNT, "wc")
    for process in heron.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    fix = "run 'heron kill local wc' to remove its records"
    for words in (
        ("status",),
        ("metrics",),
        ("exceptions",),
        ("top",),
        ("activate",),
        ("deactivate",),
        ("restart",),
        ("update", "--component-parallelism", "count:3"),
    ):
        heron(words[0], "local", "wc", *words[1:]).refused(FAILED, "no process of topology 'wc' is running", fix)
    assert "DEAD" in heron("list", "local").ok().out
    assert "split" in heron("plan", "local", "wc").ok().out
    assert "all 4 tasks of wc have started" in heron("logs", "local", "wc", "tmaster").ok().out
    heron("submit", "local", WORD_COUNT, "wc").refused(EXISTS, "is dead but not removed", "heron kill local wc")
    assert "Successfully killed topology 'wc'" in heron.kill("wc").out
    heron.check_clean()
    heron.submit(WORD_COUNT, "wc")


# ---- the host -----------------------------------------------------------------------------------


def test_metrics_port_that_is_taken(heron: Heron) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        flags = ("--config-property", f"heron.executor.metrics_port={port - 1}")
        # The host of the containers refuses it, which may be another one: the submit has begun by then.
        refused = heron("submit", "local", WORD_COUNT, *flags)
        sentence = refused.refused(USAGE, f"port {port} of 127.0.0.1", "container 1")
        assert "set heron.executor.metrics_port to free ports or to 0" in sentence
        assert heron.names() == []
        heron.check_clean()
    heron.submit(WORD_COUNT, "wc", *flags)
    ports = {container["container"]: container["metrics_port"] for container in heron.status("wc")["containers"]}
    assert ports == {0: port - 1, 1: port}


def test_home_that_cannot_be_written(heron: Heron) -> None:
    (heron.home / "topologies").write_text("a file where a folder should be")
    result = heron("submit", "local", WORD_COUNT, "wc")
    result.refused(FAILED, "topologies")
    heron.check_clean()
