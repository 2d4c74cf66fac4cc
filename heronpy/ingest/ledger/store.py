"""The contract of the stores of a ledger. Pure.

A store locks the pipeline, hands `decide` a view of its rows and the time, writes the returned changes, and commits
atomically. `decide` is pure and may be called again if the database requires it. The view reads only the requested
rows, in their state before the transaction.
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
    Look,
    Pace,
    Row,
    Site,
    Span,
    Unfinished,
    Unit,
    UnitState,
)

T = TypeVar("T")
R = TypeVar("R", bound=Row)


class View(Protocol):
    """The rows of pipeline `name` inside a transaction; lists have the named order and at most `limit` entries."""

    @property
    def name(self) -> str: ...

    def get(self, kind: type[R], *key: int | str) -> R | None:
        """The row with this primary key."""

    # ---- files ------------------------------------------------------------------------------
    def files(self, after: int, limit: int) -> Sequence[File]:
        """Those with a higher id, by id."""

    def files_of(self, key: str) -> Sequence[File]:
        """All generations of a key, by generation."""

    def waiting(self, limit: int, sites: Set[str] = frozenset()) -> Sequence[File]:
        """Files whose bytes wait to be cut, by `since` and id; `sites`: those of which one of these has such bytes."""

    def gone(self, before: float, limit: int) -> Sequence[File]:
        """Files that have been gone since that time or longer, by id."""

    def vanished(self, before: float, limit: int) -> Sequence[File]:
        """Those of them that have bytes in units, or in no span."""

    def copies(self, file: int) -> Sequence[Copy]:
        """By site."""

    def copies_on(self, site: str, limit: int) -> Sequence[Copy]:
        """Those of a site, by file."""

    def copies_of_waiting(self, limit: int, sites: Set[str] = frozenset()) -> Sequence[Copy]:
        """Those of the files that `waiting` returns first, by file and site."""

    # ---- spans ------------------------------------------------------------------------------
    def spans_of_unit(self, unit: int) -> Sequence[Span]:
        """The chunks of a live unit, by file and begin."""

    def files_of_unit(self, unit: int) -> Sequence[File]:
        """The files of its chunks, by id."""

    def copies_of_unit(self, unit: int, site: str) -> Sequence[Copy]:
        """Their copies on a site, by file."""

    def done_beside(self, unit: int) -> Sequence[Span]:
        """Done spans that end where a chunk begins, or begin where one ends, by file and begin."""

    def spans(self, file: int) -> Sequence[Span]:
        """All of a file, by begin."""

    def bad(self, after: tuple[int, int], limit: int, root: int | None = None) -> Sequence[Span]:
        """Bad spans behind `(file, begin)`, by that."""

    def bad_count(self, root: int | None = None) -> int: ...

    # ---- units ------------------------------------------------------------------------------
    def units(self, state: UnitState, after: tuple[int, int], limit: int) -> Sequence[Unit]:
        """Units of a state behind `(root, id)`, by that: oldest first."""

    def expired(self, before: float, limit: int) -> Sequence[Unit]:
        """Leased units whose `until` is not later, by root and id."""

    def orphans(self, before: float, limit: int) -> Sequence[Unit]:
        """Leased units whose holder was not seen since, by root and id."""

    def held(self, task: str) -> Sequence[Unit]:
        """Leased units of all incarnations of a task, by id."""

    def ready_on(self, site: str) -> Sequence[int]:
        """Ready units of which a site has all bytes, by id."""

    def totals(self) -> dict[UnitState, tuple[int, int]]:
        """How many units are in each state, and their bytes."""

    def oldest_open(self, pipeline: str) -> float | None:
        """Since when the oldest byte of a pipeline of this ledger waits to be published; None: all are.

        -inf: this ledger has no such pipeline yet.
        """

    def looks(self, pipeline: str) -> Sequence[SiteLook]:
        """Up to when the sites of a pipeline of this ledger have looked at their files, by site."""

    # ---- the rest ---------------------------------------------------------------------------
    def dispatches(self) -> Sequence[Dispatch]:
        """By id."""

    def clients_of(self, task: str) -> Sequence[Client]:
        """All incarnations of a task, by name."""

    def silent(self, before: float, limit: int) -> Sequence[Client]:
        """Those that were last seen before that time, by name."""

    def seen(self, kind: Kind, after: float) -> int:
        """How many processes of that kind were seen since."""

    def last(self, kind: Kind) -> Client | None:
        """The process of that kind that was seen last; None: none was."""

    def site_seen(self, site: str) -> float:
        """When a worker of a site was last seen; -inf: never."""

    def worker_sites(self, after: float) -> Sequence[str]:
        """The sites of which a worker was seen since, by name."""

    def site_sums(self, after: float) -> dict[str, SiteSums]:
        """Figures of each site that has files or processes: for users only, as it reads all copies."""

    def has_other(self, site: str, container: str, after: float) -> bool:
        """Whether a worker of that site in another container was seen since."""

    def sites(self) -> Sequence[Site]:
        """By name."""

    def paces(self) -> Sequence[Pace]:
        """By slot."""

    def unfinished(self) -> Sequence[Unfinished]:
        """By site."""

    def sums(self) -> Sums:
        """Counts over all rows: for users only, as it reads them all."""

    def configs(self) -> dict[str, str]:
        """The configuration of each pipeline of this ledger."""


class Sums(Struct, frozen=True):
    """See `View.sums`."""

    files: dict[str, int]
    known_bytes: int
    waiting_bytes: int
    done_bytes: int
    bad_bytes: int


class SiteSums(Struct, frozen=True):
    """See `View.site_sums`; workers and keepers are those that were seen since."""

    files: int = 0
    bytes: int = 0
    workers: int = 0
    keepers: int = 0
    #: When one of them was last seen; -inf: never.
    seen: float = float("-inf")
    #: Units that its workers hold.
    leased: int = 0


class SiteLook(Struct, frozen=True):
    """See `View.looks`. `up`: no user has taken the site down; `seen`: when one of its processes was last seen."""

    look: Look
    up: bool
    seen: float


#: Rows that a wipe leaves.
KEPT: Final = (Client, Answer, Site)


class Changes(Struct, frozen=True):
    """Rows to write, new or changed, and keys of rows to remove; `wipe`: first remove all but those of `KEPT`."""

    puts: tuple[Row, ...] = ()
    drops: tuple[tuple[type, tuple[int | str, ...]], ...] = ()
    wipe: bool = False


#: A pure function of a view and the time.
Decide = Callable[[View, float], tuple[Changes, T]]


class Store(Protocol):
    """Where the rows are. Calls block and may come from several threads, one after the other."""

    def transact(self, pipeline: str, decide: Decide[T], lasting: bool = True) -> T:
        """Carry out one transaction; LedgerAwayError when the database does not answer: whether it was carried out is
        then unknown, and the same numbered request may be repeated.

        `lasting`: nothing that ends all of its clients at once may undo it. Others may be undone then, the last ones
        first; a lasting one makes all before it last.
        """

    def pipelines(self) -> tuple[str, ...]:
        """By name."""

    def snapshot(self, pipeline: str) -> tuple[Row, ...]:
        """All rows at one time, for `validate` and `check`, ordered by type and key."""

    def close(self) -> None:
        """Idempotent; the next call opens the store again."""
