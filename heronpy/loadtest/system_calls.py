"""System calls of a topology's processes, counted by Linux's perf while the spouts emit.

perf attaches before the first tuple and starts to count after a delay, so that attaching disturbs nothing. While it
counts, every system call costs a little more; so no other figure is taken in these seconds.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

EVENT = "raw_syscalls:sys_enter"
#: How long after its time perf may take to end.
PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Counted:
    """The system calls of some seconds, or why there is no such count."""

    calls: int = 0
    seconds: float = 0.0
    reason: str = ""

    @property
    def per_s(self) -> float | None:
        return None if self.reason or self.seconds <= 0 else self.calls / self.seconds


def parse(report: str) -> int | None:
    """The count in the output of `perf stat -x ,`; None when it has none.

    The first field is the count, the third the event. perf writes `<not counted>` for processes that never ran.
    """
    for line in report.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[2] == EVENT:
            if fields[0] == "<not counted>":
                return 0
            return int(fields[0]) if fields[0].isdigit() else None
    return None


def missing() -> str:
    """Why system calls cannot be counted here; "" when perf is there."""
    return "" if shutil.which("perf") else "perf is not installed"


class Counter:
    """Counts once: from `after_s` to `after_s + seconds`, from now on."""

    def __init__(self, pids: Sequence[int], after_s: float, seconds: float) -> None:
        self._seconds = seconds
        self._out = tempfile.TemporaryFile("w+", encoding="utf-8")
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        command = ["perf", "stat", "-x", ",", "-e", EVENT, "-D", str(max(1, round(after_s * 1000))), "-p",
                   ",".join(map(str, pids)), "--log-fd", str(self._out.fileno()), "--",
                   "sleep", f"{after_s + seconds:.3f}"]  # fmt: skip
        self._perf = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=(self._out.fileno(),),
        )

    def result(self) -> Counted:
        """Wait for perf to end; returns a reason if it may not count, or is not done in time."""
        try:
            code = self._perf.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.close()
            return Counted(reason="perf did not end in time")
        self._out.seek(0)
        calls = parse(self._out.read())
        self.close()
        if code or calls is None:
            return Counted(reason="perf may not count them here: that needs root, or kernel.perf_event_paranoid=-1")
        return Counted(calls, self._seconds)

    def close(self) -> None:
        """End perf, if it still runs."""
        if self._perf.poll() is None:
            # So that perf ends its own child; a perf that does not listen is killed.
            self._perf.terminate()
            try:
                self._perf.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._perf.kill()
                self._perf.wait()
        self._out.close()
        self._errors.close()
