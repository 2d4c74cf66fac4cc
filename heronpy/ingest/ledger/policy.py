"""The numbers by which units are made, handed out and tried again; after Google's Ubiq. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from statistics import median
from typing import Final

from msgspec import Struct

from heronpy.ingest.ledger import ranges
from heronpy.ingest.ledger.types import Config, Unit

#: A site of which no worker was seen for so many times `silent_s` loses its units.
SITE_SILENCES: Final = 2.0
#: A process that was not seen for so long is forgotten.
FORGET_S: Final = 3_600.0
#: A file that no site has for so long will not come back: what is not processed of it is bad.
VANISHED_S: Final = 60.0
#: A process shows this often in its `silent_s` that it lives; by other requests it is written down as seen at most a
#: little more often.
SHOWN_IN_SILENCE: Final = 3.0
SEEN_IN_SILENCE: Final = 3.75
#: How many committed units tell how long a byte takes.
PACES: Final = 256
#: Bounds of the time until a backup, at the first attempt.
LEASE_MIN_S: Final = 5.0
LEASE_MAX_S: Final = 600.0
#: The time of a lease doubles with each attempt, so often.
DOUBLINGS: Final = 10
#: A unit stays so many times its lease on the site that has it.
SITE_LEASES: Final = 10.0
#: An expired unit may be taken in its own container when no other one has taken it for so long.
SAME_CONTAINER_S: Final = 5.0
#: Before the second and third try.
TRY_AGAIN_S: Final = (1.0, 5.0)
#: Ranges in one unit, files that one cut looks at, units that it makes, and ready units that one lease looks at.
CHUNKS_MAX: Final = 256
CUT_FILES_MAX: Final = 2_000
CUT_UNITS_MAX: Final = 64
LOOKED_AT_MAX: Final = 1_024
#: How long a worker waits that finds nothing.
IDLE_S: Final = 0.25
#: In one transaction.
COLLECT_MAX: Final = 500


class Waiting(Struct, frozen=True):
    """Bytes of a file that wait to be cut, and the sites that have all of them."""

    file: int
    begin: int
    end: int
    since: float
    sites: tuple[str, ...]


class Planned(Struct, frozen=True):
    """A unit to make; `since`: of its oldest byte."""

    pieces: tuple[ranges.Piece, ...]
    since: float


def readable(copies: Mapping[str, int], live: Set[str]) -> tuple[int, tuple[str, ...]] | None:
    """Up to where a file may be cut, and the sites that have so much, by the safe size on each site.

    What only a lost site has waits uncut until that site is back, or another one has it: in a unit it would keep bytes
    waiting that others have. Without any site that works all count.
    """
    there = {site: size for site, size in copies.items() if site in live} if live else copies
    if not there:
        return None
    end = max(there.values())
    return end, tuple(sorted(site for site, size in copies.items() if size >= end))


def plan_units(waiting: Sequence[Waiting], config: Config, now: float, room: int) -> tuple[list[Planned], bool]:
    """The units to make of what waits, oldest first, at most `room`; and whether bytes wait that are too young.

    A unit is made when it is full, or its oldest byte has waited long enough. It never mixes files of other sites: some
    site must have all of its bytes.
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
    """No cut while so many units are ready."""
    return config.ready_per_worker * max(1, workers)


def lease_s(paces: Iterable[float], size: int, attempt: int) -> float:
    """How long the `attempt`-th lease of `size` bytes holds before others may take a backup."""
    known = list(paces)
    expected = 3.0 * median(known) * size + 2.0 if known else LEASE_MIN_S
    first = min(max(expected, LEASE_MIN_S), LEASE_MAX_S)
    return first * float(2 ** min(attempt - 1, DOUBLINGS))


def try_again_s(tries: int) -> float:
    """How long a unit rests after so many tries."""
    return TRY_AGAIN_S[min(tries, len(TRY_AGAIN_S)) - 1]


def rests_apart(unit: Unit, now: float) -> bool:
    """Whether a unit waits for its next try that is a line tried apart from the others of its unit: it has had tries
    before its first attempt."""
    return now < unit.until and unit.attempt < unit.tries


def is_due(config: Config, sizes: Sequence[int], oldest: float, now: float) -> bool:
    """Whether committed units of these bytes go into a dispatch, the oldest of them committed then."""
    return bool(sizes) and (sum(sizes) >= config.dispatch_bytes or now - oldest >= config.dispatch_wait_s)
