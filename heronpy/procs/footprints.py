"""The footprints of tasks (children, descriptors, threads, log, free disk space), and the CPU use of process trees.

Each task is examined every `LOOK_S`, by the process that already measures CPU and memory. An examination reads a
bounded number of small files: the children and the memory of up to `SAMPLED` descendants of a task.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from heronpy.procs.usage import KeptFiles
from heronpy.proto import control_pb2

LOOK_S = 10.0
SAMPLED = 16
_PSS = re.compile(rb"^Pss: +(\d+) kB", re.MULTILINE)
_OPEN_FILES = re.compile(r"^Max open files +(\d+)", re.MULTILINE)
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
#: Fields of /proc/PID/stat after the name: user and system CPU time, of the process and of its ended children.
_TIMES = slice(11, 15)
#: Maximum number of processes that are examined in one tree.
PROCESSES_MAX = 10_000
#: The children of a process that uses no CPU are listed again after this time.
LOOK_AGAIN_S = 10.0


class _Family(Struct):
    """The children of a process when they were last listed, with its CPU time and the time of the listing."""

    ticks: int
    at: float
    children: list[int]


class TreeMeter:
    """Measures the CPU use of processes and all their descendants, such as a Spark gateway with its driver and workers.

    Children are found in `/proc/PID/task/TID/children`: one small file is read per thread, and no other user's
    processes are examined. A process that has not used CPU since the last call has most likely started no children, so
    they are listed again only from time to time. A process's CPU time includes the CPU time of its ended children, so
    the sum of a tree never shrinks. If the kernel lacks these files, only the given processes are measured.
    """

    def __init__(self, proc: str | os.PathLike[str] = "/proc") -> None:
        self._proc = os.fspath(proc)
        self._files = KeptFiles()
        self._families: dict[int, _Family] = {}
        self._last: tuple[frozenset[int], float, float] | None = None

    def seconds(self, pids: Iterable[int], now: float) -> float:
        """The CPU seconds used by these processes and all their descendants.

        Each process counts once, and ended processes count as 0.
        """
        ticks, left, seen = 0, list(pids), set[int]()
        while left and len(seen) < PROCESSES_MAX:
            pid = left.pop()
            if pid in seen:
                continue
            seen.add(pid)
            with suppress(OSError, ValueError):  # it has ended
                # A process name may contain spaces and parentheses.
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
        """The CPU seconds used per second since the last call.

        Returns None for the first call, after `forget`, and if `pids` differs from that of the last call.
        """
        roots = frozenset(pids)
        used_s, last = self.seconds(roots, now), self._last
        self._last = roots, now, used_s
        if last is None or last[0] != roots or now <= last[1]:
            return None
        return max(0.0, used_s - last[2]) / (now - last[1])

    def forget(self) -> None:
        """Discard all measurements, so that the next `rate` does not average over a period without calls."""
        self._last = None
        for pid in list(self._families):
            self._drop(pid)

    def _drop(self, pid: int) -> None:
        del self._families[pid]
        self._files.forget(f"{self._proc}/{pid}/stat")


def children_of(pid: int, proc: str | os.PathLike[str] = "/proc") -> list[int]:
    """The living children of all threads of a process; raises OSError if the process has ended."""
    folder, found = f"{os.fspath(proc)}/{pid}/task", list[int]()
    for thread in os.listdir(folder):
        with suppress(OSError):
            opened = os.open(f"{folder}/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
            with open(opened, "rb", buffering=0) as file:
                found.extend(map(int, file.readall().split()))
    return found


class FootprintMeter:
    """Measures the footprints of tasks, and stores each task's last result under the name of its process."""

    def __init__(self, folder: str, log_bytes: Callable[[str], int], proc: str | os.PathLike[str] = "/proc") -> None:
        """`folder` is on the disk to measure; `log_bytes` returns the number of bytes that a process has logged."""
        self._folder, self._log_bytes, self._proc = folder, log_bytes, Path(proc)
        self._found: dict[str, tuple[int, float, int, control_pb2.Footprint]] = {}
        self._disk_at = float("-inf")
        #: Size of the disk, and its free bytes; 0 if unknown.
        self.disk = (0, 0)

    def measure(self, tasks: Mapping[str, int], now: float) -> None:
        """Examine the tasks that are due (map from process name to pid); discards the results of all other tasks."""
        for name in self._found.keys() - tasks.keys():
            del self._found[name]
        for name, pid in tasks.items():
            before, at, logged, _ = self._found.get(name, (0, now, 0, None))
            if before == pid and 0 <= now - at < LOOK_S:
                continue
            with suppress(OSError, ValueError):  # it has ended
                footprint, total = self._look(pid), self._log_bytes(name)
                if before == pid and now > at:
                    footprint.log_per_s = max(0, total - logged) / (now - at)
                self._found[name] = pid, now, total, footprint
        if not 0 <= now - self._disk_at < LOOK_S:
            self._disk_at = now
            with suppress(OSError):
                disk = os.statvfs(self._folder)
                self.disk = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize

    def of(self, name: str) -> control_pb2.Footprint | None:
        """The last footprint of the process with this name; None if it was not measured yet."""
        found = self._found.get(name)
        return found[3] if found is not None else None

    def _look(self, pid: int) -> control_pb2.Footprint:
        folder = self._proc / str(pid)
        below = self._below(pid)
        limit = _OPEN_FILES.search((folder / "limits").read_text("ascii"))
        sizes = [size for one in below[:SAMPLED] if (size := self._pss(one)) is not None]
        return control_pb2.Footprint(
            descendants=len(below),
            descendant_bytes=sum(sizes) * len(below) // len(sizes) if sizes else 0,
            descriptors=len(os.listdir(folder / "fd")),
            descriptors_max=int(limit[1]) if limit else 0,
            threads=len(os.listdir(folder / "task")),
        )

    def _below(self, pid: int) -> list[int]:
        """The descendants of a process. At most `SAMPLED` processes are searched for children."""
        below = dict.fromkeys(children_of(pid, self._proc))
        left = deque(below)
        for _ in range(min(SAMPLED, len(left))):
            with suppress(OSError):
                children = [child for child in children_of(left.popleft(), self._proc) if child not in below]
                below.update(dict.fromkeys(children))
                left.extend(children)
        return list(below)

    def _pss(self, pid: int) -> int | None:
        with suppress(OSError):
            found = _PSS.search((self._proc / str(pid) / "smaps_rollup").read_bytes())
            return int(found[1]) << 10 if found else None
        return None
