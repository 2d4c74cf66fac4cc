"""How far another host's monotonic clock is from this one's, from round trips. Pure.

A question is sent, the other side answers with its time, the answer is heard: its time was somewhere between the two.
The middle is assumed, and half of the round trip is how wrong that may be. As NTP's clock filter does (RFC 5905), of
the samples of the last minute the most exact one is used; an older one is less exact, because clocks drift.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

#: How long a sample counts, and how many are kept.
KEPT_NS: Final = 60_000_000_000
SAMPLES_MAX: Final = 16
#: How fast two clocks may drift apart, seconds per second: twice what NTP assumes of one, as there are two.
DRIFT: Final = 30e-6


class Offset(Struct, frozen=True):
    """Nanoseconds. `offset`, added to a time of this clock, gives one of the other; it is wrong by at most `error`."""

    offset: int
    error: int

    def aged(self, age_ns: int) -> Offset:
        """As it is so much later."""
        return Offset(self.offset, self.error + int(max(0, age_ns) * DRIFT))


def offset_of(sent_ns: int, at_ns: int, heard_ns: int) -> Offset:
    """Of one round trip; `at_ns` is of the other clock."""
    trip = max(0, heard_ns - sent_ns)
    return Offset(at_ns - (sent_ns + trip // 2), trip // 2 + 1)


class ClockFilter:
    """The samples of one other clock. Invariant: at most `SAMPLES_MAX`."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Offset]] = deque(maxlen=SAMPLES_MAX)

    def __len__(self) -> int:
        return len(self._samples)

    def take(self, sent_ns: int, at_ns: int, heard_ns: int) -> None:
        """Take a round trip; see `offset_of`."""
        self._samples.append((heard_ns, offset_of(sent_ns, at_ns, heard_ns)))

    def best(self, now_ns: int) -> Offset | None:
        """What is known now; None without a sample of the last minute."""
        while self._samples and now_ns - self._samples[0][0] > KEPT_NS:
            self._samples.popleft()
        aged = (offset.aged(now_ns - heard_ns) for heard_ns, offset in self._samples)
        return min(aged, key=lambda one: one.error, default=None)

    def clear(self) -> None:
        """The other clock is another one now."""
        self._samples.clear()
