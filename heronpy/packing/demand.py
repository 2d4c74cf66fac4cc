"""The input of packing: components, the size of their instances, and the capacity of a container. Pure.

Sizes are (cpu, ram bytes, disk bytes). A dimension counts only if the topology requests it. An instance has the size
in its component map, else the default size if containers are limited in that dimension, else zero. Only configured
limits apply.

A request states the resources that a container needs on its host, and is never empty. A packing plan contains the sizes
that the topology requests, and zero for other dimensions, which do not limit the packing. A request replaces zeros with
the sizes that the settings assume for a task. Container 0, which no plan contains, also has a request. Disk is an
exception: it is requested only if the topology requests it, because many clusters do not account for disk space.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from heronpy.common.errors import ConfigError, TopologyError
from heronpy.common.nearest import did_you_mean
from heronpy.common.topology_keys import TOPOLOGY_COMPONENT_CPU, TOPOLOGY_COMPONENT_RAM
from heronpy.common.units import MB, counted, format_bytes, parse_bytes
from heronpy.plan.component_config import config_of
from heronpy.plan.logical import LogicalPlan

if TYPE_CHECKING:
    from heronpy.common.setting_types import PackingSettings


Size = tuple[float, int, int]
Limit = tuple[float | None, int | None, int | None]
DIMENSIONS = ("cpu", "ram", "disk")
ZERO: Size = (0.0, 0, 0)

_SORTING = ("RAM_FIRST", "CPU_FIRST")


class ComponentDemand(Struct, frozen=True):
    """A component to place: a number of instances of equal size."""

    name: str
    parallelism: int
    size: Size
    upstream: tuple[str, ...]
    #: Bytes of memory above which an instance is restarted; 0: the limit from the settings.
    memory_limit_bytes: int = 0


class Demand(Struct, frozen=True):
    """The input of a packing algorithm."""

    topology: str
    topology_id: str
    #: The components in the order of task ids: spouts first, then bolts, as defined.
    components: tuple[ComponentDemand, ...]
    #: The requested number of containers; None if any number will do.
    containers: int | None
    #: The number of containers in the topology's configuration.
    stmgrs: int
    #: The capacity of a container, including padding.
    limit: Limit
    #: The capacity for the instances of a container: the limit minus the padding.
    usable: Limit
    instances_max: int | None
    padding_percent: float
    ram_padding_bytes: int
    #: Dimensions whose requested amount is divided among instances without a configured size.
    shared: tuple[bool, bool, bool]
    #: Components with a configured size, by dimension.
    explicit: tuple[frozenset[str], frozenset[str], frozenset[str]]
    cpu_first: bool
    #: Percentage of the running tasks that a repacking may move if the number of containers stays the same.
    moves_percent: float

    @property
    def task_count(self) -> int:
        return sum(component.parallelism for component in self.components)

    def component(self, name: str) -> ComponentDemand | None:
        for component in self.components:
            if component.name == name:
                return component
        return None

    def required(self, used: Size) -> Size:
        """Return the capacity that a container needs for instances of this total size, with padding."""
        factor = 1 + self.padding_percent / 100
        raw = (used[0] * factor, math.ceil(used[1] * factor), math.ceil(used[2] * factor))
        if raw[1]:
            raw = (raw[0], raw[1] + self.ram_padding_bytes, raw[2])
        # If the instances respect the limit, rounding must not push the container over it.
        cpu, ram, disk = self.limit
        return (
            raw[0] if cpu is None else min(raw[0], cpu),
            raw[1] if ram is None else min(raw[1], ram),
            raw[2] if disk is None else min(raw[2], disk),
        )


def demand_of(topology: Any, settings: PackingSettings, containers: int | None, *, share_requested: bool) -> Demand:
    """Read the demand of a topology.

    With `share_requested` (algorithms with a fixed number of containers), the requested amount of a
    container is divided among instances without a size; otherwise they have the default size.
    """
    config = config_of(topology)
    plan = LogicalPlan.from_topology(topology)
    names = list(plan.components)
    maps = [_component_map(config, dimension, names) for dimension in DIMENSIONS]
    own = [_own_sizes(plan, key) for key in (TOPOLOGY_COMPONENT_CPU, TOPOLOGY_COMPONENT_RAM)]
    for of_map, of_component in zip(maps, own, strict=False):
        of_map |= of_component
    limits, shared = _limits(config, share_requested)
    padding, ram_padding = padding_of(config, settings)
    defaults: Size = (
        settings.instance_cpu,
        settings.instance_ram_bytes,
        settings.instance_disk_bytes,
    )
    counted = [limit is not None and not share for limit, share in zip(limits, shared, strict=True)]
    parts = []
    for name in names:
        size = [maps[i].get(name, defaults[i] if counted[i] else 0) for i in range(len(DIMENSIONS))]
        parts.append(
            ComponentDemand(
                name,
                _parallelism(plan, name),
                (float(size[0]), int(size[1]), int(size[2])),
                tuple(plan.upstream(name)),
                int(own[1].get(name, 0)),
            )
        )
    demand = Demand(
        topology=topology.name,
        topology_id=topology.id,
        components=tuple(parts),
        containers=_containers(containers),
        stmgrs=_whole(config, "topology.stmgrs", 1) or 1,
        limit=limits,
        usable=_usable(limits, padding, ram_padding),
        instances_max=_whole(config, "topology.container.max.num.instances", None),
        padding_percent=padding,
        ram_padding_bytes=ram_padding,
        shared=shared,
        explicit=(frozenset(maps[0]), frozenset(maps[1]), frozenset(maps[2])),
        cpu_first=_sorting(config),
        moves_percent=settings.moves_percent,
    )
    _check_instances(demand)
    return demand


def _parallelism(plan: LogicalPlan, name: str) -> int:
    count = plan.components[name].parallelism
    if count < 1:
        raise TopologyError(
            f"component '{name}' has no usable parallelism; "
            "set topology.component.parallelism to a whole number of 1 or more"
        )
    return count


def _containers(containers: int | None) -> int | None:
    if containers is not None and (isinstance(containers, bool) or containers < 1):
        raise ConfigError(f"the number of containers is {containers}; it must be 1 or more")
    return containers


def _component_map(config: Mapping[str, Any], dimension: str, names: list[str]) -> dict[str, float]:
    """Parse `topology.component.<dimension>map`: 'component:value,component:value'."""
    key = f"topology.component.{dimension}map"
    text = config.get(key)
    if text is None or text == "":
        return {}
    result: dict[str, float] = {}
    for pair in str(text).split(","):
        if not pair.strip():
            continue
        name, separator, value = pair.rpartition(":")
        name = name.strip()
        if not separator or not name:
            raise ConfigError(f"'{key}' has the entry '{pair.strip()}'; write component:value,component:value")
        if name not in names:
            raise ConfigError(
                f"'{key}' names the component '{name}', which the topology does not contain{did_you_mean(name, names)};"
                " remove the entry or correct the name"
            )
        if name in result:
            raise ConfigError(f"'{key}' names the component '{name}' twice; keep one entry")
        result[name] = _amount(f"{key} of '{name}'", value.strip(), dimension)
    return result


def _own_sizes(plan: LogicalPlan, key: str) -> dict[str, float]:
    """Return the nonzero sizes that this key sets in the configuration of the topology or of its components."""
    said = {name: part.config.get(key) or plan.config.get(key, 0) for name, part in plan.components.items()}
    read = parse_bytes if key == TOPOLOGY_COMPONENT_RAM else float
    return {name: size for name, value in said.items() if (size := read(value))}


def _amount(key: str, value: Any, dimension: str) -> float:
    if dimension != "cpu":
        try:
            amount: float = parse_bytes(value)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None
    else:
        try:
            amount = float(value)
        except (TypeError, ValueError):
            amount = math.nan
    if not 0 < amount < math.inf:
        raise ConfigError(f"{key} is '{value}'; it must be above 0")
    return amount


def _limits(config: Mapping[str, Any], share: bool) -> tuple[Limit, tuple[bool, bool, bool]]:
    found: list[float | None] = []
    shared: list[bool] = []
    for dimension in DIMENSIONS:
        requested_key = f"topology.container.{dimension}.requested"
        hint_key = f"topology.container.max.{dimension}.hint"
        requested, hint = (
            None if config.get(key) is None else _amount(key, config[key], dimension)
            for key in (requested_key, hint_key)
        )
        if requested is not None and hint is not None and requested > hint:
            raise ConfigError(f"'{requested_key}' is above '{hint_key}'; lower the former or raise the latter")
        # The instances of a container share its requested amount, so this amount limits them like the hint.
        found.append(requested if share and requested is not None else hint or requested)
        shared.append(share and requested is not None)
    cpu, ram, disk = found
    limits = (cpu, None if ram is None else int(ram), None if disk is None else int(disk))
    return limits, (shared[0], shared[1], shared[2])


def padding_of(config: Mapping[str, Any], settings: PackingSettings) -> tuple[float, int]:
    """Return the padding of a container: percent of its instances' sizes, and bytes of memory."""
    key = "topology.container.padding.percentage"
    percent = config.get(key, settings.container_padding_percent)
    if isinstance(percent, bool) or not isinstance(percent, (int, float)) or not 0 <= percent < math.inf:
        raise ConfigError(f"'{key}' is {percent!r}; it must be a number of 0 or more")
    ram = config.get("topology.container.ram.padding", 0)
    return float(percent), parse_bytes(ram)


def _usable(limits: Limit, padding: float, ram_padding: int) -> Limit:
    factor = 1 + padding / 100
    cpu, ram, disk = limits
    return (
        None if cpu is None else cpu / factor,
        None if ram is None else max(0, math.floor((ram - ram_padding) / factor)),
        None if disk is None else math.floor(disk / factor),
    )


def _whole(config: Mapping[str, Any], key: str, default: int | None) -> int | None:
    value = config.get(key, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"'{key}' is {value!r}; it must be a whole number of 1 or more")
    return value


def _sorting(config: Mapping[str, Any]) -> bool:
    key = "topology.packing.ffd.sorting.strategy"
    value = str(config.get(key, _SORTING[0]))
    if value.upper() not in _SORTING:
        raise ConfigError(f"'{key}' is '{value}'; it must be RAM_FIRST or CPU_FIRST")
    return value.upper() == _SORTING[1]


def _check_instances(demand: Demand) -> None:
    for component in demand.components:
        for i, dimension in enumerate(DIMENSIONS):
            room = demand.usable[i]
            if room is not None and component.size[i] > room * (1 + 1e-9):
                raise TopologyError(
                    f"instance 0 of component '{component.name}' needs "
                    f"{shown(dimension, component.size[i])} {dimension}, but a container has only "
                    f"{shown(dimension, room)} for its instances; lower "
                    f"topology.component.{dimension}map or raise "
                    f"topology.container.max.{dimension}.hint"
                )


def shown(dimension: str, amount: float) -> str:
    """Format an amount of a dimension with its unit."""
    return f"{amount:g}" if dimension == "cpu" else format_bytes(int(amount))


class ResourceRequest(Struct, frozen=True):
    """The resources that one container requests."""

    cpu: float
    """Cores."""
    ram_bytes: int
    disk_bytes: int
    """Bytes of disk; 0 if no disk is requested."""

    def __add__(self, other: ResourceRequest) -> ResourceRequest:
        return ResourceRequest(
            self.cpu + other.cpu, self.ram_bytes + other.ram_bytes, self.disk_bytes + other.disk_bytes
        )


#: Assumed size of container 0: an executor, and the topology master with its metrics and history.
MASTER = ResourceRequest(0.5, 512 * MB, 0)
#: Memory of Spark's driver beyond its JVM's heap, as Spark reserves it: share of the heap, and minimum bytes.
_DRIVER_OVERHEAD = 0.1
_DRIVER_OVERHEAD_MIN_BYTES = 384 * MB
#: Maximum number of sizes that a sentence names.
_SIZES_SHOWN = 4


def requests_of(
    plan: Any, topology: Any, settings: PackingSettings, spark_driver_bytes: int = 0
) -> dict[int, ResourceRequest]:
    """Return the request of each container by its number, including container 0.

    `spark_driver_bytes` is the heap of the Spark driver in container 0; 0 if there is no driver.
    """
    padding, ram_padding = padding_of(config_of(topology), settings)
    factor = 1 + padding / 100
    # The slots of a pool run no tasks of this plan and no topology master, so the request of each slot is its
    # size in the plan.
    is_pool = bool(plan.containers) and not any(container.instances for container in plan.containers)
    found = {} if is_pool else {0: MASTER}
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
    """Sum the sizes, with `default` for each zero; None if no size is zero, so that the plan's requirement applies."""
    given = list(sizes)
    return None if all(given) else sum(size or default for size in given)


def room_text(requests: Mapping[int, ResourceRequest], engine: str) -> str:
    """Describe the resources to request from the engine: the size of each container, and the sum.

    If `engine` is empty, no resources are requested, and the text describes the sizes that the packing assumes.
    """
    total = sum(requests.values(), ResourceRequest(0.0, 0, 0))
    alike: dict[ResourceRequest, list[int]] = {}
    for number, one in sorted(requests.items()):
        alike.setdefault(one, []).append(number)
    sizes = [f"{_named(numbers)} with {_size(one)}{' each' if numbers[1:] else ''}" for one, numbers in alike.items()]
    more = [f"{counted(len(sizes) - _SIZES_SHOWN, 'other size')}"] if len(sizes) > _SIZES_SHOWN else []
    asked = f"{engine} must provide" if engine else "nothing is reserved on this machine for"
    parts = ", ".join([*sizes[:_SIZES_SHOWN], *more])
    return f"{asked} {counted(len(requests), 'container')}: {parts}; {_size(total)} in total"


def _named(numbers: Sequence[int]) -> str:
    """Describe containers, such as `container 0`, `containers 1 and 2`, `containers 1 to 40` or `17 containers`."""
    if len(numbers) == 1:
        return f"container {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"containers {numbers[0]} {'and' if len(numbers) == 2 else 'to'} {numbers[-1]}"
    return f"{len(numbers)} containers"


def _size(size: ResourceRequest) -> str:
    return size_text(size.cpu, size.ram_bytes, size.disk_bytes)


def size_text(cpu: float, ram_bytes: int, disk_bytes: int | None) -> str:
    """Format a size; disk is omitted if it is 0 (not requested) or None (unknown)."""
    if not disk_bytes:
        return f"{cpu:g} cores and {format_bytes(ram_bytes)} of memory"
    return f"{cpu:g} cores, {format_bytes(ram_bytes)} of memory and {format_bytes(disk_bytes)} of disk"


def asks(plan: Any) -> bool:
    """Whether the topology requests any resources."""
    return any(one.required.cpu or one.required.ram_bytes or one.required.disk_bytes for one in plan.containers)
