"""The CPU and memory use of processes, and the load of this machine.

CPU time and resident size are read from one small file in /proc, which stays open. To measure the unshared size (USS)
and the proportional size (PSS), the kernel walks page tables, which takes milliseconds. These sizes are therefore
measured at most every `USS_INTERVAL_S` per process, and for only a few processes per call. They are measured ten times
less often for a process that is almost idle and whose resident size stays the same: measuring them would otherwise be
most of an idle container's CPU use.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable

import psutil
from msgspec import Struct

from heronpy.proto import control_pb2

USS_INTERVAL_S = 30.0
#: The unshared size of an idle process is measured this many times less often. A process is idle if it has used less
#: than this share of a core, and its resident size has changed by less than this part.
IDLE_FACTOR = 10
IDLE_SHARE, SAME_SIZE = 0.01, 1 / 16
_TICK_S, _PAGE = 1.0 / os.sysconf("SC_CLK_TCK"), resource.getpagesize()
#: Fields of /proc/PID/stat after the name: user and system CPU time in ticks, resident size in pages.
_USER, _SYSTEM, _RESIDENT = 11, 12, 21
#: Maximum bytes to read from a file; the fields that are used need fewer.
_BYTES = 4096
#: Fields of the line "cpu" in /proc/stat with the time without work: idle and iowait.
_RESTING = slice(3, 5)
#: Fields from user to steal. The fields after them (time of guests) are included in the user time.
_ALL = slice(0, 8)


class KeptFiles:
    """Keeps small files in /proc open, because reading an open file again is three to four times cheaper.

    Each path has one descriptor. The descriptor of an ended process returns no data, even if the pid was reused.
    """

    def __init__(self) -> None:
        self._files: dict[str, int] = {}

    def read(self, path: str) -> bytes:
        """The beginning of a file; raises OSError if the file does not exist."""
        kept = self._files.get(path)
        if kept is not None:
            try:
                if data := os.pread(kept, _BYTES, 0):
                    return data
            except OSError:
                pass
            self.forget(path)
        self._files[path] = opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(opened, _BYTES, 0)

    def forget(self, path: str) -> None:
        """Close a file that will not be read again soon."""
        kept = self._files.pop(path, None)
        if kept is not None:
            os.close(kept)

    def __del__(self) -> None:
        for path in list(self._files):
            self.forget(path)


class Usage(Struct):
    """The resource usage of one process; zero if not measured yet."""

    cpu_s: float = 0.0
    rss_bytes: int = 0
    uss_bytes: int = 0
    #: The proportional size: each shared page is divided among the processes that share it, so that sums count the page
    #: once. Between measurements, this size changes with the resident size.
    pss_bytes: int = 0


class _Meter(Struct):
    usage: Usage
    uss_at: float = float("-inf")
    #: CPU seconds and resident size when the unshared size was measured.
    uss_cpu_s: float = 0.0
    uss_rss: int = 0
    #: Resident size minus proportional size at that time; None if not measured yet.
    others_bytes: int | None = None

    def is_idle(self, now: float) -> bool:
        """Whether the process has used little CPU and memory since its unshared size was measured."""
        worked_s, grown = self.usage.cpu_s - self.uss_cpu_s, abs(self.usage.rss_bytes - self.uss_rss)
        return worked_s < IDLE_SHARE * (now - self.uss_at) and grown <= SAME_SIZE * self.uss_rss


def look_at(pid: int, files: KeptFiles) -> tuple[float, int]:
    """The CPU seconds and resident bytes of a process; raises OSError or psutil.Error if it is not accessible."""
    try:
        # A process name may contain spaces and parentheses.
        fields = files.read(_stat(pid)).rpartition(b")")[2].split()
        return (int(fields[_USER]) + int(fields[_SYSTEM])) * _TICK_S, int(fields[_RESIDENT]) * _PAGE
    except FileNotFoundError:
        process = psutil.Process(pid)  # not Linux, or no such process
        times = process.cpu_times()
        return times.user + times.system, process.memory_info().rss


def _stat(pid: int) -> str:
    return f"/proc/{pid}/stat"


def unshared(pid: int) -> tuple[int, int]:
    """The unshared and the proportional size of a process in bytes; raises psutil.Error if it is not accessible."""
    found = psutil.Process(pid).memory_full_info()
    return int(found.uss), int(getattr(found, "pss", found.uss))


class UsageMeter:
    """Measures the CPU and memory use of processes, and stores the last result for each process."""

    def __init__(
        self,
        interval_s: float,
        look: Callable[[int, KeptFiles], tuple[float, int]] = look_at,
        uss: Callable[[int], tuple[int, int]] = unshared,
    ) -> None:
        """`interval_s` is the interval between calls to `measure`."""
        self._interval_s = interval_s
        self._look = look
        self._uss = uss
        self._meters: dict[int, _Meter] = {}
        self._files = KeptFiles()
        self._measured_at = float("-inf")
        #: Whether, between the last two measurements, no process began, ended, grew, or did more than send reports.
        self.calm = False

    def measure(self, pids: Iterable[int], now: float) -> None:
        """Measure these processes, and discard the results of all others."""
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


def pressure_of(text: str) -> float | None:
    """The CPU pressure over the last ten seconds, from the content of /proc/pressure/cpu; None if unavailable."""
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
    """The total and the busy time of all cores, in ticks since the boot, from the content of /proc/stat."""
    words = text.split("\n", 1)[0].split()
    try:
        ticks = [int(word) for word in words[1:]][_ALL]
    except ValueError:
        return None
    if words[:1] != ["cpu"] or len(ticks) < 4:
        return None
    return sum(ticks), sum(ticks) - sum(ticks[_RESTING])


def memory_of(text: str) -> int | None:
    """The memory of the machine in bytes, from the content of /proc/meminfo."""
    words = text.split("\n", 1)[0].split()
    if words[:1] != ["MemTotal:"] or len(words) != 3 or not words[1].isdigit():
        return None
    return int(words[1]) * 1024


class HostMeter:
    """The CPU load of this machine from the processes of all users.

    Each measurement covers the time since the previous one.

    Sources: `/proc/pressure/cpu` ("some": the share of time in which at least one runnable process waited for a CPU;
    see accounting/psi of the kernel's documentation) and the first line of `/proc/stat`. Figures that the kernel does
    not report are unknown.
    """

    def __init__(self, proc: str | os.PathLike[str] = "/proc") -> None:
        self._proc = os.fspath(proc)
        self._files = KeptFiles()
        self._cores = os.cpu_count() or 1
        self._memory_bytes = memory_of(self._read("meminfo")) or 0
        self._times: tuple[int, int] | None = None
        self.usage = control_pb2.HostUsage(cores=self._cores, memory_bytes=self._memory_bytes)

    def measure(self) -> None:
        """Update `usage`; figures that cannot be read are omitted."""
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
