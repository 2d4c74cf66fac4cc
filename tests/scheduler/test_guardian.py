"""The guardian of a scheduler: it restarts what is killed or hangs, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from heronpy.scheduler.guardian import END_S, Watchman
from tests.support.waiting import wait_for

#: Each start of the scheduler writes a line; the first one does what the argument says.
PROGRAM = """
import os, sys, time
from heronpy.procs.restart_policy import RestartLimits
from heronpy.scheduler.guardian import guard

def run(pulse):
    with open(sys.argv[1], "a+") as starts:
        starts.write("start\\n")
        starts.seek(0)
        first = len(starts.readlines()) == 1
    if first and sys.argv[2] == "hang at its start":
        time.sleep(60)
    pulse.beat()
    if first and sys.argv[2] == "hang":
        time.sleep(60)
    if first and sys.argv[2] == "end slowly":
        pulse.end()
        time.sleep(3.5)
    if first and sys.argv[2] == "kill":
        os.kill(os.getpid(), 9)
    if first and sys.argv[2] == "fail":
        return 3
    pulse.end()
    return 7

sys.exit(guard(run, RestartLimits(0.01, 0.1, 5), hang_s=1.0, start_s=2.0))
"""


def starts(tmp_path: Path, what: str) -> tuple[int, int, str]:
    tmp_path.mkdir(exist_ok=True)
    file = tmp_path / "starts"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file), what],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=dict(os.environ),
    )
    return done.returncode, len(file.read_text().splitlines()), done.stdout


@pytest.mark.parametrize(
    ("what", "count", "words"),
    [
        ("hang", 2, "did not answer for 1 s and was killed; restarting it"),
        ("hang at its start", 2, "had not started after 2 s and was killed; restarting it"),
        ("kill", 2, ""),
        # What it needs may be away for a while.
        ("fail", 2, ""),
        # It says that it ends.
        ("nothing", 1, ""),
        ("end slowly", 1, ""),
    ],
)
def test_one_that_hangs_or_fails_is_started_again(tmp_path: Path, what: str, count: int, words: str) -> None:
    code, times, said = starts(tmp_path, what)
    assert (code, times) == (7, count) and words in said


def test_silence_counts_sooner_after_the_first_sign() -> None:
    watchman = Watchman(10.0, 120.0, 0.0)
    assert not any(watchman.hangs(b"", float(now)) for now in range(1, 60)), "it is starting"
    assert not watchman.hangs(b"++", 60.0)
    assert not any(watchman.hangs(b"", 60.0 + now) for now in range(1, 10))
    assert not watchman.hangs(b"+", 70.0), "it is back"
    assert not any(watchman.hangs(b"", 70.0 + now) for now in range(1, 10))
    assert watchman.hangs(b"", 80.0)


def test_a_start_may_take_its_time_and_not_for_ever() -> None:
    watchman = Watchman(10.0, 120.0, 0.0)
    assert not any(watchman.hangs(b"", float(now)) for now in range(1, 120))
    assert watchman.hangs(b"", 120.0) and not watchman.lived


@pytest.mark.parametrize(("signs", "within_s"), [(b"+", 10.0), (b"", 120.0)])
def test_the_guardians_own_pause_does_not_count(signs: bytes, within_s: float) -> None:
    watchman = Watchman(10.0, 120.0, 0.0)
    assert not watchman.hangs(signs, 1.0)
    assert not watchman.hangs(b"", 500.0), "all of this host stood still"
    assert not any(watchman.hangs(b"", 500.0 + now) for now in range(1, int(within_s)))
    assert watchman.hangs(b"", 500.0 + within_s)


def test_an_end_may_take_its_time_and_not_for_ever() -> None:
    watchman = Watchman(10.0, 120.0, 0.0)
    assert not watchman.hangs(b"+.", 1.0) and watchman.ends
    assert not any(watchman.hangs(b"", float(now)) for now in range(2, int(END_S) + 1))
    assert watchman.hangs(b"", 1.0 + END_S)


def test_one_that_is_stopped_and_continued_is_not_taken_for_asked_to_end(tmp_path: Path) -> None:
    """The time of its wait is over when it goes on; the scheduler runs as before, and a request to end is heard."""
    file = tmp_path / "starts"
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(file), "hang at its start"]) as guardian:
        try:
            wait_for(lambda: file.exists() and file.read_text(), 20, "the first start")
            guardian.send_signal(signal.SIGSTOP)
            wait_for(lambda: psutil.Process(guardian.pid).status() == psutil.STATUS_STOPPED, 10, "the stop")
            time.sleep(2.3)  # longer than the guardian waits for a signal
            guardian.send_signal(signal.SIGCONT)
            wait_for(lambda: len(file.read_text().splitlines()) == 2, 20, "a start of another one, as this one hangs")
            assert guardian.wait(20) == 7
        finally:
            guardian.kill()
