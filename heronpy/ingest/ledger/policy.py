"""The rules and numbers for creating, leasing and retrying units, after Google's Ubiq. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from statistics import median
from typing import Final

from msgspec import Struct

from heronpy.ingest.ledger import ranges
from heronpy.ingest.ledger.types import Config, Pace, Unit

#: A site loses its units if none of its workers was seen for this multiple of `silent_s`.
SITE_SILENCES: Final = 2.0
#: Seconds without a heartbeat after which a process is forgotten.
FORGET_S: Final = 3_600.0
#: Seconds after which a file that is on no site counts as lost, so that its unprocessed bytes become bad.
VANISHED_S: Final = 60.0
#: Number of heartbeats that a process sends per `silent_s`, and maximum number of times that it is recorded as
#: seen in this time.
SHOWN_IN_SILENCE: Final = 3.0
SEEN_IN_SILENCE: Final = 3.75
#: Number of committed units from which the time per byte is computed, and the smallest number that suffices.
PACES: Final = 256
PACES_MIN: Final = 5
#: A backup is possible after this multiple of the expected time of a unit.
LATE: Final = 1.5
#: Seconds until a backup at the first attempt: lower bound, upper bound, and the value while no duration is known.
LEASE_MIN_S: Final = 2.0
LEASE_MAX_S: Final = 600.0
LEASE_FIRST_S: Final = 30.0
#: A container is slow if each of its last `SLOW_UNITS` units took at least `SHORT_S`, and `SLOW_FACTOR` times the
#: median time per byte of all units and of the other containers' last units.
SLOW_UNITS: Final = 3
SLOW_FACTOR: Final = 3.0
SHORT_S: Final = LEASE_MIN_S / SLOW_FACTOR
#: A slow container gets one unit after this number of seconds without a committed unit, as a test.
PROBE_S: Final = 60.0
#: A backup that takes this multiple of its lease is followed by another backup.
BACKUP_LEASES: Final = 10.0
#: Maximum number of times that a lease's duration doubles, once with each attempt.
DOUBLINGS: Final = 10
#: A unit stays on its site for this multiple of its lease.
SITE_LEASES: Final = 10.0
#: Seconds for which only other containers may take a late unit; afterwards, the container of the attempt may take it.
SAME_CONTAINER_S: Final = 5.0
#: Number of tries that run out of memory before a unit is halved.
MEMORY_TRIES: Final = 2
#: Pause in seconds before a worker gets a unit whose input could not be read twice, so that other units go first.
UNREAD_S: Final = 3.0
#: Pauses in seconds before the second and the third try.
TRY_AGAIN_S: Final = (1.0, 5.0)
#: Limits: ranges in a unit, files that a cut examines, units that a cut creates, and ready units that a lease examines.
CHUNKS_MAX: Final = 256
CUT_FILES_MAX: Final = 2_000
CUT_UNITS_MAX: Final = 64
LOOKED_AT_MAX: Final = 1_024
#: Seconds for which a worker waits if it got no unit.
IDLE_S: Final = 0.25
#: Maximum number of rows in one transaction.
COLLECT_MAX: Final = 500


class Waiting(Struct, frozen=True):
    """Waiting bytes of a file, and the sites that have all of these bytes."""

    file: int
    begin: int
    end: int
    since: float
    sites: tuple[str, ...]


class Planned(Struct, frozen=True):
    """A unit to be created; `since`: the time from which the unit's oldest byte has waited."""

    pieces: tuple[ranges.Piece, ...]
    since: float


def readable(copies: Mapping[str, int], live: Set[str]) -> tuple[int, tuple[str, ...]] | None:
    """Return the offset up to which a file may be cut, and the sites with these bytes; `copies`: sizes by site.

    Bytes that exist only on a lost site are not cut until that site is back or another site has them, because such
    bytes would delay the other bytes of a unit. If no site is working, all sites count.
    """
    there = {site: size for site, size in copies.items() if site in live} if live else copies
    if not there:
        return None
    end = max(there.values())
    return end, tuple(sorted(site for site, size in copies.items() if size >= end))


def plan_units(waiting: Sequence[Waiting], config: Config, now: float, room: int) -> tuple[list[Planned], bool]:
    """Return at most `room` units to create from waiting bytes, oldest first, and whether some bytes are too young.

    A unit is created when it is full, or when its oldest byte has waited for `unit_wait_s`. At least one site must
    have all bytes of the unit.
    """
    groups: dict[tuple[str, ...], list[Waiting]] = {}
    for one in sorted(waiting, key=lambda one: (one.since, one.file)):
        groups.setdefault(one.sites, []).append(one)
    planned, young = [], False
    for group in groups.values():
        since = {one.file: one.since for one in group}
        pieces = [(one.file, one.begin, one.end) for one in group]
        for unit in ranges.fill(pieces, config.unit_bytes, CHUNKS_MAX):
            oldest = min(since[file] for file, _, _ in unit)
            full = ranges.total(unit) >= config.unit_bytes or len(unit) == CHUNKS_MAX
            if full or now - oldest >= config.unit_wait_s:
                planned.append(Planned(tuple(unit), oldest))
            else:
                young = True
    planned.sort(key=lambda one: one.since)  # stable: parts of one file stay in order
    return planned[:room], young


def ready_max(config: Config, workers: int) -> int:
    """Return the number of ready units at which no more units are cut."""
    return config.ready_per_worker * max(1, workers)


def lease_s(paces: Sequence[Pace], size: int, attempt: int) -> float:
    """Return how many seconds pass until the `attempt`-th lease of `size` bytes ends, and a backup may start."""
    is_known = len(paces) >= PACES_MIN
    first = LATE * median(one.pace for one in paces) * size if is_known else LEASE_FIRST_S
    return min(max(first, LEASE_MIN_S), LEASE_MAX_S) * float(2 ** min(attempt - 1, DOUBLINGS))


class Slow(Struct, frozen=True):
    """A container that is `factor` times as slow as usual; `at`: when it last committed a unit."""

    factor: float
    at: float


def slow_containers(paces: Iterable[Pace]) -> dict[str, Slow]:
    """Return the containers whose last units were slow, compared with all recent units and with the other containers.

    A container that processed one of these units in the usual time is not slow. Units shorter than `SHORT_S` are never
    slow, because small units take more time per byte.
    """
    latest = sorted(paces, key=lambda one: one.at, reverse=True)
    if len(latest) < PACES_MIN:
        return {}
    last: dict[str, list[Pace]] = {one.container: [] for one in latest if one.container}
    for one in latest:
        if one.container and len(last[one.container]) < SLOW_UNITS:
            last[one.container].append(one)
    found, usual = {}, median(one.pace for one in latest)
    for container, units in last.items():
        others = [one.pace for name, theirs in last.items() if name != container for one in theirs]
        if len(units) < SLOW_UNITS or not others:
            continue
        least = SLOW_FACTOR * max(usual, median(others))
        if all(one.pace >= least and one.seconds >= SHORT_S for one in units):
            found[container] = Slow(median(one.pace for one in units) / usual, units[0].at)
    return found


def late_containers(leased: Iterable[Unit], paces: Sequence[Pace], now: float) -> dict[str, float]:
    """Return the containers that are slow with their current unit, and their slowdown factors.

    A container is slow once its unit has taken `SLOW_FACTOR` times the expected duration. A unit with a backup is left
    out, because the unit's container is then the backup's container.
    """
    if len(paces) < PACES_MIN:
        return {}
    usual, found = median(one.pace for one in paces), dict[str, float]()
    for unit in leased:
        took, expected = now - unit.leased, max(usual * unit.size, SHORT_S)
        if unit.container and not unit.backup and took >= SLOW_FACTOR * expected:
            found[unit.container] = max(found.get(unit.container, 0.0), took / expected)
    return found


def try_again_s(tries: int) -> float:
    """Return how many seconds a unit waits after this number of tries."""
    return TRY_AGAIN_S[min(tries, len(TRY_AGAIN_S)) - 1]


def rests_apart(unit: Unit, now: float) -> bool:
    """Whether a unit is a separate line that waits for its next try. Such a unit has more tries than attempts."""
    return now < unit.until and unit.attempt < unit.tries


def is_due(config: Config, sizes: Sequence[int], oldest: float, now: float) -> bool:
    """Whether committed units go into a dispatch, given their bytes and the time when the oldest unit was committed."""
    return bool(sizes) and (sum(sizes) >= config.dispatch_bytes or now - oldest >= config.dispatch_wait_s)
