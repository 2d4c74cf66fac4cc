"""One metric of several processes as one. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from heronpy.metrics.names import find
from heronpy.proto import control_pb2
from heronpy.views.quantiles import Quantile, quantile_in


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

    def quantile(self, part: float) -> Quantile | None:
        """The value at this quantile, or its bound; None when there are no observations."""
        each, passed = [], 0
        bounds = sorted(self.buckets)
        for bound in bounds:
            each.append(float(max(0, self.buckets[bound] - passed)))
            passed = max(passed, self.buckets[bound])
        if not bounds:
            return None
        return quantile_in([*bounds, inf], [*each, float(max(0, self.count - passed))], part, self.sum)
