"""What a process uses; its unshared memory is measured as seldom as its work allows."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil
import pytest

from heronpy.procs.usage import IDLE_FACTOR, USS_INTERVAL_S, KeptFiles, UsageMeter, look_at


@dataclass
class Fake:
    """A process with the CPU and memory that a test gives it."""

    cpu_s: float = 1.0
    rss: int = 100
    walks: int = 0

    def look(self, pid: int, files: KeptFiles) -> tuple[float, int]:
        if pid != 7:
            raise ProcessLookupError(pid)
        return self.cpu_s, self.rss

    def uss(self, pid: int) -> tuple[int, int]:
        self.walks += 1
        return self.rss // 2, self.rss * 3 // 4


def test_page_tables_are_walked_rarely_and_hardly_ever_for_a_process_without_work() -> None:
    fake = Fake(rss=1000)
    meter = UsageMeter(2.0, fake.look, fake.uss)
    meter.measure([7, 8], 0.0)
    assert (meter.of(7).rss_bytes, meter.of(7).uss_bytes, fake.walks) == (1000, 500, 1)
    assert meter.of(8).rss_bytes == 0, "one that cannot be seen keeps nobody else from being measured"
    fake.cpu_s, fake.rss = 1.02, 1050
    now = USS_INTERVAL_S
    meter.measure([7], now)
    assert (meter.of(7).cpu_s, meter.of(7).rss_bytes, fake.walks) == (1.02, 1050, 1), "it has only reported"
    fake.cpu_s = 2.0
    meter.measure([7], now + 2.0)
    assert (meter.of(7).uss_bytes, fake.walks) == (525, 2), "it has worked"
    fake.rss = 2000
    meter.measure([7], now + 4.0)
    assert fake.walks == 2, "not so soon"
    meter.measure([7], now + 2.0 + USS_INTERVAL_S)
    assert (meter.of(7).uss_bytes, fake.walks) == (1000, 3), "it has grown, without work that shows"
    now += 2.0 + USS_INTERVAL_S * (1 + IDLE_FACTOR)
    meter.measure([7], now - 1.0)
    assert fake.walks == 3
    meter.measure([7], now)
    assert fake.walks == 4, "now and then nevertheless"
    meter.measure([], now + 2.0)
    assert meter.of(7).rss_bytes == 0


def test_the_proportional_size_moves_with_the_resident_one_between_measurements() -> None:
    fake = Fake(rss=1000)
    meter = UsageMeter(2.0, fake.look, fake.uss)
    meter.measure([7], 0.0)
    assert meter.of(7).pss_bytes == 750
    fake.rss = 1400
    meter.measure([7], 2.0)
    assert (meter.of(7).pss_bytes, fake.walks) == (1150, 1)
    fake.rss = 300
    meter.measure([7], 4.0)
    assert meter.of(7).pss_bytes == 500, "never less than what nobody shares, as it was measured"


def test_processes_that_only_report_are_calm_and_those_that_grow_are_not() -> None:
    fake = Fake(rss=1000)
    meter = UsageMeter(2.0, fake.look, fake.uss)
    meter.measure([7], 0.0)
    assert not meter.calm, "it has just begun"
    meter.measure([7], 2.0)
    assert meter.calm
    fake.cpu_s += 0.01
    meter.measure([7], 4.0)
    assert meter.calm, "a tick is what a report takes now and then"
    fake.rss = 1070
    meter.measure([7], 6.0)
    assert not meter.calm, "it has grown"
    meter.measure([7], 8.0)
    assert meter.calm
    fake.cpu_s += 0.05
    meter.measure([7], 10.0)
    assert not meter.calm, "it has worked"
    meter.measure([7], 12.0)
    assert meter.calm
    meter.measure([], 14.0)
    assert not meter.calm, "it has ended"


def test_this_process_is_measured() -> None:
    meter = UsageMeter(2.0)
    meter.measure([os.getpid(), 2**22 + 1], 0.0)
    used = meter.of(os.getpid())
    assert used.cpu_s > 0 and used.rss_bytes >= used.pss_bytes >= used.uss_bytes > 0
    assert meter.of(2**22 + 1).rss_bytes == 0


def test_what_is_read_is_what_psutil_reads() -> None:
    before, (cpu_s, rss), after = (
        psutil.Process().cpu_times(),
        look_at(os.getpid(), KeptFiles()),
        psutil.Process().cpu_times(),
    )
    assert before.user + before.system - 0.011 <= cpu_s <= after.user + after.system + 0.011
    assert rss == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)
