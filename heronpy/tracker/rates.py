"""How many requests an asker may send: a token bucket for each (pure).

A page asks for a dozen things at once when it is opened, and then for a few per second; a program that asks without a
pause would take the tracker from everybody else. Who is refused anyway has a small bucket by address, so guessing
tokens is slow. Invariant: at most `ASKERS_MAX` buckets; the one that was used least lately goes, mostly a full one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

#: What one asker may send in the long run, per second, unless the tracker is told otherwise.
REQUESTS_PER_S: Final = 100.0
#: So many seconds of it may be sent at once: several tabs that are opened together.
BURST_S: Final = 5.0
#: Of one address, refused requests.
REFUSED_PER_S: Final = 5.0
REFUSED_BURST: Final = 100.0
ASKERS_MAX: Final = 1024


class Rates:
    """Requests per asker. `now` is in seconds and never goes back."""

    def __init__(self, per_s: float, burst: float) -> None:
        """`per_s` of 0: no limit."""
        self._per_s, self._burst = per_s, max(1.0, burst)
        #: What is left, and since when.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        #: Requests that had to wait.
        self.limited = 0

    def __len__(self) -> int:
        return len(self._left)

    def take(self, asker: str, now: float) -> float:
        """0 if the request may be answered now; else seconds after which one may."""
        if not self._per_s:
            return 0.0
        left, at = self._left.pop(asker, (self._burst, now))
        left = min(self._burst, left + max(0.0, now - at) * self._per_s)
        waits = 0.0
        if left >= 1.0:
            left -= 1.0
        else:
            waits = (1.0 - left) / self._per_s
            self.limited += 1
        self._left[asker] = left, now
        if len(self._left) > ASKERS_MAX:
            self._left.popitem(last=False)
        return waits
