"""Measures CPU, memory, wake-ups and system calls of all processes of a topology, by role.

The tree below the scheduler contains every process of a local topology: scheduler, fork servers,
executors, topology master, stream managers, tasks and the Spark gateway with its JVM. The last known
CPU of an ended process is kept, so totals never decrease.

The cost of a wake-up varies widely between machines, so wake-ups are counted in addition to CPU seconds. CPU
seconds of nearly idle processes are read in nanoseconds, because clock ticks of 10 ms are too coarse.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")

#: Number of processes, and their memory in bytes: uss, pss, rss.
Memory = Counter[str]

SCHEDULER, FORK_SERVERS, EXECUTORS = "scheduler", "fork servers", "executors"
TMASTER, STMGRS, SPARK, OTHER = "topology master", "stream managers", "spark gateway", "other"
_TITLES = (
    (re.compile(r"heron: fork-server"), FORK_SERVERS),
    (re.compile(r"heron: executor-\d+"), EXECUTORS),
    (re.compile(r"heron: tmaster"), TMASTER),
    (re.compile(r"heron: stmgr-\d+"), STMGRS),
    (re.compile(r"heron: spark|.*(heronpy\.spark|java)\b"), SPARK),
    (re.compile(r".*heronpy\.scheduler\b"), SCHEDULER),
)
_TASK = re.compile(r"heron: container_\d+_(.+)_\d+$")
_VOLUNTARY = re.compile(r"^voluntary_ctxt_switches:\s*(\d+)$", re.MULTILINE)

CALLS_EVENT = "raw_syscalls:sys_enter"
#: Seconds that perf may need to end after its time.
COUNTER_S = 10.0


def role_of(title: str) -> str:
    """Return the role of a process by its title; a task's role is its component."""
    title = title.strip("\0 ")
    task = _TASK.match(title)
    if task:
        return f"task {task[1]}"
    return next((role for pattern, role in _TITLES if pattern.match(title)), OTHER)


def is_data_path(role: str) -> bool:
    """Whether tuples pass through processes of this role."""
    return role == STMGRS or role.startswith("task ")


def name_of(title: str, role: str) -> str:
    """Return the name that distinguishes a process from other processes with its role."""
    text = title.strip("\0 ")
    return text.removeprefix("heron: ") if text.startswith("heron: ") else role


def voluntary_of(status: str) -> int | None:
    """Parse the voluntary context switches in a /proc/PID/task/TID/status file; return None if they are missing."""
    found = _VOLUNTARY.search(status)
    return int(found[1]) if found else None


def voluntary_by_thread(pid: int, proc: Path = Path("/proc")) -> dict[int, int]:
    """Return the voluntary context switches of each live thread of a process."""
    found = _by_thread(proc / str(pid) / "task", "status", voluntary_of)
    return {thread: count for thread, count in found.items() if count is not None}


def ran_by_thread(pid: int, proc: Path = Path("/proc")) -> dict[int, float]:
    """Return the CPU seconds of each live thread of a process for which the kernel reports them."""
    return _by_thread(proc / str(pid) / "task", "schedstat", lambda text: int(text.split()[0]) * 1e-9)


def _by_thread(folder: Path, name: str, value_of: Callable[[str], T]) -> dict[int, T]:
    found: dict[int, T] = {}
    with suppress(OSError):
        for thread in os.listdir(folder):
            with suppress(OSError, ValueError, IndexError):
                text = (folder / thread / name).read_text(encoding="utf-8", errors="replace")
                found[int(thread)] = value_of(text)
    return found


@dataclass(slots=True)
class Seen:
    process: psutil.Process
    name: str
    role: str
    cpu_s: float = 0.0
    #: Voluntary context switches of each thread, including ended threads.
    switches: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Tree:
    """A root process and all processes below it."""

    root: psutil.Process
    seen: dict[int, Seen] = field(default_factory=dict)
    #: CPU seconds of ended processes by role.
    gone: dict[str, float] = field(default_factory=dict)
    #: Voluntary context switches of ended processes.
    gone_switches: int = 0

    def refresh(self) -> None:
        """Find new processes."""
        found: list[psutil.Process] = []
        with suppress(psutil.Error):
            found = [self.root, *self.root.children(recursive=True)]
        for process in found:
            known = self.seen.get(process.pid)
            is_same = known is not None and known.process == process
            # A forked child sets its title shortly after the fork.
            if known is not None and is_same and known.role not in (OTHER, FORK_SERVERS):
                continue
            with suppress(psutil.Error):
                title = " ".join(process.cmdline())
                role = role_of(title)
                if known is not None and is_same:
                    known.name, known.role = name_of(title, role), role
                else:
                    self._bury(process.pid)
                    self.seen[process.pid] = Seen(process, name_of(title, role), role)

    def _bury(self, pid: int) -> None:
        old = self.seen.pop(pid, None)
        if old is not None:
            self.gone[old.role] = self.gone.get(old.role, 0.0) + old.cpu_s
            self.gone_switches += sum(old.switches.values())

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds so far by role."""
        for pid, one in list(self.seen.items()):
            try:
                times = one.process.cpu_times()
                one.cpu_s = times.user + times.system
            except psutil.Error:
                self._bury(pid)
        total = dict(self.gone)
        for one in self.seen.values():
            total[one.role] = total.get(one.role, 0.0) + one.cpu_s
        return total

    def ran(self) -> dict[str, float]:
        """Return the CPU seconds of all live threads so far by role, to the nanosecond."""
        total: dict[str, float] = {}
        for pid, one in self.seen.items():
            total[one.role] = total.get(one.role, 0.0) + sum(ran_by_thread(pid).values())
        return total

    def cpu_by_process(self) -> dict[str, float]:
        """Return the CPU seconds by process as of the last call to `cpu`."""
        return {one.name: one.cpu_s for one in self.seen.values()}

    def switches(self) -> int:
        """Return the voluntary context switches of all threads so far."""
        for pid, one in self.seen.items():
            one.switches.update(voluntary_by_thread(pid))
        return self.gone_switches + sum(sum(one.switches.values()) for one in self.seen.values())

    def memory(self, full: bool = True) -> dict[str, Memory]:
        """Return the memory by role; without `full` only resident sizes, which are cheaper to read."""
        total: dict[str, Memory] = {}
        for one in list(self.seen.values()):
            with suppress(psutil.Error):
                info = one.process.memory_full_info() if full else one.process.memory_info()
                sizes = {"processes": 1, "uss": 0, "pss": 0, "rss": 0}
                sizes |= {name: getattr(info, name, 0) for name in ("uss", "pss", "rss")}
                total.setdefault(one.role, Memory()).update(sizes)
        return total

    def descriptors(self) -> dict[str, list[int]]:
        """Return the number of open file descriptors of each process, by role."""
        found: dict[str, list[int]] = {}
        for one in list(self.seen.values()):
            with suppress(psutil.Error):
                found.setdefault(one.role, []).append(one.process.num_fds())
        return found


def cpu_s(processes: Iterable[psutil.Process]) -> float:
    """Return the CPU seconds of these processes so far."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def machine_busy_s() -> float:
    """Return the CPU seconds for which the whole machine was busy, including time that a hypervisor withheld."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


@dataclass(frozen=True, slots=True)
class Counted:
    """The number of system calls during some seconds, or the reason why it is missing."""

    calls: int = 0
    seconds: float = 0.0
    reason: str = ""

    @property
    def per_s(self) -> float | None:
        return None if self.reason or self.seconds <= 0 else self.calls / self.seconds


def parse_calls(report: str) -> int | None:
    """Parse the count in the output of `perf stat -x ,`; return None if it contains no count.

    The first field is the count, the third is the event. perf writes `<not counted>` for processes that never ran.
    """
    for line in report.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[2] == CALLS_EVENT:
            if fields[0] == "<not counted>":
                return 0
            return int(fields[0]) if fields[0].isdigit() else None
    return None


def no_counter() -> str:
    """Return why system calls cannot be counted on this machine; "" if perf is installed."""
    return "" if shutil.which("perf") else "perf is not installed"


class CallCounter:
    """Counts system calls with Linux's perf, for `seconds` seconds, beginning `after_s` from now.

    perf attaches before the first tuple and starts counting after a delay, so attaching does not affect the run. While
    perf counts, every system call costs a little more, so no other figure is measured in these seconds.
    """

    def __init__(self, pids: Sequence[int], after_s: float, seconds: float) -> None:
        self._seconds = seconds
        command = ["perf", "stat", "-x", ",", "-e", CALLS_EVENT, "-D", str(max(1, round(after_s * 1000))), "-p",
                   ",".join(map(str, pids)), "--log-fd", "1", "--", "sleep", f"{after_s + seconds:.3f}"]  # fmt: skip
        self._perf = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def result(self) -> Counted:
        """Wait for perf to end; return the count, or the reason why there is none."""
        try:
            said, _ = self._perf.communicate(timeout=COUNTER_S)
        except subprocess.TimeoutExpired:
            self.close()
            return Counted(reason="perf did not end in time")
        calls = parse_calls(said)
        if self._perf.returncode or calls is None:
            return Counted(reason="perf is not permitted to count: it needs root, or kernel.perf_event_paranoid=-1")
        return Counted(calls, self._seconds)

    def close(self) -> None:
        """Stop perf if it is still running."""
        # Interrupt perf so that it ends its child; kill perf if it does not react.
        self._perf.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._perf.wait(COUNTER_S)
        self._perf.kill()
        self._perf.communicate()
