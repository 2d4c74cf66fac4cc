"""CPU and memory use of processes.

CPU is cheap; the unshared size (USS) walks page tables, so it is measured at most every `USS_INTERVAL_S` per process,
for a few processes per call. The memory of a process that has used no CPU is measured ten times less often.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import psutil

USS_INTERVAL_S = 30.0
#: How much less often memory is measured while no CPU is used: a clock tick of CPU is the least that shows.
IDLE_FACTOR = 10


@dataclass(slots=True)
class Usage:
    """Of one process; zero when not known yet."""

    cpu_s: float = 0.0
    rss_bytes: int = 0
    uss_bytes: int = 0


@dataclass(slots=True)
class _Meter:
    process: psutil.Process
    usage: Usage
    uss_at: float
    rss_at: float
    #: CPU seconds when the unshared size was measured.
    uss_cpu_s: float = -1.0


class UsageMeter:
    """Remembers the processes that it has measured."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._meters: dict[int, _Meter] = {}

    def measure(self, pids: Iterable[int], now: float) -> None:
        """Measure these processes and forget all others."""
        wanted = set(pids)
        for pid in [pid for pid in self._meters if pid not in wanted]:
            del self._meters[pid]
        uss_left = 1 + int(len(wanted) * self._interval_s / USS_INTERVAL_S)
        for pid in sorted(wanted, key=self._uss_at):
            meter = self._meters.get(pid)
            try:
                if meter is None:
                    never = float("-inf")
                    meter = self._meters[pid] = _Meter(psutil.Process(pid), Usage(), never, never)
                times, usage = meter.process.cpu_times(), meter.usage
                before, usage.cpu_s = usage.cpu_s, times.user + times.system
                if usage.cpu_s != before or now - meter.rss_at >= self._interval_s * IDLE_FACTOR:
                    usage.rss_bytes = meter.process.memory_info().rss
                    meter.rss_at = now
                idle = usage.cpu_s == meter.uss_cpu_s
                if uss_left > 0 and now - meter.uss_at >= USS_INTERVAL_S * (IDLE_FACTOR if idle else 1):
                    uss_left -= 1
                    usage.uss_bytes = meter.process.memory_full_info().uss
                    meter.uss_at, meter.uss_cpu_s = now, usage.cpu_s
            except psutil.Error:
                continue

    def _uss_at(self, pid: int) -> float:
        meter = self._meters.get(pid)
        return meter.uss_at if meter else float("-inf")

    def of(self, pid: int) -> Usage:
        meter = self._meters.get(pid)
        return meter.usage if meter else Usage()
