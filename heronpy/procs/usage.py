"""CPU and memory use of processes.

CPU and resident size are one small file of Linux each time, which stays open. The unshared size (USS) and the
proportional size (PSS) walk page tables, which takes milliseconds, so they are measured at most every `USS_INTERVAL_S`
per process, for a few processes per call. Those of a process that hardly works, and whose resident size stays, are
measured ten times less often: else they would be the largest part of what an idle container costs.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psutil

from heronpy.procs.kept_files import KeptFiles

USS_INTERVAL_S = 30.0
#: How much less often the unshared size of a process is measured while it is idle: it has used less than this share of
#: a core, and its resident size has changed by less than this part.
IDLE_FACTOR = 10
IDLE_SHARE, SAME_SIZE = 0.01, 1 / 16
_TICK_S, _PAGE = 1.0 / os.sysconf("SC_CLK_TCK"), resource.getpagesize()
#: Fields of /proc/PID/stat behind the name: CPU time of the user and the system in ticks, resident size in pages.
_USER, _SYSTEM, _RESIDENT = 11, 12, 21


@dataclass(slots=True)
class Usage:
    """Of one process; zero when not known yet."""

    cpu_s: float = 0.0
    rss_bytes: int = 0
    uss_bytes: int = 0
    #: Each shared page divided among the processes that share it, so that sums count it once. Between measurements it
    #: moves with the resident size.
    pss_bytes: int = 0


@dataclass(slots=True)
class _Meter:
    usage: Usage
    uss_at: float = float("-inf")
    #: CPU seconds and resident size when the unshared size was measured.
    uss_cpu_s: float = 0.0
    uss_rss: int = 0
    #: What the resident size was above the proportional size then; None: not measured yet.
    others_bytes: int | None = None

    def is_idle(self, now: float) -> bool:
        """Whether it has hardly worked or changed since its unshared size was measured."""
        worked_s, grown = self.usage.cpu_s - self.uss_cpu_s, abs(self.usage.rss_bytes - self.uss_rss)
        return worked_s < IDLE_SHARE * (now - self.uss_at) and grown <= SAME_SIZE * self.uss_rss


def look_at(pid: int, files: KeptFiles) -> tuple[float, int]:
    """CPU seconds and resident bytes of a process; OSError or psutil.Error if it cannot be seen."""
    try:
        # A name may hold spaces and brackets.
        fields = files.read(_stat(pid)).rpartition(b")")[2].split()
        return (int(fields[_USER]) + int(fields[_SYSTEM])) * _TICK_S, int(fields[_RESIDENT]) * _PAGE
    except FileNotFoundError:
        process = psutil.Process(pid)  # no Linux, or no such process
        times = process.cpu_times()
        return times.user + times.system, process.memory_info().rss


def _stat(pid: int) -> str:
    return f"/proc/{pid}/stat"


def unshared(pid: int) -> tuple[int, int]:
    """Bytes that this process shares with no other, and its proportional size; psutil.Error if it cannot be seen."""
    found = psutil.Process(pid).memory_full_info()
    return int(found.uss), int(getattr(found, "pss", found.uss))


class UsageMeter:
    """Remembers the processes that it has measured."""

    def __init__(
        self,
        interval_s: float,
        look: Callable[[int, KeptFiles], tuple[float, int]] = look_at,
        uss: Callable[[int], tuple[int, int]] = unshared,
    ) -> None:
        """`interval_s`: how often `measure` is called."""
        self._interval_s = interval_s
        self._look = look
        self._uss = uss
        self._meters: dict[int, _Meter] = {}
        self._files = KeptFiles()
        self._measured_at = float("-inf")
        #: No process has begun, ended, grown or done more than report since the measurement before the last.
        self.calm = False

    def measure(self, pids: Iterable[int], now: float) -> None:
        """Measure these processes and forget all others."""
        wanted = set(pids)
        self.calm = wanted == self._meters.keys()
        for pid in [pid for pid in self._meters if pid not in wanted]:
            del self._meters[pid]
            self._files.forget(_stat(pid))
        elapsed_s, self._measured_at = now - self._measured_at, now
        uss_left = 1 + int(len(wanted) * self._interval_s / USS_INTERVAL_S)
        for pid in sorted(wanted, key=self._uss_at):
            try:
                found = self._look(pid, self._files)
                meter = self._meters.get(pid)
                if meter is None:
                    meter = self._meters[pid] = _Meter(Usage())
                usage = meter.usage
                worked_s, grown = found[0] - usage.cpu_s, abs(found[1] - usage.rss_bytes)
                if worked_s > max(1.5 * _TICK_S, IDLE_SHARE * elapsed_s) or grown > SAME_SIZE * usage.rss_bytes:
                    self.calm = False
                usage.cpu_s, usage.rss_bytes = found
                pause_s = USS_INTERVAL_S * (IDLE_FACTOR if meter.is_idle(now) else 1)
                if uss_left > 0 and now - meter.uss_at >= pause_s:
                    uss_left -= 1
                    usage.uss_bytes, proportional = self._uss(pid)
                    meter.others_bytes = max(0, usage.rss_bytes - proportional)
                    meter.uss_at, meter.uss_cpu_s, meter.uss_rss = now, usage.cpu_s, usage.rss_bytes
                if meter.others_bytes is not None:
                    usage.pss_bytes = max(usage.uss_bytes, usage.rss_bytes - meter.others_bytes, 1)
            except (psutil.Error, OSError):
                continue

    def _uss_at(self, pid: int) -> float:
        meter = self._meters.get(pid)
        return meter.uss_at if meter else float("-inf")

    def of(self, pid: int) -> Usage:
        meter = self._meters.get(pid)
        return meter.usage if meter else Usage()
