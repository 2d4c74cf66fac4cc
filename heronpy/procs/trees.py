"""CPU use of processes with everything below them: a Spark driver is a child of its gateway, and has workers.

Children are found by `/proc/PID/task/TID/children`, which costs a small file per thread and no look at what others run.
CPU time of children that have ended is in their parent's, so the sum of a tree grows steadily. A kernel without these
files tells of the given processes alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
#: Fields of /proc/PID/stat behind the name: CPU time of the user and the system, its own and of children that ended.
_TIMES = slice(11, 15)
#: At most so many processes are looked at in one tree.
PROCESSES_MAX = 10_000


def seconds_of(pids: Iterable[int], proc: str | os.PathLike[str] = "/proc") -> float:
    """CPU seconds that these processes and all below them have used; each counts once, those that ended for nothing."""
    ticks, left, seen = 0, list(pids), set[int]()
    while left and len(seen) < PROCESSES_MAX:
        pid = left.pop()
        if pid in seen:
            continue
        seen.add(pid)
        folder = Path(proc, str(pid))
        with suppress(OSError, ValueError):  # it has ended
            # A name may hold spaces and brackets.
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            ticks += sum(map(int, fields[_TIMES]))
            for thread in os.listdir(folder / "task"):
                with suppress(OSError):
                    left.extend(map(int, (folder / "task" / thread / "children").read_bytes().split()))
    return ticks * _TICK_S


class TreeMeter:
    """CPU seconds per second, from one call to the next."""

    def __init__(self, proc: str | os.PathLike[str] = "/proc") -> None:
        self._proc = proc
        self._last: tuple[frozenset[int], float, float] | None = None

    def rate(self, pids: Iterable[int], now: float) -> float | None:
        """None at the first call, after `forget`, and when other processes than the last time are asked about."""
        roots = frozenset(pids)
        used_s, last = seconds_of(roots, self._proc), self._last
        self._last = roots, now, used_s
        if last is None or last[0] != roots or now <= last[1]:
            return None
        return max(0.0, used_s - last[2]) / (now - last[1])

    def forget(self) -> None:
        """Begin anew: there is no figure for the time in which nobody asked."""
        self._last = None
