"""`heron kill` of a topology whose scheduler is dead ends what is left of it, and nothing that only looks like it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.security.other_user import NOBODY, needs_root
from tests.security.test_run import start
from tests.support.command import Heron
from tests.support.waiting import wait_for

#: A script for a shell, which takes `-m` as Python does.
LOOKALIKE = "heronpy.scheduler"


@contextlib.contextmanager
def bystander(*argv: str, **options: object) -> Iterator[psutil.Process]:
    """A process that has nothing to do with the topology; a terminal of its own is not needed."""
    options = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "env": {},
        **options,
    }
    with subprocess.Popen(argv, **options) as process:  # type: ignore[call-overload]
        try:
            yield psutil.Process(process.pid)
        finally:
            process.kill()


def abandon(heron: Heron) -> Path:
    """Start a topology and kill its scheduler and guardian, so that `heron kill` has to do it by hand."""
    start(heron)
    launch = heron.log_dir("wc").parent / "launch.json"
    control = [
        p for p in heron.processes() if "heronpy.scheduler" in p.cmdline() or "scheduler" in " ".join(p.cmdline())
    ]
    assert control
    for process in control:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)
    for process in control:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return launch


@pytest.fixture
def room(home: Path) -> Path:
    """A folder with a script that is called like our module."""
    folder = home.parent / "room"
    folder.mkdir()
    (folder / LOOKALIKE).write_text("read answer\n")
    folder.chmod(0o755)
    (folder / LOOKALIKE).chmod(0o644)
    return folder


def test_a_kill_spares_whoever_only_names_the_launch_file(heron: Heron, room: Path) -> None:
    launch = str(abandon(heron))
    sleeps = "import time; time.sleep(600)"
    with (
        bystander(sys.executable, "-c", sleeps, "--launch", launch) as tool,
        bystander("tail", "-f", launch) as reader,
        bystander("/bin/sh", "-m", LOOKALIKE, "--launch", launch, cwd=room) as shell,
        bystander(sys.executable, "-c", sleeps, "-m", "heronpy.executor", "--launch", launch + ".old") as other,
    ):
        heron.kill("wc")
        wait_for(lambda: not heron.processes(), what="the end of the topology")
        for process in (tool, reader, shell, other):
            assert process.is_running() and process.status() != psutil.STATUS_ZOMBIE, process.cmdline()


@needs_root
@pytest.mark.heavy
def test_a_kill_spares_a_process_of_another_user_with_the_very_same_command_line(heron: Heron, room: Path) -> None:
    launch = str(abandon(heron))
    argv = ["python", "-m", LOOKALIKE, "--launch", launch]
    with bystander(
        *argv, executable="/bin/sh", cwd=room, user=NOBODY, extra_groups=[], env={"HERON_LAUNCH": launch}
    ) as stranger:
        assert stranger.cmdline() == argv and stranger.uids().real == NOBODY
        heron.kill("wc")
        wait_for(lambda: not heron.processes(), what="the end of the topology")
        assert stranger.is_running() and stranger.status() != psutil.STATUS_ZOMBIE
