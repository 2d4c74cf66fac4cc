"""The documents of a pool: its specification, the needs of its topologies, and the slot of each shard. Pure.

The name of a container determines its shard, which never changes. The map assigns each shard to a slot, so adding or
removing a topology does not change the map. Container 0, which runs the topology master, is in the shard of container
1. Each document has one writer, except `Pool`, whose writers use compare-and-set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from heronpy.common.errors import DamagedStateError

#: Number of shards for each slot that the pool had when it was created.
SHARDS_PER_SLOT: Final = 64
SLOTS_MAX: Final = 2000
#: Number of nodes among which the specifications are divided.
BUCKETS: Final = 64
#: Bits of an executor's epoch that count its starts in one process of a slot, and bits that count these processes.
STARTS_BITS: Final = 12
LIVES_BITS: Final = 4

#: Topology id and container.
Key: TypeAlias = tuple[str, int]
T = TypeVar("T")


class Size(Struct, frozen=True):
    """Cores and memory, as a capacity or as a load."""

    cpu: float = 0.0
    ram_bytes: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.cpu + other.cpu, self.ram_bytes + other.ram_bytes)

    def __sub__(self, other: Size) -> Size:
        return Size(self.cpu - other.cpu, self.ram_bytes - other.ram_bytes)

    def share_of(self, slot: Size) -> float:
        """Return the share of a slot's cores or of its memory, whichever is larger."""
        return max(self.cpu / slot.cpu, self.ram_bytes / slot.ram_bytes)


class Pool(Struct, frozen=True, forbid_unknown_fields=True):
    slots: int
    shards: int
    size: Size
    """The capacity of each slot."""
    drained: tuple[int, ...] = ()
    """Slots that must not have a shard."""
    members: dict[str, str] = {}
    """Names and ids of the topologies that run in the pool."""


class Spec(Struct, frozen=True, forbid_unknown_fields=True):
    """The information that a slot needs about a topology."""

    topology: str
    topology_id: str
    submitted: str
    """See `heronpy.plan.launch.Submitted`."""
    containers: dict[int, Size]
    restarts: dict[int, int] = {}
    """Map from container to the number of restarts that users have requested."""
    package_bytes: int = 0
    package_sha256: bytes = b""

    def loads(self, shards: int) -> dict[int, Size]:
        """Return the reservations of the topology's containers, by shard."""
        found: dict[int, Size] = {}
        for container, size in self.containers.items():
            shard = shard_of((self.topology_id, container), shards)
            found[shard] = found.get(shard, Size()) + size
        return found


class Owner(Struct, frozen=True, array_like=True):
    slot: int = 0
    """The slot that has the shard; 0 if none."""
    epoch: int = 0
    """Epoch of the slot's submission."""
    number: int = 0
    """Number of the map that assigned the shard to the slot, or asked the slot to drop it."""
    to: int = 0
    """The next slot of the shard, which the current slot must drop; 0 if the shard stays."""
    moved: bool = False
    """Whether the previous slot has dropped the shard on request; if so, no container was lost."""


class Map(Struct, frozen=True, forbid_unknown_fields=True):
    """The assignment of shards to slots."""

    number: int
    """Number of the map; each new map increases it by one."""
    owners: tuple[Owner, ...]
    buckets: tuple[int, ...] = (0,) * BUCKETS
    """Number of writes of each bucket of specifications."""


class Answer(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer of a slot to the newest map that it has carried out."""

    epoch: int
    number: int
    """Number of the map; the slot runs no container that this map does not assign to it."""
    records: dict[str, bytes] = {}
    """Map from `topology id/container` to the encoded proto ProcessRecord of the container's executor."""
    loads: dict[str, Size] = {}
    """Map from `topology id/container` to the used resources, for containers that were measured for long enough."""
    life: int = 0
    """Number of times that the slot has ended in this epoch and was restarted in place."""


class Run(Struct, frozen=True):
    """A container that a slot must run."""

    spec: Spec
    container: int
    number: int
    """Number of the map that assigned the container."""
    restarts: int
    moved: bool = False
    """See `Owner.moved`."""

    @property
    def ram_bytes(self) -> int:
        return self.spec.containers[self.container].ram_bytes

    def epoch(self, start: int, life: int = 0) -> int:
        """Compute an executor's epoch from the numbers of the map, the slot's process (`life`) and the `start`."""
        return (self.number << LIVES_BITS | life) << STARTS_BITS | start


@lru_cache(maxsize=1 << 16)
def shard_of(key: Key, shards: int) -> int:
    topology_id, container = key
    return int.from_bytes(hashlib.md5(f"{topology_id}/{max(container, 1)}".encode()).digest()) % shards


def bucket_of(topology_id: str) -> int:
    """Return the bucket of a topology's specification."""
    return int.from_bytes(hashlib.md5(topology_id.encode()).digest()) % BUCKETS


def name_of(key: Key) -> str:
    """Return the name of a container: `topology id/container`."""
    return f"{key[0]}/{key[1]}"


def runs_of(held: Map, specs: Iterable[Spec], slot: int, epoch: int) -> dict[Key, Run]:
    """Return the containers that a slot must run in this epoch."""
    found: dict[Key, Run] = {}
    for spec in specs:
        for container in spec.containers:
            key = spec.topology_id, container
            owner = held.owners[shard_of(key, len(held.owners))]
            if (owner.slot, owner.epoch, owner.to) == (slot, epoch, 0):
                found[key] = Run(spec, container, owner.number, spec.restarts.get(container, 0), owner.moved)
    return found


def loads_of(specs: Iterable[Spec], measured: Mapping[str, Size], shards: int) -> dict[int, Size]:
    """Return the loads by shard: measured loads, or the reservation where none was measured."""
    found: dict[int, Size] = {}
    for spec in specs:
        for container, size in spec.containers.items():
            key = spec.topology_id, container
            shard = shard_of(key, shards)
            found[shard] = found.get(shard, Size()) + measured.get(name_of(key), size)
    return found


def pack(document: Struct | tuple[Spec, ...]) -> bytes:
    """Encode a document for the state manager."""
    return msgspec.msgpack.encode(document)


def unpack(kind: type[T], content: bytes, what: str) -> T:
    """Decode the result of `pack`. Raises DamagedStateError if it is damaged or from another release."""
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise DamagedStateError(f"{what} is damaged, or from another release of heronpy: {error}") from None
