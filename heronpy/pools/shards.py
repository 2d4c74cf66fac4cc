"""The documents of a pool: its specification, the needs of its topologies, and the slot of each shard. Pure.

The name of a container determines its shard, which never changes; the map assigns a shard to a slot. So a topology that
comes or goes changes no table. Container 0, the topology master's, is in the shard of container 1. Each document has
one writer, except `Pool`: its writers compare and set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from heronpy.common.errors import DamagedStateError

#: Of each slot that a pool was created with.
SHARDS_PER_SLOT: Final = 64
SLOTS_MAX: Final = 2000
#: Nodes that the specifications are divided among.
BUCKETS: Final = 64
#: Bits of an executor's epoch that count its starts in one process of a slot, and those that count these processes.
STARTS_BITS: Final = 12
LIVES_BITS: Final = 4

#: Topology id and container.
Key: TypeAlias = tuple[str, int]
T = TypeVar("T")


class Size(Struct, frozen=True):
    """Room, or a load."""

    cpu: float = 0.0
    ram_bytes: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.cpu + other.cpu, self.ram_bytes + other.ram_bytes)

    def __sub__(self, other: Size) -> Size:
        return Size(self.cpu - other.cpu, self.ram_bytes - other.ram_bytes)

    def share_of(self, slot: Size) -> float:
        """The share of a slot, in the dimension with the larger share."""
        return max(self.cpu / slot.cpu, self.ram_bytes / slot.ram_bytes)


class Pool(Struct, frozen=True, forbid_unknown_fields=True):
    """The specification of a pool."""

    slots: int
    shards: int
    size: Size
    """Of each slot."""
    drained: tuple[int, ...] = ()
    """Slots that are to have no shard."""
    members: dict[str, str] = {}
    """The topologies that run in it, with their ids."""


class Spec(Struct, frozen=True, forbid_unknown_fields=True):
    """A slot's information about a topology."""

    topology: str
    topology_id: str
    submitted: str
    """See `heronpy.plan.launch.Submitted`."""
    containers: dict[int, Size]
    restarts: dict[int, int] = {}
    """How often a user has asked for the restart of a container."""
    package_bytes: int = 0
    package_sha256: bytes = b""

    def loads(self, shards: int) -> dict[int, Size]:
        """The reservations of its containers, by shard."""
        found: dict[int, Size] = {}
        for container, size in self.containers.items():
            shard = shard_of((self.topology_id, container), shards)
            found[shard] = found.get(shard, Size()) + size
        return found


class Owner(Struct, frozen=True, array_like=True):
    """Who has a shard."""

    slot: int = 0
    """0: nobody."""
    epoch: int = 0
    """Of the slot's submission."""
    number: int = 0
    """Of the map that gave it the shard, or told it to drop it."""
    to: int = 0
    """The slot is to drop the shard, which this one gets then; 0: it stays."""


class Map(Struct, frozen=True, forbid_unknown_fields=True):
    """Which slot has which shard."""

    number: int
    """It grows by one with each map."""
    owners: tuple[Owner, ...]
    buckets: tuple[int, ...] = (0,) * BUCKETS
    """How often each bucket of specifications was written."""


class Answer(Struct, frozen=True, forbid_unknown_fields=True):
    """What a slot says."""

    epoch: int
    number: int
    """Of the newest map that it has carried out: nothing runs in it that this map does not give it."""
    records: dict[str, bytes] = {}
    """`topology id/container` to its executor (proto ProcessRecord)."""
    loads: dict[str, Size] = {}
    """The same to what it has used, where that was measured for long enough."""


class Run(Struct, frozen=True):
    """A container that a slot is to run."""

    spec: Spec
    container: int
    number: int
    """Of the map that gave it."""
    restarts: int

    @property
    def ram_bytes(self) -> int:
        """What it asks for."""
        return self.spec.containers[self.container].ram_bytes

    def epoch(self, start: int, life: int = 0) -> int:
        """The epoch of its executor at this start in this process of its slot; it needs no request."""
        return (self.number << LIVES_BITS | life) << STARTS_BITS | start


@lru_cache(maxsize=1 << 16)
def shard_of(key: Key, shards: int) -> int:
    """The shard of a container."""
    topology_id, container = key
    return int.from_bytes(hashlib.md5(f"{topology_id}/{max(container, 1)}".encode()).digest()) % shards


def bucket_of(topology_id: str) -> int:
    """The bucket of a topology's specification."""
    return int.from_bytes(hashlib.md5(topology_id.encode()).digest()) % BUCKETS


def name_of(key: Key) -> str:
    """`topology id/container`"""
    return f"{key[0]}/{key[1]}"


def runs_of(held: Map, specs: Iterable[Spec], slot: int, epoch: int) -> dict[Key, Run]:
    """The containers that a slot must run in this epoch."""
    found: dict[Key, Run] = {}
    for spec in specs:
        for container in spec.containers:
            key = spec.topology_id, container
            owner = held.owners[shard_of(key, len(held.owners))]
            if (owner.slot, owner.epoch, owner.to) == (slot, epoch, 0):
                found[key] = Run(spec, container, owner.number, spec.restarts.get(container, 0))
    return found


def loads_of(specs: Iterable[Spec], measured: Mapping[str, Size], shards: int) -> dict[int, Size]:
    """The load of each shard that has one: the measured load, otherwise the reserved one."""
    found: dict[int, Size] = {}
    for spec in specs:
        for container, size in spec.containers.items():
            key = spec.topology_id, container
            shard = shard_of(key, shards)
            found[shard] = found.get(shard, Size()) + measured.get(name_of(key), size)
    return found


def pack(document: Struct | tuple[Spec, ...]) -> bytes:
    """As it is stored."""
    return msgspec.msgpack.encode(document)


def unpack(kind: type[T], content: bytes, what: str) -> T:
    """Read `pack`; DamagedStateError when it is damaged or of another release."""
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise DamagedStateError(f"{what} is damaged, or from another release of heronpy: {error}") from None
