"""The contract of a ledger's stores. Pure.

A store locks the pipeline, passes a view of the rows and the time to `decide`, writes the returned changes, and
commits atomically. `decide` is pure and may be called again if the database requires it. The view reads only the
requested rows, as they were before the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from heronpy.ingest.ledger.types import (
    Answer,
    Client,
    Copy,
    Dispatch,
    File,
    Kind,
    Pace,
    Row,
    Scanned,
    Site,
    Span,
    Unfinished,
    Unit,
    UnitState,
)

T = TypeVar("T")
R = TypeVar("R", bound=Row)


class View(Protocol):
    """The rows of pipeline `name` inside a transaction; each list has the stated order and at most `limit` entries."""

    @property
    def name(self) -> str: ...

    def get(self, kind: type[R], *key: int | str) -> R | None:
        """Return the row with this primary key."""

    # ---- files ------------------------------------------------------------------------------
    def files(self, after: int, limit: int) -> Sequence[File]:
        """Files with a higher id than `after`, ordered by id."""

    def files_of(self, key: str) -> Sequence[File]:
        """All generations of a key, ordered by generation."""

    def waiting(self, limit: int, sites: Set[str] = frozenset()) -> Sequence[File]:
        """Files with bytes that wait to be cut, ordered by `since` and id. With `sites`, one of these sites must have
        such bytes.
        """

    def gone(self, before: float, limit: int) -> Sequence[File]:
        """Files that have been gone since `before` or longer, ordered by id."""

    def vanished(self, before: float, limit: int) -> Sequence[File]:
        """Files gone since `before` or longer that have bytes in units, or in no span; ordered by id."""

    def copies(self, file: int) -> Sequence[Copy]:
        """Copies of a file, ordered by site."""

    def copies_on(self, site: str, limit: int) -> Sequence[Copy]:
        """Copies on a site, ordered by file."""

    def copies_of_waiting(self, limit: int, sites: Set[str] = frozenset()) -> Sequence[Copy]:
        """Copies of the files that `waiting` returns first, ordered by file and site."""

    # ---- spans ------------------------------------------------------------------------------
    def spans_of_unit(self, unit: int) -> Sequence[Span]:
        """The chunks of a live unit, ordered by file and begin."""

    def files_of_unit(self, unit: int) -> Sequence[File]:
        """The files of the unit's chunks, ordered by id."""

    def copies_of_unit(self, unit: int, site: str) -> Sequence[Copy]:
        """Copies of the unit's files on a site, ordered by file."""

    def done_beside(self, unit: int) -> Sequence[Span]:
        """Done spans that adjoin a chunk of the unit, ordered by file and begin."""

    def spans(self, file: int) -> Sequence[Span]:
        """All spans of a file, in the order of their first bytes."""

    def bad(self, after: tuple[int, int], limit: int, root: int | None = None) -> Sequence[Span]:
        """Bad spans after the position `(file, begin)`, ordered by file and begin."""

    def bad_count(self, root: int | None = None) -> int: ...

    # ---- units ------------------------------------------------------------------------------
    def units(self, state: UnitState, after: tuple[int, int], limit: int) -> Sequence[Unit]:
        """Units of a state after the position `(root, id)`, ordered by root and id, so oldest first."""

    def expired(self, before: float, limit: int) -> Sequence[Unit]:
        """Leased units whose `until` is not later than `before`, ordered by root and id."""

    def orphans(self, before: float, limit: int) -> Sequence[Unit]:
        """Leased units whose holder has not been seen since `before`, ordered by root and id."""

    def held(self, task: str) -> Sequence[Unit]:
        """Leased units of all incarnations of a task, ordered by id."""

    def ready_on(self, site: str) -> Sequence[int]:
        """Ready units for which a site has all bytes, ordered by id."""

    def totals(self) -> dict[UnitState, tuple[int, int]]:
        """Return the number of units in each state, and their bytes."""

    def oldest_open(self, pipeline: str) -> float | None:
        """Return when a pipeline's oldest unpublished byte began to wait; None if all bytes are published; -inf if this
        ledger has no such pipeline yet.
        """

    def scans(self, pipeline: str) -> Sequence[SiteScan]:
        """The last scan on each site of a pipeline in this ledger, ordered by site."""

    # ---- other rows ---------------------------------------------------------------------------
    def dispatches(self) -> Sequence[Dispatch]:
        """All dispatches, ordered by id."""

    def clients_of(self, task: str) -> Sequence[Client]:
        """All incarnations of a task, ordered by name."""

    def silent(self, before: float, limit: int) -> Sequence[Client]:
        """Clients that have not been seen since `before`, ordered by name."""

    def seen(self, kind: Kind, after: float) -> int:
        """The number of processes of a kind that have been seen since `after`."""

    def last(self, kind: Kind) -> Client | None:
        """Return the most recently seen process of a kind; None if there is no such process."""

    def site_seen(self, site: str) -> float:
        """Return when a worker of a site was last seen; -inf if never."""

    def worker_sites(self, after: float) -> Sequence[str]:
        """The sites whose workers have been seen since `after`, ordered by name."""

    def site_sums(self, after: float) -> dict[str, SiteSums]:
        """The figures of each site that has files or processes. Reads all copies, so use it only for user commands."""

    def has_other(self, site: str, container: str, after: float) -> bool:
        """Whether a worker of `site` in a container other than `container` has been seen since `after`."""

    def sites(self) -> Sequence[Site]:
        """All sites, ordered by name."""

    def paces(self) -> Sequence[Pace]:
        """All paces, ordered by slot."""

    def unfinished(self) -> Sequence[Unfinished]:
        """The unfinished lines of all sites, ordered by site."""

    def sums(self) -> Sums:
        """Return counts over all rows. Reads all rows, so use it only for user commands."""

    def configs(self) -> dict[str, str]:
        """The configuration of each pipeline in this ledger, by name."""


class Sums(Struct, frozen=True):
    """See `View.sums`."""

    files: dict[str, int]
    known_bytes: int
    waiting_bytes: int
    done_bytes: int
    bad_bytes: int


class SiteSums(Struct, frozen=True):
    """See `View.site_sums`; only workers and keepers seen since `after` are counted."""

    files: int = 0
    bytes: int = 0
    workers: int = 0
    keepers: int = 0
    #: When one of its processes was last seen; -inf if never.
    seen: float = float("-inf")
    #: Number of units that its workers hold.
    leased: int = 0


class SiteScan(Struct, frozen=True):
    """See `View.scans`. `up`: no user has taken the site down; `seen`: when one of its processes was last seen."""

    scan: Scanned
    up: bool
    seen: float


#: The types of rows that a wipe keeps.
KEPT: Final = (Client, Answer, Site)


class Changes(Struct, frozen=True):
    """Rows to write, and keys of rows to remove; `wipe`: first remove all rows except those of `KEPT`."""

    puts: tuple[Row, ...] = ()
    drops: tuple[tuple[type, tuple[int | str, ...]], ...] = ()
    wipe: bool = False


#: A pure function from a view and the time to changes and an answer.
Decide = Callable[[View, float], tuple[Changes, T]]


class Store(Protocol):
    """The storage of the rows. Calls block. Several threads may make calls, one at a time."""

    def transact(self, pipeline: str, decide: Decide[T], lasting: bool = True) -> T:
        """Carry out one transaction.

        Raises LedgerAwayError if the database does not answer. The transaction may then have been carried out, and the
        same numbered request may be repeated. A power failure, or another event that ends all clients, may undo the
        latest transactions. A `lasting` transaction survives such an event, and so do all earlier transactions.
        """

    def pipelines(self) -> tuple[str, ...]:
        """Return the pipelines of the store, ordered by name."""

    def snapshot(self, pipeline: str) -> tuple[Row, ...]:
        """Return a consistent copy of all rows, ordered by type and key."""

    def close(self) -> None:
        """Close the store; idempotent. The next call opens it again."""
