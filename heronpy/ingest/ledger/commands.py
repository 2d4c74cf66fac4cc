"""Requests that commands send to a ledger: reads and changes. Pure."""

from __future__ import annotations

from msgspec import Struct

from heronpy.ingest.ledger.requests import Alive, Chunk, Request
from heronpy.ingest.ledger.types import Config, DispatchState, Span, UnitState


class SiteView(Struct, frozen=True):
    """A site: its files and the bytes of their whole lines, recently seen processes, and leased units."""

    name: str
    #: "up"; "down" if a user has taken the site down; "silent" if none of its workers was seen for 30 s.
    state: str
    files: int
    bytes: int
    workers: int
    keepers: int
    leased: int
    #: Seconds since one of its processes was seen; None if never.
    seen_s: float | None


class AfterView(Struct, frozen=True):
    """A pipeline for which units wait: for its bytes that are older than the unit or, if `whole`, for all bytes that
    existed when the later of the two pipelines began. `waits`: a clause with the current reason; "" if no unit waits.
    """

    pipeline: str
    whole: bool
    waits: str


class Figures(Struct, frozen=True):
    """The figures of a pipeline. All counts are derived from the rows at the time of the request."""

    generation: int
    paused: bool
    files: dict[str, int]
    #: Total number of bytes of all files.
    known_bytes: int
    waiting_bytes: int
    done_bytes: int
    bad_bytes: int
    bad_ranges: int
    #: Maps each state to the number of its units, and to the number of bytes of these units.
    units: dict[str, tuple[int, int]]
    #: Age of the oldest unpublished byte; None if all bytes are published.
    oldest_s: float | None
    workers: int
    keepers: int
    #: Seconds per byte of recent units.
    pace: float
    dispatches_open: int
    dispatches_failed: int
    sites_down: tuple[str, ...]
    #: The sites; empty for a pipeline without sites.
    sites: tuple[SiteView, ...] = ()
    #: Number of committed units in failed dispatches.
    units_held: int = 0
    #: The pipelines for which this pipeline waits.
    after: tuple[AfterView, ...] = ()
    #: See `Config`.
    rows_to: str = "table"
    place: str = ""
    #: Number of published units since the ledger was created or rebuilt, and number of units that a backup won.
    published_units: int = 0
    backups_won: int = 0
    #: See `Tally`.
    published_bytes: int = 0
    attempts: int = 0
    backups: int = 0
    preempted: int = 0
    tries_failed: int = 0
    in_vain: int = 0
    #: Slow containers, and the factor by which each is slower than usual.
    slow: dict[str, float] = {}
    #: Quantiles of the duration of recent attempts, in seconds; None until a unit is committed.
    p50_s: float | None = None
    p99_s: float | None = None
    #: Number of bytes in unfinished last lines, as seen by keepers.
    unfinished_bytes: int = 0
    #: Number of files that are not read because they are considered copies.
    copies: int = 0
    #: The pattern of the files.
    logs: str = ""
    #: The most recently seen keeper, and the seconds since then; None if no keeper is known.
    looked_by: str = ""
    looked_s: float | None = None


class Show(Request[Figures], frozen=True):
    """Request the figures of the pipeline."""


class UnitView(Struct, frozen=True):
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
    #: Reasons why the unit waits, one clause each.
    waits: tuple[str, ...] = ()


class Units(Struct, frozen=True):
    units: tuple[UnitView, ...]


class ListUnits(Request[Units], frozen=True):
    """Request the live units of a state, oldest first."""

    state: UnitState
    limit: int = 100


class DispatchView(Struct, frozen=True):
    """A dispatch; `rows` and `bytes` are sums over its units."""

    dispatch: int
    state: DispatchState
    units: tuple[int, ...]
    rows: int
    bytes: int
    error: str


class Dispatches(Struct, frozen=True):
    dispatches: tuple[DispatchView, ...]


class ListDispatches(Request[Dispatches], frozen=True):
    """Request all unpublished dispatches, oldest first."""


class BadRange(Struct, frozen=True):
    """`key`: the name of the file when it was first seen. `head`: the file's beginning. `places`: the sites and
    paths (below the root of the pattern) where the file was last seen; empty if the file is gone."""

    key: str
    generation: int
    span: Span
    head: str = ""
    places: tuple[tuple[str, str], ...] = ()


class BadRanges(Struct, frozen=True):
    """A page of bad ranges; `more`: whether there is a next page, after the last range."""

    ranges: tuple[BadRange, ...]
    more: bool


class ListBad(Request[BadRanges], frozen=True):
    """Request the bad ranges after this position, ordered by file and offset."""

    after_file: int = 0
    after_begin: int = -1
    limit: int = 1_000


# ---- changes ----------------------------------------------------------------------------------
class Retried(Struct, frozen=True):
    """`more`: whether to repeat the request. `dispatches`: the new dispatches with the units of failed dispatches."""

    units: tuple[int, ...]
    more: bool
    dispatches: tuple[int, ...] = ()


class RetryBad(Request[Retried], frozen=True):
    """Requeue at most `limit` bad ranges as units: all ranges, or the ranges of one root unit."""

    root: int | None = None
    limit: int = 1_000


class RetryFailed(Request[Retried], frozen=True):
    """Retry all failed units, or one of them, from the start.

    Without `unit`, units of failed dispatches go to Spark again in a dispatch with a new id, because a failed dispatch
    cannot be published.
    """

    unit: int | None = None
    limit: int = 1_000


class SiteSet(Struct, frozen=True):
    """`freed`: number of units that other sites may take immediately."""

    freed: int


class SetSite(Request[SiteSet], frozen=True):
    """Bring a site up or take it down. A site that is down gets no leases, and its units become ready immediately."""

    site: str
    up: bool


class SiteForgotten(Struct, frozen=True):
    """`more`: whether to repeat the request."""

    files: int
    more: bool


class ForgetSite(Request[SiteForgotten], frozen=True):
    """Forget the copies of at most `limit` files of a removed site.

    Raises LedgerError while processes of the site are active.
    """

    site: str
    limit: int = 1_000


class Pause(Request[Alive], frozen=True):
    """Stop or resume cutting and leasing units. Leased units are still committed and published."""

    paused: bool


class FoundRange(Struct, frozen=True):
    """A range in the lineage of an output or in a bad record; `source` names the unit in errors."""

    begin: int
    end: int
    source: str
    error: str = ""
    tries: int = 0
    root: int = 0


class FoundFile(Struct, frozen=True):
    key: str
    generation: int
    head: str
    done: tuple[FoundRange, ...]
    bad: tuple[FoundRange, ...] = ()
    #: See `SeenFile.birth`.
    birth: float = 0.0


class Rebuilt(Struct, frozen=True):
    """`units`: number of units made from missing ranges. The names of new output begin with `generation`."""

    generation: int
    files: int
    units: int
    done_bytes: int
    bad_bytes: int


class Rebuild(Request[Rebuilt], frozen=True):
    """Replace the content of the ledger with the found ranges. Only this transaction is as large as the ledger.

    `at_least`: the minimum for the new generation, above all found generations. `trial`: only check, and return the
    new generation. Raises LedgerError while workers are active, or if two published ranges overlap (naming both units).
    """

    config: Config
    files: tuple[FoundFile, ...]
    at_least: int = 1
    part: int = 0
    trial: bool = False
    #: See `Pipeline`: the random name of the new ledger, and its partition map.
    ledger: str = ""
    partitions: str = ""
