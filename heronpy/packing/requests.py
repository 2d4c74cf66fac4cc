"""What each container of a topology needs of its host, for whoever gives it room: never nothing. Pure.

A packing plan has the sizes that the topology asks for, and zero where it asks for none: then nothing limits the
packing. A request fills these with the sizes that the settings assume of a task, and it has a container 0, which no
plan has. Disk is the exception: it is requested where the topology asks for it alone, because many a cluster does not
account for it and has none to give.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from heronpy.common.units import MB, counted, format_bytes
from heronpy.packing.demand import padding_of
from heronpy.plan.component_config import config_of

if TYPE_CHECKING:
    from heronpy.common.setting_types import PackingSettings


class ResourceRequest(Struct, frozen=True):
    """Room for one container."""

    cpu: float
    """Cores."""
    ram_bytes: int
    disk_bytes: int
    """0: none is asked for."""

    def __add__(self, other: ResourceRequest) -> ResourceRequest:
        return ResourceRequest(
            self.cpu + other.cpu, self.ram_bytes + other.ram_bytes, self.disk_bytes + other.disk_bytes
        )


#: Container 0: an executor and the topology master with the metrics and history that it keeps.
MASTER = ResourceRequest(0.5, 512 * MB, 0)
#: What Spark's driver has besides the heap of its JVM: the share that Spark itself reserves for one, and the least.
_DRIVER_OVERHEAD = 0.1
_DRIVER_OVERHEAD_MIN_BYTES = 384 * MB
#: Sizes that a sentence names.
_SIZES_SHOWN = 4


def requests_of(
    plan: Any, topology: Any, settings: PackingSettings, spark_driver_bytes: int = 0
) -> dict[int, ResourceRequest]:
    """The request of each container by its number, container 0 included.

    `spark_driver_bytes` is the heap of the Spark driver in container 0; 0 without one.
    """
    padding, ram_padding = padding_of(config_of(topology), settings)
    factor = 1 + padding / 100
    found = {0: MASTER}
    if spark_driver_bytes:
        overhead = max(int(spark_driver_bytes * _DRIVER_OVERHEAD), _DRIVER_OVERHEAD_MIN_BYTES)
        found[0] += ResourceRequest(1.0, spark_driver_bytes + overhead, 0)
    for container in plan.containers:
        sizes = [instance.resource for instance in container.instances]
        needed = container.required
        cpu = _sum((size.cpu for size in sizes), settings.instance_cpu)
        ram = _sum((size.ram_bytes for size in sizes), settings.instance_ram_bytes)
        disk = _sum((size.disk_bytes for size in sizes), settings.instance_disk_bytes) if needed.disk_bytes else 0
        found[container.id] = ResourceRequest(
            needed.cpu if cpu is None else cpu * factor,
            needed.ram_bytes if ram is None else math.ceil(ram * factor) + ram_padding,
            needed.disk_bytes if disk is None else math.ceil(disk * factor),
        )
    return found


def _sum(sizes: Iterable[float], default: float) -> float | None:
    """The sum with the default for each size that is zero; None if none is, so that what the plan requires holds."""
    given = list(sizes)
    return None if given and all(given) else sum(size or default for size in given)


def room_text(requests: Mapping[int, ResourceRequest], engine: str) -> str:
    """What a submit asks for, and of whom, in words: each size of container, and the sum.

    `engine` is asked for it; without one, "", nobody is, and the sizes are what the packing reckons with.
    """
    total = sum(requests.values(), ResourceRequest(0.0, 0, 0))
    alike: dict[ResourceRequest, list[int]] = {}
    for number, one in sorted(requests.items()):
        alike.setdefault(one, []).append(number)
    sizes = [f"{_named(numbers)} with {_size(one)}{' each' if numbers[1:] else ''}" for one, numbers in alike.items()]
    more = [f"{counted(len(sizes) - _SIZES_SHOWN, 'other size')}"] if len(sizes) > _SIZES_SHOWN else []
    asked = f"{engine} is asked for" if engine else "nothing is reserved on this machine for"
    parts = ", ".join([*sizes[:_SIZES_SHOWN], *more])
    return f"{asked} {counted(len(requests), 'container')}: {parts}; {_size(total)} in all"


def _named(numbers: Sequence[int]) -> str:
    """container 0; containers 1 and 2; containers 1 to 40; 17 containers."""
    if len(numbers) == 1:
        return f"container {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"containers {numbers[0]} {'and' if len(numbers) == 2 else 'to'} {numbers[-1]}"
    return f"{len(numbers)} containers"


def _size(size: ResourceRequest) -> str:
    return size_text(size.cpu, size.ram_bytes, size.disk_bytes)


def size_text(cpu: float, ram_bytes: int, disk_bytes: int | None) -> str:
    """A size in words; without disk when that is 0, which asks for none, or None, not known."""
    if not disk_bytes:
        return f"{cpu:g} cores and {format_bytes(ram_bytes)} of memory"
    return f"{cpu:g} cores, {format_bytes(ram_bytes)} of memory and {format_bytes(disk_bytes)} of disk"


def asks(plan: Any) -> bool:
    """Whether the topology asks for room at all."""
    return any(one.required.cpu or one.required.ram_bytes or one.required.disk_bytes for one in plan.containers)
