"""The scheduler's side of leases: which process may act for a container, and the scheduler's permit. Pure.

`heronpy.engines.lease` describes leases. Before it records a new activation, a scheduler proves that its permit, an
ephemeral node, is still the node that it created. This proves that no container was told in the meantime that no
scheduler exists.
"""

from __future__ import annotations

from heronpy.common.errors import ConfigError
from heronpy.engines.lease import Fencing, LeaseTimes


def fencing_of(asked: str, mode: str, state_at_endpoint: bool) -> Fencing:
    """The fencing of a topology: `asked` is auto, lease, epoch or confirmation, and `mode` is the reliability mode.

    With `state_at_endpoint`, containers reach the state manager through the scheduler. They lose both together, so they
    cannot ask whether a scheduler exists. Raises ConfigError if the guarantee of `mode` could not be kept.
    """
    known = {"auto", *(fencing.value for fencing in Fencing)}
    if asked not in known:
        raise ConfigError(f"fencing {asked!r} is unknown; use one of {', '.join(sorted(known))}")
    if asked == "lease" and state_at_endpoint:
        raise ConfigError(
            "fencing 'lease' needs a state manager that containers can access without the scheduler;"
            " set heron.statemgr.type to zookeeper, or use fencing 'auto'"
        )
    if asked == "epoch" and mode == "ATMOST_ONCE":
        raise ConfigError(
            "fencing 'epoch' lets a lost container keep running, so ATMOST_ONCE could deliver a tuple twice;"
            " use fencing 'auto', or another reliability mode"
        )
    if asked != "auto":
        return Fencing(asked)
    if state_at_endpoint:
        return Fencing.CONFIRMATION if mode == "ATMOST_ONCE" else Fencing.EPOCH
    return Fencing.EPOCH if mode == "EFFECTIVELY_ONCE" else Fencing.LEASE


class Grants:
    """The leases of all containers. `since`, from `LeaseTimes.silence_from`, is when silence begins to count."""

    def __init__(self, times: LeaseTimes, fencing: Fencing, since: float) -> None:
        self._times = times
        self._fencing = fencing
        self._since = since
        #: By container: when the submission that may act last sent a request. Without an entry, no submission may act.
        self._heard: dict[int, float] = {}

    def hold(self, container: int, now: float) -> None:
        """Record that a submission may now act for the container, or has just sent a request."""
        self._heard[container] = max(now, self._heard.get(container, now))

    def release(self, container: int) -> None:
        """Record that no process acts for the container, because it was stopped or its end is confirmed."""
        self._heard.pop(container, None)

    def is_free(self, container: int, now: float) -> bool:
        """Whether a successor may be activated."""
        free_at = self.free_at(container)
        return free_at is not None and now >= free_at

    def free_at(self, container: int) -> float | None:
        """When a successor may be activated if no further request arrives; None if the end must be confirmed first."""
        if container not in self._heard:
            return 0.0
        if self._fencing is Fencing.CONFIRMATION:
            return None
        return max(self._heard[container], self._since) + self._times.lost_s


class Permit:
    """One scheduler's right to grant leases, counted from the time of the last request that proved the permit.

    `alone` means that all earlier schedulers are known to have ended. A scheduler records `is_alone` in its permit's
    node, so that a successor can determine whether schedulers before this one may still be running.
    """

    def __init__(self, times: LeaseTimes, taken_at: float, alone: bool) -> None:
        self._permit_s = times.permit_s
        self._proved_at = self._taken_at = taken_at
        self._alone = alone

    def proved(self, asked_at: float) -> None:
        """Record that the state manager has confirmed the permit; `asked_at` is when the request was sent."""
        self._proved_at = max(self._proved_at, asked_at)

    def may_grant(self, received_at: float) -> bool:
        """Whether a container's request may be granted; `received_at` is when it arrived."""
        return received_at < self._proved_at + self._permit_s

    def is_alone(self, now: float) -> bool:
        """Whether no earlier scheduler can still grant a lease."""
        return self._alone or now >= self._taken_at + self._permit_s
