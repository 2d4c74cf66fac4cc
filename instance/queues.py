"""Capacities that tune themselves: Heron's rule, which Heron never had in Python. Pure.

Every `sample_s` the length of a queue is sampled into an exponential moving average that gives the
newest sample most of the weight. While the average is above the expected length the capacity is
halved, down to one; below it, it grows by a fixed small step, up to the maximum. A smaller capacity
throws nothing away: it withholds credit until the queue has drained. Pure: `now` is given.
"""

from __future__ import annotations

#: The capacity regrows from one to its maximum in this many samples (6.4 s at 100 ms).
GROWTH_STEPS = 64


class TunedCapacity:
    """Capacity of one queue, in tuples.

    `current` is always within [1, maximum].
    """

    __slots__ = ("average", "current", "due", "expected", "maximum", "sample_s", "step", "weight")

    def __init__(self, expected: int, maximum: int, weight: float, sample_s: float) -> None:
        self.expected = max(1, min(expected, maximum))
        self.maximum = maximum
        self.weight = weight
        self.sample_s = sample_s
        self.step = max(1, maximum // GROWTH_STEPS)
        #: Half the maximum at first, as Heron starts.
        self.current = max(1, maximum // 2)
        self.average = 0.0
        self.due = 0.0

    def sample(self, length: int, now: float) -> bool:
        """Take a sample when one is due; True when the capacity changed."""
        if now < self.due:
            return False
        self.due = now + self.sample_s
        self.average = self.weight * length + (1.0 - self.weight) * self.average
        before = self.current
        if self.average > self.expected:
            self.current = max(1, before // 2)
        else:
            self.current = min(self.maximum, before + self.step)
        return self.current != before
