"""How busy the CPUs of this machine are, with the processes of everybody.

Sources: `/proc/pressure/cpu` ("some": the share of time in which at least one runnable process waited for a CPU; see
accounting/psi of the kernel's documentation) and the first line of `/proc/stat`. What a kernel does not tell stays
unknown.
"""

from __future__ import annotations

import os

from heronpy.procs.kept_files import KeptFiles
from heronpy.proto import control_pb2

#: Fields of the line "cpu" in /proc/stat that are time without work: idle and iowait.
_RESTING = slice(3, 5)
#: User to steal; the guests' time behind them is part of the user's.
_ALL = slice(0, 8)


def pressure_of(text: str) -> float | None:
    """The share of the last ten seconds from the content of /proc/pressure/cpu; None if it is not there."""
    for line in text.splitlines():
        words = line.split()
        if words and words[0] == "some":
            values = dict(word.split("=", 1) for word in words[1:] if "=" in word)
            try:
                return min(1.0, max(0.0, float(values["avg10"]) / 100))
            except (KeyError, ValueError):
                return None
    return None


def times_of(text: str) -> tuple[int, int] | None:
    """All time and working time of all cores, in ticks since the start, from the content of /proc/stat."""
    words = text.split("\n", 1)[0].split()
    try:
        ticks = [int(word) for word in words[1:]][_ALL]
    except ValueError:
        return None
    if words[:1] != ["cpu"] or len(ticks) < 4:
        return None
    return sum(ticks), sum(ticks) - sum(ticks[_RESTING])


def memory_of(text: str) -> int | None:
    """All memory of the machine, bytes, from the content of /proc/meminfo."""
    words = text.split("\n", 1)[0].split()
    if words[:1] != ["MemTotal:"] or len(words) != 3 or not words[1].isdigit():
        return None
    return int(words[1]) * 1024


class HostMeter:
    """Measures from one call to the next."""

    def __init__(self, proc: str | os.PathLike[str] = "/proc") -> None:
        self._proc = os.fspath(proc)
        self._files = KeptFiles()
        self._cores = os.cpu_count() or 1
        self._memory_bytes = memory_of(self._read("meminfo")) or 0
        self._times: tuple[int, int] | None = None
        self.usage = control_pb2.HostUsage(cores=self._cores, memory_bytes=self._memory_bytes)

    def measure(self) -> None:
        """Set `usage`; what cannot be read is left out of it."""
        usage = control_pb2.HostUsage(cores=self._cores, memory_bytes=self._memory_bytes)
        pressure, times = pressure_of(self._read("pressure/cpu")), times_of(self._read("stat"))
        if pressure is not None:
            usage.cpu_pressure = pressure
        if times is not None and self._times is not None:
            passed, worked = times[0] - self._times[0], times[1] - self._times[1]
            if passed > 0:
                usage.cpu_used = self._cores * min(1.0, max(0.0, worked / passed))
            elif self.usage.HasField("cpu_used"):
                usage.cpu_used = self.usage.cpu_used
        self._times = times
        self.usage = usage

    def _read(self, name: str) -> str:
        try:
            return self._files.read(f"{self._proc}/{name}").decode("ascii", errors="replace")
        except OSError:
            return ""
