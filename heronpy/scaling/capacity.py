"""Decides which jobs of a pool run, and with how many tasks, if the pool is too small for all of them. Pure.

`allot` is called repeatedly, with its previous results. Jobs are served in this order: privileged, higher priority,
running, older. Each job first gets its minimum, then its desired tasks (`wish`), within the pool and the quota of its
role. So the last jobs shrink first, and are stopped only if their minimum does not fit.

Invariants: all jobs together never get more than the pool without its reserve, and the jobs of a role never get more
than its quota. No job lacks capacity because of a later job. No job gets capacity that another job has not released
yet. A job that was cut back grows again when the capacity for it has been free for `BACK_S`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.units import format_duration
from heronpy.packing.demand import size_text

#: The share of a pool that is kept free for the containers of a lost slot.
RESERVE: Final = 0.1
#: Seconds for which capacity must have been free before a job that was cut back gets it.
BACK_S: Final = 300.0
#: Number of steps in the search for the share of its desired tasks that a job gets.
_STEPS: Final = 32
_ROUNDING: Final = 1 + 1e-9

#: Map from component to its number of tasks.
Tasks: TypeAlias = Mapping[str, int]


class Amount(Struct, frozen=True):
    cpu: float = 0.0
    ram_bytes: float = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.cpu + other.cpu, self.ram_bytes + other.ram_bytes)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.cpu - other.cpu, self.ram_bytes - other.ram_bytes)

    def times(self, factor: float) -> Amount:
        return Amount(self.cpu * factor, self.ram_bytes * factor)

    def fits(self, room: Amount) -> bool:
        return self.cpu <= room.cpu * _ROUNDING and self.ram_bytes <= room.ram_bytes * _ROUNDING

    def __str__(self) -> str:
        return size_text(round(self.cpu, 2), round(self.ram_bytes), None)


class Allotted(Struct, frozen=True):
    state: Literal["GRANTED", "SHRUNK", "WAITING", "PREEMPTED"] = "GRANTED"
    """WAITING: the job has not run yet. PREEMPTED: the job has run, and is stopped until it fits again."""
    limits: dict[str, int] = {}
    """Allotted number of tasks of each component that gets fewer tasks than desired."""
    why: str = ""
    """The reason as a sentence with numbers; "" if the job gets all tasks."""
    fits_since: float | None = None
    """Time since which more tasks would have fitted; None if no more tasks fit."""

    @property
    def runs(self) -> bool:
        """Whether the job may run."""
        return self.state in ("GRANTED", "SHRUNK")


class Claim(Struct, frozen=True):
    """A job that should run in the pool, or is leaving the pool."""

    job: str
    each: dict[str, Amount]
    """Resources of one task of each component."""
    besides: Amount
    """Resources that the job needs in addition to its tasks."""
    least: Tasks
    """Minimum number of tasks of each component with which the job runs; at most `wish`."""
    wish: Tasks
    """Desired number of tasks of each component; empty if the job is leaving the pool."""
    role: str = ""
    priority: int = 100
    privileged: bool = False
    created: float = 0.0
    held: Tasks = {}
    """Tasks that occupy the pool now; during a change, the larger of old and new. Empty if the job does not run."""
    before: Allotted = Allotted()
    """The last result of `allot`."""

    def room(self, tasks: Tasks) -> Amount:
        """Return the resources that the job needs for these tasks; zero if there are no tasks."""
        return sum(
            (self.each[one].times(n) for one, n in tasks.items() if one in self.each),
            self.besides if tasks else Amount(),
        )


class _Room:
    """The remaining capacity of a pool, in total and by role."""

    def __init__(self, all_of_it: Amount, quotas: Mapping[str, Amount]) -> None:
        self._whole = {"": all_of_it, **{f"role {role}": quota for role, quota in quotas.items()}}
        self._taken = dict.fromkeys(self._whole, Amount())

    def lacks(self, claim: Claim, more: Amount, own: Amount) -> str:
        """Return why a job cannot get this amount in addition to `own`, which it already has; "" if it can."""
        for name in self._of(claim):
            whole, taken = self._whole[name], self._taken[name]
            if not (taken + more).fits(whole):
                who = f"jobs of {name}" if name else "jobs"
                others = taken - own
                has_others = others.cpu > _ROUNDING - 1 or others.ram_bytes >= 1
                return f"{who} may have {whole}" + (f", of which other jobs use {others}" if has_others else "")
        return ""

    def take(self, claim: Claim, more: Amount) -> None:
        for name in self._of(claim):
            self._taken[name] += more

    def _of(self, claim: Claim) -> Iterable[str]:
        return [name for name in ("", f"role {claim.role}") if name in self._whole]


def allot(
    slots: Iterable[Amount], quotas: Mapping[str, Amount], claims: Collection[Claim], now: float
) -> dict[str, Allotted]:
    """Compute the allotment of each job, by name.

    `slots` are the sizes of the slots that are not drained. `quotas` limit the jobs of a role together; other roles
    have no limit. `now` must come from the same clock in all calls. The size of single containers is not checked.
    """
    whole = sum(slots, Amount())
    room = _Room(whole.times(1 - RESERVE), quotas)
    order = sorted(claims, key=lambda one: (not one.privileged, -one.priority, not one.held, one.created, one.job))
    given: dict[str, dict[str, int]] = {}
    lacking: dict[str, str] = {}
    for claim in order:
        need = claim.room(claim.least)
        lacking[claim.job] = room.lacks(claim, need, Amount())
        if lacking[claim.job]:
            lacking[claim.job] = f"it needs at least {need}; {lacking[claim.job]}"
        else:
            room.take(claim, need)
            given[claim.job] = {**claim.least}
    for claim in order:
        if claim.job in given:
            given[claim.job], lacking[claim.job] = _widened(claim, given[claim.job], room)
    found = {claim.job: _patient(claim, given.get(claim.job), lacking[claim.job], now) for claim in order}
    free = whole - sum((claim.room(claim.held) for claim in claims), Amount())
    for claim in order:
        found[claim.job], free = _moved_in(claim, found[claim.job], free, now)
    return found


def granted(claim: Claim, allotted: Allotted) -> dict[str, int]:
    """Return the tasks that a job may have; empty if the job may not run."""
    return {one: allotted.limits.get(one, n) for one, n in claim.wish.items()} if allotted.runs else {}


def _widened(claim: Claim, tasks: dict[str, int], room: _Room) -> tuple[dict[str, int], str]:
    """Extend the minimum of a job towards its desired tasks, by the same share for each component; returns the tasks,
    and why they are fewer than desired.
    """

    def at(share: float) -> dict[str, int]:
        return {one: least + int(share * (claim.wish[one] - least)) for one, least in tasks.items()}

    def lacks(wanted: Tasks) -> str:
        return room.lacks(claim, claim.room(wanted) - need, need)

    need, found, low, high = claim.room(tasks), {**claim.wish}, 0.0, 1.0
    if why := lacks(found):
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (low, middle) if lacks(at(middle)) else (middle, high)
        found = at(low)
        for one in found:
            while found[one] < claim.wish[one] and not lacks(found | {one: found[one] + 1}):
                found[one] += 1
    room.take(claim, claim.room(found) - need)
    return found, why


def _patient(claim: Claim, tasks: dict[str, int] | None, why: str, now: float) -> Allotted:
    """Return the allotment of a job. The job gets more tasks only after they would have fitted for `BACK_S`."""
    before = claim.before
    stopped: Allotted = Allotted("PREEMPTED" if claim.held or before.state == "PREEMPTED" else "WAITING", why=why)
    if tasks is None:
        return stopped
    grows = before.state == "PREEMPTED" or any(tasks[one] > before.limits.get(one, tasks[one]) for one in tasks)
    if not grows:
        return _limited(claim, tasks, why)
    since = now if before.fits_since is None else min(now, before.fits_since)  # the clock may have been set back
    if now - since >= BACK_S:
        return _limited(claim, tasks, why)
    soon = f"there are free resources; the job gets them after they have been free for {format_duration(BACK_S)}"
    if before.state == "PREEMPTED":
        return replace(stopped, why=soon, fits_since=since)
    kept = {one: min(n, before.limits.get(one, n)) for one, n in tasks.items()}
    return replace(_limited(claim, kept, soon), fits_since=since)


def _moved_in(claim: Claim, allotted: Allotted, free: Amount, now: float) -> tuple[Allotted, Amount]:
    """Return the current allotment of a job, without capacity that other jobs have not released yet, and the capacity
    that remains.
    """
    tasks, held = granted(claim, allotted), claim.held
    if all(n <= held.get(one, 0) for one, n in tasks.items()):
        return allotted, free
    more = claim.room({one: max(n, held.get(one, 0)) for one, n in tasks.items()}) - claim.room(held)
    if more.fits(free):
        return allotted, free - more
    why = f"it waits until other jobs have freed {more}"
    if held:
        # A component without held tasks belongs to a new program, which starts only after the old program has stopped.
        kept = {one: min(n, held.get(one, claim.least[one])) for one, n in tasks.items()}
        waits = _limited(claim, kept, why)
    else:
        waits = Allotted("PREEMPTED" if claim.before.state == "PREEMPTED" else "WAITING", why=why)
    return replace(waits, fits_since=now - BACK_S), free


def _limited(claim: Claim, tasks: Mapping[str, int], why: str) -> Allotted:
    limits = {one: n for one, n in tasks.items() if n < claim.wish[one]}
    if not limits:
        return Allotted()
    counts = ", ".join(f"{one} gets {n} of {claim.wish[one]} tasks" for one, n in limits.items())
    return Allotted("SHRUNK", limits, f"{counts}: {why}")
