"""The input of a verification: every tuple is a function of (seed, partition, sequence number).

Source, sink and verifier share only this module and the seed, so the verifier can recompute all tuples.
Invariant: the scalar and the vector functions agree.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from heronpy.common.errors import ConfigError

T = TypeVar("T", bound="InputSpec")
Vector = npt.NDArray[np.uint64]
#: (partition, sequence number, key, payload, checksum)
Values = tuple[int, int, str, bytes, int]

#: Configuration key of the specification, for source and sink.
KEY = "heronpy.verify"
MODES = ("ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE")

_MASK = (1 << 64) - 1
_GAMMA, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
#: Bits of the hash that decide whether a tuple belongs to a share.
_SHARE_BITS = 20
#: Maximum number of sequence numbers hashed at a time; bounds the verifier's memory.
CHUNK = 1 << 18
#: One tuple in this number is poison, if there is poison.
POISON_STEP = 250
_LEAST = {
    "partitions": 1, "count": 0, "keys": 1, "payload_bytes": 8, "rate": 0, "zipf": 0, "poison": 0, "undecodable": 0,
    "distinct": 0, "work_ms": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class InputSpec:
    """The specification of the source's tuples, from which a verifier recomputes them."""

    seed: int = 1
    partitions: int = 2
    count: int = 10_000
    """Number of tuples in each partition; with 0, the verifier ends the input later."""
    keys: int = 100
    payload_bytes: int = 100
    hot_share: float = 0.0
    """Share of the tuples that get key 0; all other tuples are distributed over all keys."""
    zipf: float = 0.0
    """Zipf exponent of the key frequencies; 0 means uniform."""
    rate: float = 0.0
    """Tuples per second in each partition, counted from the first start; 0 means as fast as possible."""
    poison: int = 0
    """Number of poison tuples in each partition: no sink may see them, and all other tuples must arrive."""
    undecodable: int = 0
    """Number of tuples in each partition with a value that can be sent but not decoded; they count as poison."""
    distinct: int = 0
    """Number of different tuple contents, each repeated many times; 0 makes every tuple unique."""
    work_ms: float = 0.0
    """Milliseconds for which the bolt of the built-in topology waits at each tuple."""
    ordered: bool = True
    """Whether tuples with the same key stay in order, as they do with fields grouping by key on the whole path."""

    def check(self: T) -> T:
        """Return the specification. Raises ConfigError if it is invalid."""
        for name, low in _LEAST.items():
            if getattr(self, name) < low:
                raise ConfigError(f"{name} of a verification must be at least {low}, not {getattr(self, name)}")
        if not self.count and not self.rate:
            raise ConfigError("a verification without a count needs a rate, so that its input can be ended")
        if not 0 <= self.hot_share <= 1:
            raise ConfigError(f"hot_share of a verification must be from 0 to 1, not {self.hot_share}")
        if (self.poison > 0) + (self.undecodable > 0) + (self.distinct > 0) > 1:
            raise ConfigError("poison, undecodable and distinct of a verification exclude each other; give only one")
        return self

    def config(self, out: str) -> dict[str, Any]:
        """Return the configuration of a source or sink that keeps its records in the folder `out`."""
        return {KEY: {**asdict(self), "out": str(out)}}

    @property
    def expected(self) -> int:
        """Number of tuples that must arrive, over all partitions."""
        return self.partitions * (self.count - len(self.poisonous()))

    def poisonous(self) -> range:
        """Return the sequence numbers of poison tuples, which are the same in each partition."""
        return range(POISON_STEP - 1, min(self.count, POISON_STEP * (self.poison or self.undecodable)), POISON_STEP)

    def poisoned(self, seq: int) -> bool:
        """Whether a sequence number is poison, even in an endless input."""
        return seq % POISON_STEP == POISON_STEP - 1 and seq // POISON_STEP < (self.poison or self.undecodable)

    @property
    def in_order(self) -> bool:
        """Whether the order can be checked; equal tuples have no known order."""
        return self.ordered and not self.distinct


def spec_of(values: dict[str, Any]) -> InputSpec:
    """Return the specification contained in a larger dictionary, such as a task's configuration."""
    names = {field.name for field in fields(InputSpec)}
    return InputSpec(**{name: value for name, value in values.items() if name in names}).check()


def key_text(number: int) -> str:
    return f"k{number:06d}"


def _base(seed: int, partition: int) -> int:
    return _mix((seed & _MASK) ^ _mix(partition + 1))


def _mix(value: int) -> int:
    value = (value + _GAMMA) & _MASK
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


@lru_cache(maxsize=16)
def _steps(keys: int, zipf: float) -> tuple[int, ...]:
    """Return the upper end of each key's range of 32-bit hashes; bisection finds the key of a hash."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -zipf
    ends = np.cumsum(weights) / weights.sum() * (1 << 32)
    return tuple(int(end) for end in ends[:-1])


class Partition:
    def __init__(self, spec: InputSpec, number: int) -> None:
        self.spec = spec
        self.number = number
        self._base = _base(spec.seed, number)
        self._hot = int(spec.hot_share * (1 << _SHARE_BITS))
        self._steps = _steps(spec.keys, spec.zipf) if spec.zipf else ()
        self._first = Partition(spec, 0) if number else self

    def hash(self, seq: int) -> int:
        """Return the hash that determines all values of a tuple."""
        return _mix(self._base ^ seq)

    def key(self, hashed: int) -> int:
        if self._hot and hashed >> (64 - _SHARE_BITS) < self._hot:
            return 0
        low = hashed & 0xFFFFFFFF
        return bisect_right(self._steps, low) if self._steps else low % self.spec.keys

    def payload(self, hashed: int) -> bytes:
        size = self.spec.payload_bytes
        return (hashed.to_bytes(8, "little") * (size // 8 + 1))[:size]

    def tuple(self, seq: int) -> Values:
        """Return (partition, seq, key, payload, crc); with `distinct`, the values of a tuple in partition 0."""
        if self.spec.distinct:
            return self._first.whole(self.hash(seq) % self.spec.distinct)
        return self.whole(seq)

    def whole(self, seq: int) -> Values:
        """Return the values of a tuple in an input whose tuples all differ."""
        hashed = self.hash(seq)
        payload = self.payload(hashed)
        return self.number, seq, key_text(self.key(hashed)), payload, zlib.crc32(payload)

    def hashes(self, seqs: Vector) -> Vector:
        with np.errstate(over="ignore"):
            value = (np.uint64(self._base) ^ seqs) + np.uint64(_GAMMA)
            value = (value ^ (value >> np.uint64(30))) * np.uint64(_MIX_1)
            value = (value ^ (value >> np.uint64(27))) * np.uint64(_MIX_2)
            return value ^ (value >> np.uint64(31))

    def keys(self, hashed: Vector) -> npt.NDArray[np.int64]:
        low = hashed & np.uint64(0xFFFFFFFF)
        if self._steps:
            keys = np.searchsorted(np.array(self._steps, dtype=np.uint64), low, side="right").astype(np.int64)
        else:
            keys = (low % np.uint64(self.spec.keys)).astype(np.int64)
        if self._hot:
            keys[(hashed >> np.uint64(64 - _SHARE_BITS)) < np.uint64(self._hot)] = 0
        return keys

    def crcs(self, hashed: Vector) -> npt.NDArray[np.uint32]:
        """Return the checksums of these tuples, computed one by one, because crc32 has no vector form."""
        return np.fromiter((zlib.crc32(self.payload(int(one))) for one in hashed), dtype=np.uint32, count=len(hashed))


@dataclass(frozen=True, slots=True)
class Totals:
    """Per key: the number of tuples, and the sum of their checksums."""

    counts: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]

    def wrong(self, other: Totals) -> npt.NDArray[np.int64]:
        """Return the keys whose count or sum differs."""
        found: npt.NDArray[np.int64] = np.flatnonzero((self.counts != other.counts) | (self.sums != other.sums))
        return found


def totals_of(spec: InputSpec, keys: npt.NDArray[np.int64], crcs: npt.NDArray[np.uint32]) -> Totals:
    counts = np.bincount(keys, minlength=spec.keys).astype(np.int64)
    sums = np.zeros(spec.keys, dtype=np.int64)
    np.add.at(sums, keys, crcs.astype(np.int64))
    return Totals(counts, sums)


def expected_contents(spec: InputSpec) -> npt.NDArray[np.int64]:
    """Return how many tuples of the input have each of the `distinct` contents."""
    counts = np.zeros(spec.distinct, dtype=np.int64)
    for number in range(spec.partitions):
        partition = Partition(spec, number)
        for first in range(0, spec.count, CHUNK):
            hashed = partition.hashes(np.arange(first, min(first + CHUNK, spec.count), dtype=np.uint64))
            counts += np.bincount((hashed % np.uint64(spec.distinct)).astype(np.int64), minlength=spec.distinct)
    return counts


def contents_totals(spec: InputSpec, counts: npt.NDArray[np.int64]) -> Totals:
    """Return the aggregates of an input that contains the tuple with content n `counts[n]` times."""
    partition = Partition(spec, 0)
    hashed = partition.hashes(np.arange(spec.distinct, dtype=np.uint64))
    keys, crcs = partition.keys(hashed), partition.crcs(hashed)
    return totals_of(spec, np.repeat(keys, counts), np.repeat(crcs, counts))


def expected_totals(spec: InputSpec) -> Totals:
    """Return the aggregates of the whole input."""
    if spec.distinct:
        return contents_totals(spec, expected_contents(spec))
    counts, sums = np.zeros(spec.keys, dtype=np.int64), np.zeros(spec.keys, dtype=np.int64)
    for number in range(spec.partitions):
        partition = Partition(spec, number)
        for first in range(0, spec.count, CHUNK):
            seqs = np.arange(first, min(first + CHUNK, spec.count), dtype=np.uint64)
            hashed = partition.hashes(np.setdiff1d(seqs, np.array(spec.poisonous(), dtype=np.uint64)))
            part = totals_of(spec, partition.keys(hashed), partition.crcs(hashed))
            counts += part.counts
            sums += part.sums
    return Totals(counts, sums)
