"""Child processes, descriptors, threads and log of tasks, and the room on the disk.

Each task is looked at every `LOOK_S`, by who measures its processes anyway. A look reads a bounded number of small
files: the children of `SAMPLED` processes below a task, and the memory of as many.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from heronpy.procs.trees import children_of
from heronpy.proto import control_pb2

LOOK_S = 10.0
SAMPLED = 16
_PSS = re.compile(rb"^Pss: +(\d+) kB", re.MULTILINE)
_OPEN_FILES = re.compile(r"^Max open files +(\d+)", re.MULTILINE)


class FootprintMeter:
    """Remembers what it found last, by the name of the process."""

    def __init__(self, folder: str, log_bytes: Callable[[str], int], proc: str | os.PathLike[str] = "/proc") -> None:
        """`folder` is on the disk in question; `log_bytes` gives what a process has logged so far."""
        self._folder, self._log_bytes, self._proc = folder, log_bytes, Path(proc)
        self._found: dict[str, tuple[int, float, int, control_pb2.Footprint]] = {}
        self._disk_at = float("-inf")
        #: Size of the disk, and its free bytes; 0: not known.
        self.disk = (0, 0)

    def measure(self, tasks: Mapping[str, int], now: float) -> None:
        """Look at the tasks that are due, given by name with their process; forget all others."""
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
        """Of the process with this name; None: not known yet."""
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
        """The processes below it; the children of only some of them are known."""
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
