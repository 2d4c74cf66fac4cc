"""The resource use of process trees in a slot: the 95th percentiles, over ten minutes, of cores used and memory (PSS).

A measurement walks the page tables of each process, so it runs only once a minute, in a thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import psutil

from heronpy.executor.executor_child import descendants
from heronpy.pools.shards import Size

SAMPLE_S: Final = 60.0
SAMPLES: Final = 10
_QUANTILE: Final = 0.95


class TreeLoads:
    """Measures process trees; each load is stored by the name of the tree's first process."""

    def __init__(self) -> None:
        #: Map from name to the last measurement: pid of the first process, time, and CPU seconds of the tree.
        self._last: dict[str, tuple[int, float, float]] = {}
        self._samples: dict[str, deque[Size]] = {}
        self._told: dict[str, Size] = {}
        self._told_at = float("-inf")

    def sample(self, pids: Mapping[str, int], now: float) -> None:
        for name, pid in pids.items():
            cpu_s, pss = 0.0, 0
            for one in (pid, *descendants(pid)):
                try:
                    process = psutil.Process(one)
                    times, memory = process.cpu_times(), process.memory_full_info()
                except psutil.Error:
                    continue
                cpu_s, pss = cpu_s + times.user + times.system, pss + memory.pss
            before = self._last.get(name)
            self._last[name] = pid, now, cpu_s
            if before is not None and before[0] == pid and now > before[1]:
                # The difference lacks the CPU seconds of processes that have ended.
                used = Size(max(0.0, cpu_s - before[2]) / (now - before[1]), pss)
                self._samples.setdefault(name, deque(maxlen=SAMPLES)).append(used)

    def known(self, now: float) -> dict[str, Size]:
        """The loads of all trees with enough measurements; recomputed every ten minutes."""
        if now - self._told_at >= SAMPLES * SAMPLE_S:
            full = {name: samples for name, samples in self._samples.items() if len(samples) == SAMPLES}
            self._told = {
                name: Size(_high([one.cpu for one in samples]), int(_high([one.ram_bytes for one in samples])))
                for name, samples in full.items()
            }
            self._told_at = now if full else self._told_at
        return {name: load for name, load in self._told.items() if name in self._samples}

    def forget(self, name: str) -> None:
        """Discard the measurements of a tree that no longer runs in this slot."""
        self._last.pop(name, None)
        self._samples.pop(name, None)


def _high(values: list[float] | list[int]) -> float:
    return sorted(values)[int(_QUANTILE * (len(values) - 1) + 0.5)]
