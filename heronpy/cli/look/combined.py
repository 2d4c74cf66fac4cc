"""One metric of several processes as one (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field

from heronpy.metrics.names import find
from heronpy.proto import control_pb2


@dataclass(slots=True)
class Combined:
    """One metric of one owner, over all its processes."""

    owner: str
    name: str
    label: str
    type: int
    value: float = 0.0
    sum: float = 0.0
    count: int = 0
    buckets: dict[float, int] = field(default_factory=dict)

    def add(self, sample: control_pb2.Sample) -> None:
        found = find(self.name)
        if found is not None and found[0].largest:
            self.value = max(self.value, sample.value)
        else:
            self.value += sample.value
        self.sum += sample.sum
        self.count += sample.count
        for bucket in sample.buckets:
            self.buckets[bucket.le] = self.buckets.get(bucket.le, 0) + bucket.count

    def quantile(self, part: float) -> float | None:
        """Upper bound of the bucket at this quantile; None when there are no observations."""
        if not self.buckets or not self.count:
            return None
        wanted = part * self.count
        for le in sorted(self.buckets):
            if self.buckets[le] >= wanted:
                return le
        return float("inf")
