"""CPU and memory of all processes of a topology, by role.

The tree below the scheduler holds every process of a local topology: scheduler, fork servers,
executors, topology master, stream managers, tasks and the Spark gateway with its JVM. An ended process
keeps its last known CPU, so totals never decrease.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import psutil

from heronpy.loadtest.wakeups import ran_by_thread, voluntary_by_thread

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


def role_of(title: str) -> tuple[str, bool]:
    """Role of a process by its title, and whether it is on the data path.

    A task's role is its component.
    """
    title = title.strip("\0 ")
    task = _TASK.match(title)
    if task:
        return f"task {task[1]}", True
    for pattern, role in _TITLES:
        if pattern.match(title):
            return role, role == STMGRS
    return OTHER, False


def name_of(title: str, role: str) -> str:
    """What distinguishes a process from others of its role."""
    text = title.strip("\0 ")
    return text.removeprefix("heron: ") if text.startswith("heron: ") else role


@dataclass(slots=True)
class Seen:
    """One process."""

    process: psutil.Process
    name: str
    role: str
    data_path: bool
    cpu_s: float = 0.0
    #: Voluntary context switches of each thread; those of ended threads stay.
    switches: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Memory:
    """Memory of the processes of one role, in bytes."""

    processes: int = 0
    uss: int = 0
    pss: int = 0
    rss: int = 0

    def add(self, uss: int, pss: int, rss: int) -> None:
        self.processes += 1
        self.uss += uss
        self.pss += pss
        self.rss += rss


@dataclass(slots=True)
class Tree:
    """The processes below and including a root."""

    root: psutil.Process
    seen: dict[int, Seen] = field(default_factory=dict)
    #: CPU of processes that ended, by role.
    gone: dict[str, float] = field(default_factory=dict)
    #: Voluntary context switches of processes that ended.
    gone_switches: int = 0

    def refresh(self) -> None:
        """Find new processes."""
        try:
            found = [self.root, *self.root.children(recursive=True)]
        except psutil.Error:
            found = []
        for process in found:
            known = self.seen.get(process.pid)
            if known is not None and known.process == process and known.role not in (OTHER, FORK_SERVERS):
                continue
            try:
                # A forked child gets its title a moment later.
                title = " ".join(process.cmdline())
                role, data_path = role_of(title)
            except psutil.Error:
                continue
            if known is not None and known.process == process:
                known.name, known.role, known.data_path = name_of(title, role), role, data_path
            else:
                self._bury(process.pid)
                self.seen[process.pid] = Seen(process, name_of(title, role), role, data_path)

    def _bury(self, pid: int) -> None:
        old = self.seen.pop(pid, None)
        if old is not None:
            self.gone[old.role] = self.gone.get(old.role, 0.0) + old.cpu_s
            self.gone_switches += sum(old.switches.values())

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by role."""
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
        """CPU seconds of all living threads so far, by role, to the nanosecond."""
        total: dict[str, float] = {}
        for pid, one in self.seen.items():
            total[one.role] = total.get(one.role, 0.0) + sum(ran_by_thread(pid).values())
        return total

    def cpu_by_process(self) -> dict[str, float]:
        """CPU seconds by process, as of the last call of `cpu`."""
        return {one.name: one.cpu_s for one in self.seen.values()}

    def switches(self) -> int:
        """Voluntary context switches so far, of all threads."""
        for pid, one in self.seen.items():
            one.switches.update(voluntary_by_thread(pid))
        return self.gone_switches + sum(sum(one.switches.values()) for one in self.seen.values())

    def memory(self, full: bool = True) -> dict[str, Memory]:
        """Memory by role; without `full` only resident sizes, which are cheaper to read."""
        total: dict[str, Memory] = {}
        for one in list(self.seen.values()):
            try:
                if full:
                    info = one.process.memory_full_info()
                    total.setdefault(one.role, Memory()).add(info.uss, info.pss, info.rss)
                else:
                    total.setdefault(one.role, Memory()).add(0, 0, one.process.memory_info().rss)
            except psutil.Error:
                continue
        return total

    def descriptors(self) -> dict[str, list[int]]:
        """Open file descriptors of each process, by role."""
        found: dict[str, list[int]] = {}
        for one in list(self.seen.values()):
            try:
                found.setdefault(one.role, []).append(one.process.num_fds())
            except psutil.Error:
                continue
        return found

    def data_path_roles(self) -> set[str]:
        """Roles that tuples pass through."""
        return {one.role for one in self.seen.values() if one.data_path} | {
            role for role in self.gone if role == STMGRS or role.startswith("task ")
        }


def machine_busy_s() -> float:
    """CPU seconds during which the whole machine was busy, or that its host withheld."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))
