"""Facts about the containers of a topology, for placement decisions and for queries. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from heronpy.engines.lease import Fencing, LeaseTimes
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.restart_policy import RestartLimits
from heronpy.scheduler.avoided_hosts import Avoided, AvoidedHosts
from heronpy.scheduler.leases import Grants
from heronpy.scheduler.placement_events import Cause, ContainerView, Entry, Ledger, Phase
from heronpy.scheduler.submissions import Container, Submission

#: Length limit of the sentence on why a container was started again.
CAUSE_MAX_CHARS = 400
#: The restart limits for ends by external commands: the third end within five minutes is final.
CANCELLED = RestartLimits(backoff_s=0.2, budget=2, window_s=300.0, budgets={ExitReason.KILLED: 2})


@dataclass(frozen=True, slots=True)
class PlacementLimits:
    """The time limits of placement, in seconds."""

    restart: RestartLimits = field(default_factory=RestartLimits)
    #: Time for a container to end by itself, once its successor stands by or a user has requested its restart.
    leave_s: float = 30.0
    #: Maximum time from the start of a container on its host to its hello.
    start_s: float = 120.0
    #: How long a host that lost a container gets no containers.
    avoid_s: float = 600.0
    #: How long a container waits until the hosts of the containers that it avoids are known.
    apart_wait_s: float = 0.0
    #: How long a container waits in the queue for a host without the containers that it avoids, before it accepts any
    #: host.
    apart_queue_s: float = 60.0


class PlacementFacts:
    """The containers, their submissions, and the hosts that get no containers."""

    def __init__(
        self,
        topology_id: str,
        limits: PlacementLimits,
        times: LeaseTimes,
        fencing: Fencing,
        now: float,
        ledger: Ledger | None = None,
        alone: bool = True,
        hosts: Iterable[Avoided] = (),
    ) -> None:
        self._topology_id = topology_id
        self._limits = limits
        self._times = times
        self._grants = Grants(times, fencing, times.silence_from(now, alone))
        self._fencing = fencing
        self._containers: dict[int, Container] = {}
        self._avoided = AvoidedHosts(limits.avoid_s, hosts)
        self._planned = self._listed = self._changed = False
        self._asked_at = float("-inf")
        #: Hosts that accept containers according to the last list, among those that queued submissions avoid.
        self._ready: frozenset[str] = frozenset()
        #: When the engine stopped answering; None if it answers.
        self.away_since: float | None = None
        self.away_why = ""
        self._killed_at: float | None = None
        self._kill_grace_s = 0.0
        self._gone = False
        self._awake_since = self._last_now = now
        for number, entry in (ledger or {}).items():
            container = self._containers[number] = Container.of(number, entry, limits.restart, CANCELLED)
            for known in {entry.holder, entry.submitted} - {0}:
                container.submissions[known] = Submission(known, since=now)
            if entry.holder:
                container.submissions[entry.holder].moving = bool(entry.moves_from)
                self._grants.hold(number, now)

    # ---- queries ----------------------------------------------------------------------------
    @property
    def ledger(self) -> Ledger:
        """The ledger: the records that a successor of this scheduler needs."""
        known = sorted(self._containers.items())
        return {number: container.entry for number, container in known if container.entry != Entry()}

    def views(self) -> list[ContainerView]:
        """The containers that should be running or may still be running, sorted by number."""
        return [
            container.view(self._fencing)
            for _, container in sorted(self._containers.items())
            if container.spec is not None or container.submissions
        ]

    def entry_of(self, container: int) -> Entry | None:
        """The ledger's entry for a container; None if the container is neither planned nor in an earlier ledger."""
        found = self._containers.get(container)
        return found.entry if found is not None else None

    def slot(self, container: int, now: float) -> tuple[int, int, bool]:
        """The epoch in which a container acts (0 if none), its highest ended epoch, and whether it may still act."""
        found = self._containers.get(container)
        if found is None:
            return 0, 0, False
        epoch, holder = found.entry.epoch, found.holder
        if self._grants.is_free(container, now):
            return 0, epoch, False
        phase = holder.phase if holder is not None else Phase.LEAVING
        acts = phase in (Phase.RUNNING, Phase.STANDBY)
        return epoch if acts else 0, epoch - 1, phase is Phase.UNCONFIRMED

    def submissions_of(self, container: int) -> list[int]:
        """The submissions of a container that may still exist."""
        found = self._containers.get(container)
        return sorted(found.submissions) if found is not None else []

    def has_stopped(self, container: int, submission: int) -> bool:
        """Whether a submission that has acted has reported that all its processes have ended."""
        found = self._containers.get(container)
        return found is not None and found.last_word == submission

    @property
    def has_listed(self) -> bool:
        """Whether the engine has sent a list, so that the hosts of containers are known."""
        return self._planned and self._listed

    @property
    def draining(self) -> dict[str, str]:
        """Map from each host that is being drained to the user who requested the drain."""
        return self._avoided.draining()

    def avoided(self, now: float) -> tuple[Avoided, ...]:
        """The hosts that get no containers, and why."""
        return self._avoided.known(now)

    @property
    def is_killed(self) -> bool:
        """Whether all containers must end."""
        return self._killed_at is not None

    def left(self) -> tuple[str, ...]:
        """Descriptions of the submissions that may still exist."""
        return tuple(text for _, container in sorted(self._containers.items()) for text in container.named())

    def validate(self) -> None:
        """Raise AssertionError if an invariant does not hold."""
        for container in self._containers.values():
            numbers, entry = container.submissions, container.entry
            assert entry.holder <= entry.submitted, f"{container.number} is held by a submission that was never made"
            assert all(0 < number <= entry.submitted for number in numbers)
            assert not set(numbers) & set(container.ended), "an ended submission is known as alive"
            acting = [number for number, one in numbers.items() if one.epoch and number == entry.holder]
            assert len(acting) <= 1
            if container.stays is not None and container.stays.heard_at is not None:
                others = [one for one in container.successors() if one.number != entry.holder]
                assert not others, f"duplicates of container {container.number} are not cancelled: {others}"

    # ---- for the decisions -------------------------------------------------------------------
    def _is_wanted(self, container: Container) -> bool:
        return container.spec is not None and self._killed_at is None

    def _known(self, container: Container, number: int, now: float) -> Submission:
        """The submission with this number; adopts a submission that only the engine has listed."""
        if number > container.entry.submitted:
            # The state manager has lost the record of this submission, whose number must not be used again.
            self._write(container, submitted=number)
        return container.submissions.setdefault(number, Submission(number, since=now))

    def _write(self, container: Container, **changes: Any) -> None:
        entry = replace(container.entry, **changes)
        self._changed = self._changed or entry != container.entry
        container.entry = entry

    def _blame(self, container: Container, number: int, reason: ExitReason, text: str) -> None:
        """Record why the acting submission will be replaced."""
        if number and number == container.entry.holder:
            self._write(container, cause=Cause(reason, text[:CAUSE_MAX_CHARS]))

    def _waits_for_hosts(self, container: Container, now: float) -> bool:
        """Whether a container must wait because the hosts to avoid are not known yet."""
        if container.spec is None or container.entry.submitted:
            return False
        # Of two containers that avoid each other, the first does not wait.
        before = [self._containers.get(other) for other in container.spec.apart_from if other < container.number]
        unknown = [one for one in before if one is not None and not one.failed and not self._hosts_of((one.number,))]
        container.apart_since = (container.apart_since or now) if unknown else None
        return bool(unknown) and now - (container.apart_since or now) < self._limits.apart_wait_s

    def _avoid_for(self, container: Container, now: float) -> tuple[str, ...]:
        apart = container.spec.apart_from if container.spec is not None and not container.beside else ()
        barred = {container.moves_from} - {""}
        # Prefer a host that accepts containers over none, unless it is being drained.
        avoided = self._avoided.at(now) - (container.spared - self.draining.keys())
        return tuple(sorted(avoided | self._hosts_of(apart) | barred))

    def _hosts_of(self, containers: Iterable[int]) -> set[str]:
        found = [self._containers[number] for number in containers if number in self._containers]
        return {one.host for container in found for one in container.submissions.values() if one.host and not one.lost}
