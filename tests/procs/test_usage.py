"""What a process uses, measured as seldom as its work allows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import SimpleNamespace

import psutil
import pytest

from heronpy.procs.usage import IDLE_FACTOR, UsageMeter


@dataclass
class Fake:
    """A process with the CPU and memory that a test gives it."""

    cpu_s: float = 1.0
    rss: int = 100
    looks: int = 0

    def cpu_times(self) -> SimpleNamespace:
        return SimpleNamespace(user=self.cpu_s, system=0.0)

    def memory_info(self) -> SimpleNamespace:
        self.looks += 1
        return SimpleNamespace(rss=self.rss)

    def memory_full_info(self) -> SimpleNamespace:
        return SimpleNamespace(uss=self.rss // 2)


def test_memory_is_measured_when_the_process_has_worked_and_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    monkeypatch.setattr(psutil, "Process", lambda pid: fake)
    meter = UsageMeter(2.0)
    meter.measure([7], 0.0)
    assert (meter.of(7).rss_bytes, meter.of(7).uss_bytes, fake.looks) == (100, 50, 1)
    fake.rss = 200
    meter.measure([7], 2.0)
    assert meter.of(7).rss_bytes == 100 and fake.looks == 1
    fake.cpu_s = 1.01
    meter.measure([7], 4.0)
    assert meter.of(7).rss_bytes == 200 and fake.looks == 2
    fake.rss = 300
    meter.measure([7], 4.0 + 2.0 * IDLE_FACTOR)
    assert meter.of(7).rss_bytes == 300, "a little work may not show in the clock"
    meter.measure([], 30.0)
    assert meter.of(7).rss_bytes == 0


def test_this_process_is_measured() -> None:
    meter = UsageMeter(2.0)
    meter.measure([os.getpid(), 2**22 + 1], 0.0)
    used = meter.of(os.getpid())
    assert used.cpu_s > 0 and used.rss_bytes > used.uss_bytes > 0
    assert meter.of(2**22 + 1).rss_bytes == 0
