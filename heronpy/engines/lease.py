"""A container's right to act: the lease as the container computes it, and the time limits of all leases. Pure.

A container whose host no longer answers may still be running. The successor is activated once the container can do no
harm:

- `LEASE`: the container requests a grant every `renew_s`. If no grant arrives within `fence_s` after it *sent* the last
  granted request, it stops its tasks, which takes up to `stop_grace_s`. The scheduler waits for `lost_s`, which is
  longer, after it *received* the last request. Only durations are compared, not clocks. Both sides use CLOCK_BOOTTIME,
  so that suspended time counts as well.
- `EPOCH`: the container keeps running; after `lost_s` its successor gets a higher epoch, and messages from the old
  container are refused.
- `CONFIRMATION`: the container gets no successor until the engine or a user has confirmed that it has ended.

If the state manager answers that no scheduler exists, the answer counts as a grant from the time of the request, so
losing a scheduler stops no container. The scheduler's side is `heronpy.scheduler.leases`.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from msgspec import Struct

from heronpy.common.errors import ConfigError

#: How much faster one host's clock may run than another's.
CLOCK_DRIFT = 0.001
#: Number of open requests per container; answers to older requests are ignored.
REQUESTS_MAX = 64


class Fencing(Enum):
    """How a container that may still be running is prevented from acting."""

    LEASE = "lease"
    EPOCH = "epoch"
    CONFIRMATION = "confirmation"


class LeaseTimes(Struct, frozen=True):
    """The time limits of all leases, in seconds; raises ConfigError unless they are consistent."""

    renew_s: float = 5.0
    fence_s: float = 40.0
    lost_s: float = 60.0
    stop_grace_s: float = 3.0
    #: How long after the last proof of its permit a scheduler may grant leases.
    permit_s: float = 600.0

    def __post_init__(self) -> None:
        if self.renew_s <= 0 or self.stop_grace_s < 0:
            raise ConfigError(
                f"renew_s is {self.renew_s:g} and stop_grace_s is {self.stop_grace_s:g}; use positive times"
            )
        if self.fence_s <= 2 * self.renew_s:
            raise ConfigError(
                f"fence_s is {self.fence_s:g}, which is too short for one lost renewal; it must be more than twice"
                f" renew_s ({self.renew_s:g})"
            )
        stopped_s = (self.fence_s + self.stop_grace_s) * (1 + CLOCK_DRIFT)
        if stopped_s >= self.lost_s:
            raise ConfigError(
                f"lost_s is {self.lost_s:g}, but a container without a grant may act for up to {stopped_s:.3g} s"
                f" (fence_s {self.fence_s:g} and a stop grace of {self.stop_grace_s:g}); raise lost_s or lower fence_s"
            )
        if self.permit_s < self.lost_s:
            raise ConfigError(f"permit_s is {self.permit_s:g} but must be at least lost_s ({self.lost_s:g})")

    def silence_from(self, now: float, alone: bool) -> float:
        """The time until which an earlier scheduler may still grant leases, if this one gets the permit to grant now.

        `alone` means that all earlier schedulers are confirmed to have ended.
        """
        return now if alone else now + self.permit_s


class Lease:
    """One container's right to act, as the container itself computes it."""

    def __init__(self, times: LeaseTimes, fencing: Fencing) -> None:
        self._times = times
        self._fencing = fencing
        self._sent: deque[tuple[int, float]] = deque(maxlen=REQUESTS_MAX)
        self._number = 0
        #: The epoch in which it acts; 0 if it does not act.
        self.epoch = 0
        #: The highest epoch in which it has acted and stopped.
        self.stopped = 0
        #: It has to stop at this time unless it gets a grant.
        self.until = 0.0

    def ask(self, now: float) -> int:
        """The number for a request that is now being sent to the scheduler or the state manager."""
        self._number += 1
        self._sent.append((self._number, now))
        return self._number

    def granted(self, number: int, now: float) -> None:
        """Record that the answer to a request was a grant, or that no scheduler exists."""
        sent = self._sent_at(number)
        if sent is not None and self.epoch:
            self.until = max(self.until, sent + self._times.fence_s)

    def activated(self, number: int, epoch: int, now: float) -> bool:
        """Record that the answer to a request was an activation; returns False if it came too late to be used."""
        sent = self._sent_at(number)
        if sent is None or now - sent >= self._times.fence_s or epoch <= max(self.epoch, self.stopped):
            return False
        self.epoch, self.until = epoch, sent + self._times.fence_s
        return True

    def stop(self) -> None:
        """Record that the container's tasks have stopped."""
        self.epoch, self.stopped = 0, max(self.epoch, self.stopped)

    def is_over(self, now: float) -> bool:
        """Whether the container's tasks have to stop now."""
        return self._fencing is Fencing.LEASE and self.epoch > 0 and now >= self.until

    def is_in_doubt(self, now: float) -> bool:
        """Whether half of the lease has expired; if so, ask the state manager whether a scheduler exists."""
        return self._fencing is Fencing.LEASE and self.epoch > 0 and now >= self.until - self._times.fence_s / 2

    def _sent_at(self, number: int) -> float | None:
        return next((sent for known, sent in self._sent if known == number), None)
