"""What commands ask of a ledger: what they show, and what they have done. Pure."""

from __future__ import annotations

from msgspec import Struct

from heronpy.ingest.ledger.requests import Alive, Chunk, Request
from heronpy.ingest.ledger.types import Config, DispatchState, Span, UnitState


class SiteView(Struct, frozen=True):
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


class AfterView(Struct, frozen=True):
    """A pipeline for which units wait: `whole`, for all that was there when both had begun, or each for what is older.

    `waits`: why they wait now, as a clause; "" when they do not.
    """

    pipeline: str
    whole: bool
    waits: str


class Figures(Struct, frozen=True):
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


class Show(Request[Figures], frozen=True):
    """The figures of the pipeline."""


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
    #: What it waits for, one clause each.
    waits: tuple[str, ...] = ()


class Units(Struct, frozen=True):
    units: tuple[UnitView, ...]


class ListUnits(Request[Units], frozen=True):
    """Live units of a state, oldest first."""

    state: UnitState
    limit: int = 100


class DispatchView(Struct, frozen=True):
    """`rows` and `bytes` are those of its units."""

    dispatch: int
    state: DispatchState
    units: tuple[int, ...]
    rows: int
    bytes: int
    error: str


class Dispatches(Struct, frozen=True):
    dispatches: tuple[DispatchView, ...]


class ListDispatches(Request[Dispatches], frozen=True):
    """All dispatches that are not published, oldest first."""


class BadRange(Struct, frozen=True):
    """`key`: the name of the file when it was first seen. `head`: how the file begins. `places`: site and path below
    the root of the pattern where it was last seen; none when it is gone."""

    key: str
    generation: int
    span: Span
    head: str = ""
    places: tuple[tuple[str, str], ...] = ()


class BadRanges(Struct, frozen=True):
    """`more`: ask again after the last one."""

    ranges: tuple[BadRange, ...]
    more: bool


class ListBad(Request[BadRanges], frozen=True):
    """Bad ranges behind this one, in the order of file and offset."""

    after_file: int = 0
    after_begin: int = -1
    limit: int = 1_000


# ---- acting ----------------------------------------------------------------------------------
class Retried(Struct, frozen=True):
    """`more`: ask again. `dispatches`: the new ones that have the units of failed ones."""

    units: tuple[int, ...]
    more: bool
    dispatches: tuple[int, ...] = ()


class RetryBad(Request[Retried], frozen=True):
    """Make units of bad ranges: of all, or of those found below one root unit, at most `limit` ranges."""

    root: int | None = None
    limit: int = 1_000


class RetryFailed(Request[Retried], frozen=True):
    """Failed units, or one of them, are tried again from the start.

    Without `unit` those of failed dispatches go to Spark again, in a dispatch of another id: nothing of the failed one
    can be published any more.
    """

    unit: int | None = None
    limit: int = 1_000


class SiteSet(Struct, frozen=True):
    """`freed`: units that others may take at once."""

    freed: int


class SetSite(Request[SiteSet], frozen=True):
    """Down: no leases on that site, and what it holds is ready at once."""

    site: str
    up: bool


class SiteForgotten(Struct, frozen=True):
    """`more`: ask again."""

    files: int
    more: bool


class ForgetSite(Request[SiteForgotten], frozen=True):
    """A site that will not come back: its copies of at most `limit` files are forgotten, as if they were gone there.

    LedgerError while processes of it are seen.
    """

    site: str
    limit: int = 1_000


class Pause(Request[Alive], frozen=True):
    """No cuts and no leases, or both again; what is leased is committed and published."""

    paused: bool


class FoundRange(Struct, frozen=True):
    """A range in the lineage of an output, or in a bad record; `source` names the unit in an error."""

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
    """`units`: made of the holes. From now on every name of an output begins with this generation."""

    generation: int
    files: int
    units: int
    done_bytes: int
    bad_bytes: int


class Rebuild(Request[Rebuilt], frozen=True):
    """Forget all and begin with what was found; the one transaction that is as large as the ledger.

    `at_least`: above the highest generation that was found. LedgerError while workers are seen, or when two published
    ranges overlap: it names both units. `trial`: only say that, or which generation it would be; nothing changes.
    """

    config: Config
    files: tuple[FoundFile, ...]
    at_least: int = 1
    part: int = 0
    trial: bool = False
    #: See `Pipeline`: the random name of what is made, and its partition map.
    ledger: str = ""
    partitions: str = ""
