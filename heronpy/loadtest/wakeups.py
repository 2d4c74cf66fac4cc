"""Voluntary context switches: how often the threads of a process went to sleep and were woken again (Linux).

A wake-up costs several times more on one machine than on another, so it is counted besides CPU seconds. Those are read
to the nanosecond here: clock ticks of 10 ms are too coarse for processes that hardly run.
"""

from __future__ import annotations

import os
from pathlib import Path

_VOLUNTARY = "voluntary_ctxt_switches"


def voluntary_of(status: str) -> int | None:
    """The voluntary context switches that a /proc/PID/task/TID/status file states; None when it states none."""
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == _VOLUNTARY:
            text = value.strip()
            return int(text) if text.isdigit() else None
    return None


def voluntary_by_thread(pid: int, proc: Path = Path("/proc")) -> dict[int, int]:
    """The voluntary context switches of each thread of a process; those that have ended are left out."""
    found: dict[int, int] = {}
    try:
        threads = os.listdir(proc / str(pid) / "task")
    except OSError:
        return found
    for thread in threads:
        try:
            status = (proc / str(pid) / "task" / thread / "status").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        count = voluntary_of(status)
        if count is not None:
            found[int(thread)] = count
    return found


def ran_by_thread(pid: int, proc: Path = Path("/proc")) -> dict[int, float]:
    """CPU seconds of each thread of a process; without those that have ended, or that the kernel does not tell."""
    found: dict[int, float] = {}
    try:
        threads = os.listdir(proc / str(pid) / "task")
    except OSError:
        return found
    for thread in threads:
        try:
            words = (proc / str(pid) / "task" / thread / "schedstat").read_text(encoding="ascii").split()
            found[int(thread)] = int(words[0]) * 1e-9
        except (OSError, ValueError, IndexError):
            continue
    return found
