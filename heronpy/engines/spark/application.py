"""Requests to Spark: an application's properties and size, and the containers that share it. Pure.

The executors of an application are equal, and each runs one task. Containers that start together therefore share an
application whose executors fit the largest container. An application never grows: later containers get a new
application.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heronpy.common.errors import ConfigError
from heronpy.engines.contract import Request

_MIB = 1 << 20
#: With less memory, Spark refuses to start an executor.
MEMORY_MIN_BYTES = 512 * _MIB
#: Minimum timeout, in seconds. A JVM may be silent for a shorter time while it collects garbage.
SILENT_MIN_S = 30.0
#: Heap of an executor's JVM, if the memory of its container is counted separately.
HEAP = "512m"
_STANDALONE = re.compile(r"spark://[^\s/]+")
_OTHER = re.compile(r"yarn|k8s://\S+")
_AMOUNT = re.compile(r"[1-9]\d*[kmgtKMGT]?")
#: Properties that decide what runs, and how often; each has a setting, or is set only by heronpy.
OWNED: Mapping[str, str] = {
    "spark.master": "spark_engine.master", "spark.executor.cores": "spark_engine.cores",
    "spark.executor.memory": "spark_engine.memory_bytes", "spark.executor.memoryOverhead": "spark_engine.memory_bytes",
    "spark.driver.memory": "spark_engine.driver_memory", "spark.pyspark.python": "engine.python",
    "spark.network.timeout": "engine.lost_s", "spark.network.timeoutInterval": "engine.lost_s",
    "spark.executor.heartbeatInterval": "engine.lost_s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "engine.lost_s",
    "spark.driver.host": "security.network", "spark.driver.bindAddress": "security.network",
    "spark.driver.port": "security.port_range", "spark.driver.blockManager.port": "security.port_range",
    "spark.port.maxRetries": "security.port_range", "spark.app.name": "", "spark.submit.deployMode": "",
    "spark.task.cpus": "", "spark.task.maxFailures": "", "spark.stage.maxConsecutiveAttempts": "",
    "spark.speculation": "", "spark.dynamicAllocation.enabled": "", "spark.cores.max": "",
    "spark.executor.instances": "", "spark.job.interruptOnCancel": "", "spark.scheduler.mode": "",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """An operator's settings for a cluster; raises ConfigError for a missing or contradictory setting."""

    master: str
    #: Cores of each executor; 0: as requested by its largest container.
    cores: int = 0
    memory_bytes: int = 0
    driver_memory: str = HEAP
    conf: Mapping[str, Any] = field(default_factory=dict)
    python: str = ""
    #: An executor that is silent for this time, in seconds, counts as lost.
    lost_s: float = 60.0

    def __post_init__(self) -> None:
        if not self.master:
            raise ConfigError("heron.spark_engine.master is empty; set it to the cluster's master, spark://HOST:PORT")
        if not _STANDALONE.fullmatch(self.master) and not _OTHER.fullmatch(self.master):
            raise ConfigError(
                f"heron.spark_engine.master is {self.master!r}, which provides no executors on other hosts; use"
                " spark://HOST:PORT, yarn or k8s://URL"
            )
        if 0 < self.memory_bytes < MEMORY_MIN_BYTES:
            raise ConfigError(
                f"heron.spark_engine.memory_bytes is {self.memory_bytes}, but a Spark executor needs at least"
                f" {MEMORY_MIN_BYTES}"
            )
        if not _AMOUNT.fullmatch(self.driver_memory):
            raise ConfigError(
                f"heron.spark_engine.driver_memory is {self.driver_memory!r} but must be a size such as 512m"
            )
        for name in self.conf:
            if name in OWNED:
                setting = OWNED[name]
                fix = f"use heron.{setting}" if setting else "remove it: heronpy sets it itself"
                raise ConfigError(f"heron.spark_engine.conf contains {name}, which is not allowed there; {fix}")

    @property
    def is_standalone(self) -> bool:
        """Whether the master belongs to Spark's standalone cluster manager."""
        return self.master.startswith("spark://")

    @property
    def masters(self) -> list[str]:
        """The addresses (host:port) of the masters of Spark's standalone cluster manager."""
        if not self.is_standalone:
            return []
        return [place if ":" in place else f"{place}:7077" for place in self.master[len("spark://") :].split(",")]


@dataclass(frozen=True, slots=True)
class Size:
    """The size of an application: the number of executors, and each executor's resources."""

    slots: int
    cores: int
    memory_bytes: int


def size_of(requests: Sequence[Request], options: SparkOptions) -> Size:
    """The size of an application for containers that start together, with cores rounded up to an integer."""
    cores = options.cores or max(1, *(math.ceil(one.cpu) for one in requests))
    memory = options.memory_bytes or max(MEMORY_MIN_BYTES, *(one.ram_bytes for one in requests))
    return Size(len({one.container for one in requests}), cores, memory)


def properties_of(
    topology_id: str, options: SparkOptions, size: Size, address: str, ports: range | None
) -> dict[str, str]:
    """All Spark properties of an application whose executors run one task each, without retries."""
    silent_s = max(SILENT_MIN_S, options.lost_s)
    memory, cores = f"{math.ceil(size.memory_bytes / _MIB)}m", str(size.cores)
    found = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.locality.wait": "0",
        "spark.decommission.enabled": "false",
        "spark.excludeOnFailure.enabled": "false",
        **{str(name): _text(value) for name, value in options.conf.items()},
        "spark.app.name": f"heron {topology_id}",
        "spark.master": options.master,
        "spark.submit.deployMode": "client",
        "spark.driver.memory": options.driver_memory,
        "spark.executor.cores": cores,
        # A task takes all cores of its executor.
        "spark.task.cpus": cores,
        # Running a container twice at the same time would be worse than not running it: only the scheduler starts
        # another one.
        "spark.task.maxFailures": "1",
        "spark.stage.maxConsecutiveAttempts": "1",
        "spark.speculation": "false",
        "spark.dynamicAllocation.enabled": "false",
        "spark.job.interruptOnCancel": "false",
        "spark.scheduler.mode": "FIFO",
        "spark.network.timeout": f"{round(silent_s)}s",
        "spark.executor.heartbeatInterval": f"{round(silent_s * 1000 / 6)}ms",
        # How often the driver checks. The default, a minute, must not be longer than the timeout.
        "spark.network.timeoutInterval": f"{round(silent_s * 1000 / 6)}ms",
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
    }
    if options.is_standalone:
        # The worker reserves this memory, but nothing limits it: the container is outside of the executor's heap.
        found |= {"spark.executor.memory": memory, "spark.cores.max": str(size.slots * size.cores)}
    else:
        found |= {"spark.executor.memory": HEAP, "spark.executor.memoryOverhead": memory}
        found |= {"spark.executor.instances": str(size.slots)}
    if options.python:
        found["spark.pyspark.python"] = options.python
    if ports is not None:
        # Spark takes the next free port.
        first = str(ports[0])
        found |= {"spark.driver.port": first, "spark.driver.blockManager.port": first}
        found["spark.port.maxRetries"] = str(len(ports) - 1)
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def placed(requests: Sequence[Request], owned: Sequence[Collection[int]]) -> tuple[list[list[Request]], list[Request]]:
    """Assign each request to the living application that owns its container; the other requests need a new application.

    `owned` lists the containers of each living application. Returns the requests for each application, and the rest.
    """
    by_application: list[list[Request]] = [[] for _ in owned]
    rest: list[Request] = []
    for one in requests:
        at = next((index for index, containers in enumerate(owned) if one.container in containers), None)
        (rest if at is None else by_application[at]).append(one)
    return by_application, rest
