"""CPU use of processes with everything below them: a Spark driver is a child of its gateway, and has workers.

Children are found by `/proc/PID/task/TID/children`, which costs a small file per thread and no look at what others run.
A process that has not used CPU since has hardly begun any, so its children are looked for again only now and then.
CPU time of children that have ended is in their parent's, so the sum of a tree grows steadily. A kernel without these
files tells of the given processes alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from heronpy.procs.kept_files import KeptFiles

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
#: Fields of /proc/PID/stat behind the name: CPU time of the user and the system, its own and of children that ended.
_TIMES = slice(11, 15)
#: At most so many processes are looked at in one tree.
PROCESSES_MAX = 10_000
#: The children of a process that uses no CPU are looked for again after this.
LOOK_AGAIN_S = 10.0


@dataclass(slots=True)
class _Family:
    """The children of a process, and its CPU time and the moment when they were looked for."""

    ticks: int
    at: float
    children: list[int]


class TreeMeter:
    """CPU seconds of trees, and per second from one call to the next."""

    def __init__(self, proc: str | os.PathLike[str] = "/proc") -> None:
        self._proc = os.fspath(proc)
        self._files = KeptFiles()
        self._families: dict[int, _Family] = {}
        self._last: tuple[frozenset[int], float, float] | None = None

    def seconds(self, pids: Iterable[int], now: float) -> float:
        """CPU seconds that these processes and all below them have used.

        Each counts once, those that ended for nothing.
        """
        ticks, left, seen = 0, list(pids), set[int]()
        while left and len(seen) < PROCESSES_MAX:
            pid = left.pop()
            if pid in seen:
                continue
            seen.add(pid)
            with suppress(OSError, ValueError):  # it has ended
                # A name may hold spaces and brackets.
                fields = self._files.read(f"{self._proc}/{pid}/stat").rpartition(b")")[2].split()
                used = sum(map(int, fields[_TIMES]))
                ticks += used
                left.extend(self._children(pid, used, now))
        for pid in [pid for pid in self._families if pid not in seen]:
            self._drop(pid)
        return ticks * _TICK_S

    def _children(self, pid: int, ticks: int, now: float) -> list[int]:
        family = self._families.get(pid)
        if family is None or family.ticks != ticks or not 0 <= now - family.at < LOOK_AGAIN_S:
            family = self._families[pid] = _Family(ticks, now, children_of(pid, self._proc))
        return family.children

    def rate(self, pids: Iterable[int], now: float) -> float | None:
        """None at the first call, after `forget`, and when other processes than the last time are asked about."""
        roots = frozenset(pids)
        used_s, last = self.seconds(roots, now), self._last
        self._last = roots, now, used_s
        if last is None or last[0] != roots or now <= last[1]:
            return None
        return max(0.0, used_s - last[2]) / (now - last[1])

    def forget(self) -> None:
        """Begin anew: there is no figure for the time in which nobody asked."""
        self._last = None
        for pid in list(self._families):
            self._drop(pid)

    def _drop(self, pid: int) -> None:
        del self._families[pid]
        self._files.forget(f"{self._proc}/{pid}/stat")


def children_of(pid: int, proc: str | os.PathLike[str] = "/proc") -> list[int]:
    """The living children of all threads of a process; OSError if it has ended."""
    folder, found = f"{os.fspath(proc)}/{pid}/task", list[int]()
    for thread in os.listdir(folder):
        with suppress(OSError):
            opened = os.open(f"{folder}/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
            with open(opened, "rb", buffering=0) as file:
                found.extend(map(int, file.readall().split()))
    return found
