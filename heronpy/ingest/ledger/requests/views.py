"""What commands show. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from heronpy.ingest.ledger.requests.base import Request
from heronpy.ingest.ledger.requests.publication import Chunk
from heronpy.ingest.ledger.types import DispatchState, Span, UnitState


@dataclass(frozen=True, slots=True)
class SiteView:
    """A site: its files and safe bytes, who was seen there lately, and the units that are leased there."""

    name: str
    #: "up"; "down", as a user has said; "silent": no worker of it was seen for 30 s.
    state: str
    files: int
    bytes: int
    workers: int
    keepers: int
    leased: int
    #: Since one of its processes was seen; None: never.
    seen_s: float | None


@dataclass(frozen=True, slots=True)
class AfterView:
    """A pipeline for which units wait: `whole`, for all that was there when both had begun, or each for what is older.

    `waits`: why they wait now, as a clause; "" when they do not.
    """

    pipeline: str
    whole: bool
    waits: str


@dataclass(frozen=True, slots=True)
class Figures:
    """All counts are taken from the rows at the time of asking."""

    generation: int
    paused: bool
    files: dict[str, int]
    #: Of all files together.
    known_bytes: int
    waiting_bytes: int
    done_bytes: int
    bad_bytes: int
    bad_ranges: int
    #: By state: how many, and their bytes.
    units: dict[str, tuple[int, int]]
    #: Age of the oldest byte that is not published; None: all are.
    oldest_s: float | None
    workers: int
    keepers: int
    #: Seconds per byte of recent units.
    pace: float
    dispatches_open: int
    dispatches_failed: int
    sites_down: tuple[str, ...]
    #: Empty for a pipeline that names no site.
    sites: tuple[SiteView, ...] = ()
    #: Committed units that are in failed dispatches.
    units_held: int = 0
    #: The pipelines that go ahead of this one.
    after: tuple[AfterView, ...] = ()
    #: See `Config`.
    rows_to: str = "table"
    place: str = ""
    #: Since the ledger was made or rebuilt: published units, and those of them of which a backup has won.
    published_units: int = 0
    backups_won: int = 0
    #: How long an attempt takes, of recent units; None: none was committed yet.
    p50_s: float | None = None
    p99_s: float | None = None
    #: Of last lines that have no end yet, as keepers have seen them.
    unfinished_bytes: int = 0
    #: Files that are not read, because they are taken for copies of others.
    copies: int = 0
    #: The pattern of the files.
    logs: str = ""
    #: The keeper that was seen last, and since when it was not; None: none is known any more.
    looked_by: str = ""
    looked_s: float | None = None


@dataclass(frozen=True, slots=True)
class Show(Request[Figures]):
    """The figures of the pipeline."""


@dataclass(frozen=True, slots=True)
class UnitView:
    unit: int
    root: int
    state: UnitState
    bytes: int
    age_s: float
    tries: int
    attempt: int
    holder: str
    site: str
    error: str
    chunks: tuple[Chunk, ...]
    #: What it waits for, one clause each.
    waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Units:
    units: tuple[UnitView, ...]


@dataclass(frozen=True, slots=True)
class ListUnits(Request[Units]):
    """Live units of a state, oldest first."""

    state: UnitState
    limit: int = 100


@dataclass(frozen=True, slots=True)
class DispatchView:
    """`rows` and `bytes` are those of its units."""

    dispatch: int
    state: DispatchState
    units: tuple[int, ...]
    rows: int
    bytes: int
    error: str


@dataclass(frozen=True, slots=True)
class Dispatches:
    dispatches: tuple[DispatchView, ...]


@dataclass(frozen=True, slots=True)
class ListDispatches(Request[Dispatches]):
    """All dispatches that are not published, oldest first."""


@dataclass(frozen=True, slots=True)
class BadRange:
    """`key`: the name of the file when it was first seen. `head`: how the file begins. `places`: site and path below
    the root of the pattern where it was last seen; none when it is gone."""

    key: str
    generation: int
    span: Span
    head: str = ""
    places: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class BadRanges:
    """`more`: ask again after the last one."""

    ranges: tuple[BadRange, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class ListBad(Request[BadRanges]):
    """Bad ranges behind this one, in the order of file and offset."""

    after_file: int = 0
    after_begin: int = -1
    limit: int = 1_000
