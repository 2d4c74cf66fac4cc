"""Stores in the state manager the permit and the ledger of a scheduler whose containers run on an engine.

The permit is the ephemeral node with the scheduler's location. The ledger is another node. Each write states the
version that this scheduler last read or wrote. A scheduler that takes the permit writes the ledger immediately, so that
later writes by its predecessor are refused. All calls block, so call them in a thread.

Times in the ledger are wall times, because the scheduler's monotonic clock restarts when its host boots.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from heronpy.common.errors import FencedError, NodeExistsError, NoNodeError, StateError, VersionMismatchError
from heronpy.common.host import KnownProcess, Life
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.restart_policy import Charges
from heronpy.proto import plan_pb2
from heronpy.scheduler.avoided_hosts import Avoided
from heronpy.scheduler.placement_events import Cause, Entry, Ledger, Past
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager


class Taken(NamedTuple):
    """The records that a scheduler finds when it takes the permit."""

    ledger: Ledger
    #: Whether all earlier schedulers are known to have ended.
    alone: bool
    #: Whether the topology was killed, so that its remaining processes must be ended.
    killing: bool = False
    #: Hosts that get no containers.
    hosts: tuple[Avoided, ...] = ()


class LedgerStore:
    """The ledger of one topology. `location.permit` identifies the scheduler's incarnation; `now` is its clock."""

    def __init__(
        self, state: StateManager, location: plan_pb2.SchedulerLocation, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._state = state
        self._now = now
        self._location = location
        self._topology = location.topology
        self._version = 0
        self._written = plan_pb2.PlacementLedger()
        self._writing = threading.Lock()

    # ---- permit -----------------------------------------------------------------------------
    def take(self) -> Taken:
        """Take the permit together with the ledger; raises FencedError if another scheduler has the permit."""
        try:
            self._state.create(paths.scheduler(self._topology), self._location.SerializeToString(), ephemeral=True)
        except NodeExistsError:
            raise FencedError(
                f"another scheduler is running topology {self._topology!r}; kill the topology before starting it again"
            ) from None
        found = self._state.get(paths.placement(self._topology))
        kept, self._version = plan_pb2.PlacementLedger(alone=True), 0
        if found is not None:
            kept, self._version = _parse(found[0]), found[1]
        alone = kept.alone and _has_ended(kept.scheduler)
        ledger = {one.container: self._entry(one) for one in kept.entries}
        self._written = plan_pb2.PlacementLedger(scheduler=trace_of(os.getpid(), self._location.permit), alone=alone)
        hosts = self._hosts(kept)
        self.write(ledger, kept.killing, hosts)
        return Taken(ledger, alone, kept.killing, hosts)

    def prove(self) -> None:
        """Raise FencedError if this scheduler has lost the permit, and StateError if that is unknown."""
        found = self._state.get(paths.scheduler(self._topology))
        holder = plan_pb2.SchedulerLocation.FromString(found[0]) if found is not None else None
        if holder is None or holder.permit != self._location.permit:
            who = f"process {holder.pid} of {holder.host}" if holder is not None else "no process"
            raise FencedError(f"this scheduler of {self._topology} has lost its permit; {who} has it")

    # ---- ledger -----------------------------------------------------------------------------
    def write(self, ledger: Ledger, killing: bool = False, hosts: Sequence[Avoided] = ()) -> None:
        """Prove the permit, and then write the ledger; raises FencedError if another scheduler has written the ledger.

        After any other error, the ledger may have been written. The same or a later ledger can then be written again.
        """
        with self._writing:
            draft = plan_pb2.PlacementLedger(
                scheduler=self._written.scheduler, alone=self._written.alone, killing=killing
            )
            draft.entries.extend(self._kept(number, entry) for number, entry in sorted(ledger.items()))
            ahead_s = time.time() - self._now()
            draft.hosts.extend(
                plan_pb2.AvoidedHost(
                    host=one.host, until=one.until + ahead_s, why=one.why, by=one.by, draining=one.draining
                )
                for one in hosts
            )
            self._write(draft)

    def become_alone(self) -> None:
        """Record that no earlier scheduler can still grant a lease; idempotent."""
        with self._writing:
            if not self._written.alone:
                draft = plan_pb2.PlacementLedger.FromString(self._written.SerializeToString())
                draft.alone = True
                self._write(draft)

    def _write(self, draft: plan_pb2.PlacementLedger) -> None:
        self.prove()
        path, data = paths.placement(self._topology), draft.SerializeToString()
        try:
            if self._version == 0:
                self._state.create(path, data)
                self._version = 1
            else:
                self._version = self._state.set(path, data, self._version)
        except (VersionMismatchError, NodeExistsError, NoNodeError):
            self._recognise(path)
            self._version = self._state.set(path, data, self._version)
        self._written = draft

    # ---- entries ----------------------------------------------------------------------------
    def _kept(self, container: int, entry: Entry) -> plan_pb2.PlacementEntry:
        past, ahead_s = entry.past, time.time() - self._now()
        return plan_pb2.PlacementEntry(
            container=container,
            submitted=entry.submitted,
            holder=entry.holder,
            epoch=entry.epoch,
            restarts=past.restarts,
            judged=past.judged,
            failed=past.failed,
            finished=past.finished,
            exit_reason=past.reason.value if past.reason is not None else "",
            exit_detail=past.detail,
            ends=_charges_kept(past.ends, ahead_s),
            cancels=_charges_kept(past.cancels, ahead_s),
            moves_from=entry.moves_from,
            cause_reason=entry.cause.reason.value if entry.cause is not None else "",
            cause_text=entry.cause.text if entry.cause is not None else "",
        )

    def _entry(self, kept: plan_pb2.PlacementEntry) -> Entry:
        ahead_s = time.time() - self._now()
        past = Past(
            kept.restarts,
            kept.judged,
            kept.failed,
            kept.finished,
            _reason(kept.exit_reason),
            kept.exit_detail,
            _charges(kept.ends, ahead_s),
            _charges(kept.cancels, ahead_s),
        )
        reason = _reason(kept.cause_reason)
        cause = Cause(reason, kept.cause_text) if reason is not None else None
        return Entry(kept.submitted, kept.holder, kept.epoch, past, kept.moves_from, cause)

    def _hosts(self, kept: plan_pb2.PlacementLedger) -> tuple[Avoided, ...]:
        ahead_s = time.time() - self._now()
        return tuple(Avoided(one.host, one.until - ahead_s, one.why, one.by, one.draining) for one in kept.hosts)

    def _recognise(self, path: str) -> None:
        """After a version conflict, accept a version that this scheduler itself wrote without receiving the answer.

        Raises FencedError if another scheduler wrote it.
        """
        found = self._state.get(path)
        kept = _parse(found[0]) if found is not None else None
        ours = kept is not None and kept.scheduler.permit == self._written.scheduler.permit
        if found is None or not ours or found[1] == self._version:
            raise FencedError(f"another scheduler of {self._topology} has written the ledger of its containers")
        self._version = found[1]


def _charges_kept(charges: Charges, ahead_s: float) -> plan_pb2.RestartCharges:
    """The charges as a message; `ahead_s` is added to the scheduler's time to get wall time."""
    return plan_pb2.RestartCharges(
        charges=[
            plan_pb2.RestartCharge(reason=reason.value, at=[at + ahead_s for at in times])
            for reason, times in charges.failures
        ],
        streak=charges.streak,
        last_pause_s=charges.last_pause_s,
        healthy_at=charges.healthy_at + ahead_s if charges.healthy_at is not None else 0.0,
    )


def _charges(kept: plan_pb2.RestartCharges, ahead_s: float) -> Charges:
    found = ((_reason(one.reason), tuple(at - ahead_s for at in one.at)) for one in kept.charges)
    return Charges(
        tuple((reason, times) for reason, times in found if reason is not None),
        kept.streak,
        kept.last_pause_s,
        kept.healthy_at - ahead_s if kept.healthy_at else None,
    )


def _reason(name: str) -> ExitReason | None:
    """The exit reason with this name; None for "" and for names from another release."""
    return next((reason for reason in ExitReason if reason.value == name), None)


def _parse(data: bytes) -> plan_pb2.PlacementLedger:
    try:
        return plan_pb2.PlacementLedger.FromString(data)
    except DecodeError:
        raise StateError(
            "the container ledger in the state manager is damaged; kill the topology and submit it again"
        ) from None


def trace_of(pid: int, permit: str) -> plan_pb2.SchedulerTrace:
    """The identity of a process. A later scheduler on this host uses it to check whether the process has ended."""
    one = KnownProcess.of(pid)
    return plan_pb2.SchedulerTrace(host=one.host, pid=pid, started=one.started, permit=permit, pids=one.namespace)


def _has_ended(trace: plan_pb2.SchedulerTrace) -> bool:
    """Whether the scheduler of a trace is known to have ended, which can be checked only on its own host."""
    if not trace.permit:
        return True
    return KnownProcess(trace.pid, trace.started, trace.pids, trace.host).life() in (Life.ENDED, Life.REBOOTED)
