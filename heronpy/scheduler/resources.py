"""Checks, before a topology starts, whether this host has enough resources for all its containers.

The check runs on the containers' host. The sums are upper estimates of the runtime's files and processes. An error
contains them, so that the user sees which resource is insufficient. All processes of a local topology share one host.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
from dataclasses import dataclass
from pathlib import Path

from heronpy.common.errors import ConfigError
from heronpy.common.ids import stmgr_id
from heronpy.common.setting_types import ExecutorSettings, SecuritySettings, SparkSettings
from heronpy.common.settings import settings_for
from heronpy.common.units import counted, format_bytes
from heronpy.connectors.spark.requirements import check_master, check_spark
from heronpy.net.addresses import page_host
from heronpy.net.transport import check_address
from heronpy.plan.launch import LaunchSpec
from heronpy.procs.cgroups import memory_max_bytes, pids_left
from heronpy.procs.linux import FDS_PER_LINK, FDS_PER_PROCESS, number_in
from heronpy.proto import plan_pb2

# The needs of the runtime's processes, measured and rounded up.
THREADS_PER_PROCESS = 6
RAM_PER_PROCESS = 16 << 20
PORT_MAX = 65535


@dataclass(frozen=True, slots=True)
class Limits:
    """The host's limits; None means no limit."""

    fds: int | None
    threads: int | None
    ram_bytes: int | None
    """Free memory."""
    ram_all_bytes: int | None = None
    """Total memory, including used memory."""


@dataclass(frozen=True, slots=True)
class Need:
    """A packing plan's resource requirements on one host."""

    tasks: int
    containers: int
    processes: int
    fds: int
    """File descriptors that the largest process needs."""
    fds_of: str

    @property
    def threads(self) -> int:
        return self.processes * THREADS_PER_PROCESS

    @property
    def ram_bytes(self) -> int:
        return self.processes * RAM_PER_PROCESS


def need_of(plan: plan_pb2.PackingPlan) -> Need:
    """The sum of a packing plan's requirements."""
    containers = len(plan.containers)
    sizes = {container.id: len(container.instances) for container in plan.containers}
    tasks = sum(sizes.values())
    largest = max(sizes, key=lambda number: sizes[number], default=0)
    candidates = {
        stmgr_id(largest): FDS_PER_PROCESS + FDS_PER_LINK * (sizes.get(largest, 0) + containers),
        "tmaster": FDS_PER_PROCESS + FDS_PER_LINK * 2 * containers,
    }
    biggest = max(candidates, key=lambda name: candidates[name])
    # scheduler, container 0 (executor, tmaster), and executor, fork server and stmgr per container.
    return Need(tasks, containers, 3 + 3 * containers + tasks, candidates[biggest], biggest)


def limits_of_host() -> Limits:
    """The limits that apply to this process's user and control group."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    threads = []
    if os.getuid() != 0:  # the kernel does not count the processes of root
        processes = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        if processes != resource.RLIM_INFINITY:
            threads.append(processes)
    pid_max = number_in(Path("/proc/sys/kernel/pid_max"))
    if pid_max is not None:
        threads.append(pid_max)
    group = pids_left()
    if group is not None:
        threads.append(group)
    fds = None if hard == resource.RLIM_INFINITY else hard
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Limits(fds, min(threads, default=None), _ram_bytes(), min(installed, memory_max_bytes() or installed))


def _ram_bytes() -> int | None:
    """The free memory in bytes of this host or of this process's control group, whichever has less."""
    found = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) << 10)
    except (OSError, ValueError):
        pass
    most = number_in(Path("/sys/fs/cgroup/memory.max"))
    used = number_in(Path("/sys/fs/cgroup/memory.current"))
    cached = 0
    try:
        for line in Path("/sys/fs/cgroup/memory.stat").read_text().splitlines():
            if line.startswith(("inactive_file ", "active_file ")):
                cached += int(line.split()[1])
    except (OSError, ValueError):
        pass
    if most is not None and used is not None:
        found.append(most - used + cached)
    return min(found, default=None)


def check_host(plan: plan_pb2.PackingPlan, launch: LaunchSpec) -> None:
    """Raise ConfigError, with one sentence for the user, if this host is too small for all containers of a plan."""
    limits = limits_of_host()
    check_asked(plan, limits)
    check(plan, limits)
    executor = settings_for(launch, ExecutorSettings)
    security = settings_for(launch, SecuritySettings)
    # On one host, the value "host" means the address on which all processes listen.
    check_ports(plan, page_host(executor.metrics_host, "", security.bind_host), executor.metrics_port)
    check_address(security)
    if launch.needs_spark:
        spark = settings_for(launch, SparkSettings)
        check_spark(spark.master)
        check_master(spark.master)
        if spark.handover:
            from heronpy.connectors.spark.records import check_handover

            check_handover(spark.handover)


def check_asked(plan: plan_pb2.PackingPlan, limits: Limits) -> None:
    """Raise ConfigError if the topology requests more memory than this host has; default sizes are not counted."""
    asked = {container.id: container.required.ram_bytes for container in plan.containers}
    total = sum(asked.values())
    if limits.ram_all_bytes is None or total <= limits.ram_all_bytes:
        return
    largest = max(asked, key=lambda number: asked[number])
    raise ConfigError(
        f"{counted(len(asked), 'container')} request {format_bytes(total)} of memory"
        f" ({format_bytes(asked[largest])} for container {largest} alone), but this host has"
        f" {format_bytes(limits.ram_all_bytes)}; lower topology.component.rammap, topology.container.ram.requested or"
        " topology.container.max.ram.hint"
    )


def check(plan: plan_pb2.PackingPlan, limits: Limits) -> None:
    """Raise ConfigError with the calculation if the topology needs more than the limits."""
    need = need_of(plan)
    total = (
        f"{counted(need.tasks, 'task')} in {counted(need.containers, 'container')} need {need.processes} processes with"
        f" {need.threads} threads, at least {format_bytes(need.ram_bytes)} of memory,"
        f" and {need.fds} file descriptors in {need.fds_of}"
    )
    if limits.fds is not None and need.fds > limits.fds:
        raise ConfigError(
            f"{total}, but a process may open {limits.fds} files; raise 'ulimit -n' or use more containers"
        )
    if limits.threads is not None and need.threads > limits.threads:
        raise ConfigError(
            f"{total}, but only {limits.threads} threads may run on this host; raise 'ulimit -u' or the group's"
            " pids.max, or lower the parallelism",
        )
    if limits.ram_bytes is not None and need.ram_bytes > limits.ram_bytes:
        raise ConfigError(
            f"{total}, but only {format_bytes(limits.ram_bytes)} of memory is free; lower the parallelism"
        )


def check_ports(plan: plan_pb2.PackingPlan, host: str, base: int) -> None:
    """Raise ConfigError if the port configured for a container's metrics page cannot be used."""
    if not base:
        return
    for number in (0, *(container.id for container in plan.containers)):
        port, family = base + number, socket.AF_INET6 if ":" in host else socket.AF_INET
        if port > PORT_MAX:
            raise ConfigError(
                f"port {port} for the metrics page of container {number} does not exist;"
                f" set heron.executor.metrics_port to {PORT_MAX - number} or less, or to 0",
            )
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                reason = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
                raise ConfigError(
                    f"port {port} of {host} for the metrics page of container {number} {reason};"
                    " set heron.executor.metrics_port to free ports or to 0",
                ) from None
