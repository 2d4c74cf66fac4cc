"""`heron top` on a real terminal: keys, a resize, and the terminal as it was found."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from heronpy.common.errors import RpcError
from heronpy.proto import control_pb2
from heronpy.statemgr import paths
from heronpy.views.findings import Finding, Verdict
from tests.cli.conftest import FakeTopology
from tests.support.views import component_load, load_answer
from tests.support.waiting import wait_for

_PLACED = re.compile(r"\x1b\[(\d+);1H([^\x1b]*(?:\x1b\[[0-9;]*m[^\x1b]*)*)|(\x1b\[2J)")


class Terminal:
    """A pseudo terminal with `heron top` in it, and what stands on its lines."""

    def __init__(self, home: Path, rows: int, columns: int) -> None:
        self._main, self.theirs = pty.openpty()
        self.resize(rows, columns)
        self.found = termios.tcgetattr(self.theirs)
        environment = os.environ | {"TERM": "xterm", "PYTHONIOENCODING": "utf-8", "HERON_HOME": str(home)}
        environment.pop("COLUMNS", None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "heronpy.cli", "top", "local", "wordy", "--interval", "0.1"],
            stdin=self.theirs, stdout=self.theirs, stderr=subprocess.PIPE, env=environment, start_new_session=True,
        )  # fmt: skip
        self._data = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._main, 65536):
                self._data += data.decode(errors="replace")

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def keys(self, data: bytes) -> None:
        os.write(self._main, data)

    @property
    def data(self) -> str:
        """Everything that was written."""
        return self._data

    def lines(self) -> list[str]:
        """What stands there now, without styles."""
        shown: dict[int, str] = {}
        for row, text, cleared in _PLACED.findall(self._data):
            if cleared:
                shown.clear()
            else:
                shown[int(row)] = re.sub(r"\x1b\[[0-9;]*m", "", text)
        return [shown.get(row, "") for row in range(1, max(shown, default=0) + 1)]

    def sees(self, text: str) -> None:
        wait_for(lambda: any(text in line for line in self.lines()), 20, f"{text!r} on the screen")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        os.close(self.theirs)
        self._reader.join(5)
        os.close(self._main)


@pytest.fixture
def terminal(wordy: FakeTopology, home: Path) -> Iterator[Terminal]:
    figures = {"tasks": 2, "share": 0.9, "even": 0.5, "busy": 0.98, "median": 0.1}
    wordy.answers["get_load"] = load_answer(
        component_load("word", kind="spout", emitted_per_s=1234.0),
        component_load("count", tasks=2, up=2, executed_per_s=1234.0),
        topology_id="wordy-1",
        state="RUNNING",
        plan_version=3,
        at=1e9,
        findings=[Finding(Verdict.SKEW, component="count", task="container_1_count_3", figures=figures)],
    )
    wordy.answers["get_metrics"] = control_pb2.MetricsReply(interval_s=10.0)
    found = Terminal(home, 24, 80)
    yield found
    found.close()


def test_keys_lead_to_the_task_and_q_gives_the_terminal_back(wordy: FakeTopology, terminal: Terminal) -> None:
    terminal.sees("! SKEW data skew: container_1_count_3")
    terminal.sees("> word")
    assert len(terminal.lines()) == 24
    assert not any(name == "get_status" for name, _ in wordy.asked[1:]), "only what is shown is asked for"
    terminal.keys(b"\x1b[B\r")
    terminal.sees("tasks of count")
    terminal.sees("> count-2")
    terminal.keys(b"j\r")
    terminal.sees("task container_1_count_3")
    terminal.sees("executor of container 1 is not registered")  # a sentence stands where the log would
    terminal.keys(b"x")
    terminal.sees("has no task or process")  # the fake has no executors: a sentence stands where the stacks would
    terminal.keys(b"\x1b")
    terminal.sees("> count-3")
    terminal.keys(b"\x1b")
    terminal.sees("components  2")
    terminal.resize(30, 200)
    wait_for(lambda: len(terminal.lines()) == 30, 20, "30 lines after the resize")
    terminal.sees("pend")
    terminal.keys(b"q")
    assert terminal.process.wait(20) == 0
    wait_for(lambda: terminal.data.rstrip().endswith("\x1b[?1049l"), 10, "the first screen again")
    assert termios.tcgetattr(terminal.theirs) == terminal.found


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_gives_the_terminal_back(terminal: Terminal, signum: signal.Signals) -> None:
    terminal.sees("! SKEW")
    terminal.process.send_signal(signum)
    assert terminal.process.wait(20) == 0
    wait_for(lambda: terminal.data.rstrip().endswith("\x1b[?1049l"), 10, "the first screen again")
    assert termios.tcgetattr(terminal.theirs) == terminal.found


def test_silence_is_told_and_the_end_of_the_topology_ends_it(wordy: FakeTopology, terminal: Terminal) -> None:
    terminal.sees("! SKEW")
    wordy.answers["get_load"] = RpcError("the disk is full")
    terminal.sees("no answer for")
    terminal.sees("the disk is full")
    terminal.sees("> word")
    wordy.state.delete(paths.execution_state("wordy"))
    _, told = terminal.process.communicate(timeout=20)
    assert terminal.process.returncode == 3
    assert told.decode().startswith("error: ") and "wordy" in told.decode() and "Traceback" not in told.decode()
    assert termios.tcgetattr(terminal.theirs) == terminal.found
