"""How busy the machine is: right numbers from the kernel's files, and unknown without them."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from heronpy.procs.usage import HostMeter, memory_of, pressure_of, times_of

PRESSURE = (
    "some avg10=29.45 avg60=28.28 avg300=25.94 total=23340480150\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
)


def stat(user: int, idle: int) -> str:
    return f"cpu  {user} 0 100 {idle} 50 0 10 5 3 0\ncpu0 1 2 3 4\n"


def test_figures_are_of_the_time_between_two_calls(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "cpu").write_text(PRESSURE)
    (tmp_path / "stat").write_text(stat(1000, 5000))
    meter = HostMeter(tmp_path)
    meter.measure()
    assert round(meter.usage.cpu_pressure, 4) == 0.2945 and not meter.usage.HasField("cpu_used")
    (tmp_path / "stat").write_text(stat(1300, 5100))
    meter.measure()
    assert meter.usage.cpu_used / meter.usage.cores == 0.75
    meter.measure()
    assert meter.usage.cpu_used / meter.usage.cores == 0.75, "no tick has passed"
    (tmp_path / "stat").write_text("garbage")
    (tmp_path / "pressure" / "cpu").write_text("")
    meter.measure()
    assert not meter.usage.HasField("cpu_used") and not meter.usage.HasField("cpu_pressure") and meter.usage.cores


def test_the_memory_of_the_machine_is_known(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       24683888 kB\nMemFree:         1 kB\n")
    meter = HostMeter(tmp_path)
    meter.measure()
    assert meter.usage.memory_bytes == 24_683_888 << 10
    assert HostMeter(tmp_path / "none").usage.memory_bytes == 0


@given(st.text())
def test_any_content_is_read(text: str) -> None:
    memory_of(text)
    pressure = pressure_of(text)
    assert pressure is None or 0 <= pressure <= 1
    assert times_of(text) is None


def test_this_machine_has_figures() -> None:
    meter = HostMeter()
    meter.measure()
    assert meter.usage.cores >= 1
