"""What workers, keepers and users ask of a ledger, and its answers (pure).

A request names the type of its answer: `Lease` is a `Request[Work | Halve | Idle]`. Every request may be repeated: the
ledger answers the last numbered one of a process again without acting twice. Fields are plain, so that an answer can be
kept as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from heronpy.ingest.ledger.types import PART, Config, Copy, DispatchState, File, Kind, Span, UnitState

A = TypeVar("A", covariant=True)


class Request(Generic[A]):
    """One transaction; `A` is its answer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Who:
    """Who asks: each start of a process is another incarnation of its task."""

    #: Unique over all sites, such as `clicks/clicks-worker-3`.
    task: str
    incarnation: str
    kind: Kind
    site: str = ""
    container: str = ""

    @property
    def name(self) -> str:
        return f"{self.task}#{self.incarnation}"


# ---- everybody ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Opened:
    """`config` is the one that holds from now on. `made`: the id of the next file of each ledger."""

    generation: int
    config: Config
    part: int = 0
    made: tuple[int, ...] = ()

    @property
    def is_new(self) -> bool:
        """No file has been seen by the ledger yet, nor by any of several."""
        return all(one % PART == 1 for one in self.made)


@dataclass(frozen=True, slots=True)
class Open(Request[Opened]):
    """Make the pipeline, or give it new numbers; the first request of a process.

    LedgerError when the pipeline has another pattern, or a circle of `after`.
    """

    config: Config
    #: Of a partitioned ledger, for ids that differ, and the generation of the others; they count when it is made.
    part: int = 0
    generation: int = 1


@dataclass(frozen=True, slots=True)
class Alive:
    generation: int
    paused: bool
    #: Of a partitioned ledger; see `Open`.
    part: int = 0


@dataclass(frozen=True, slots=True)
class ShowAlive(Request[Alive]):
    """To be asked each 5 s: a process that was not seen for 15 s loses its leases."""


# ---- keepers: files -------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file and where it is."""

    file: File
    copies: tuple[Copy, ...]


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """`after` of the next page is the last file's id; `more`: there is one."""

    files: tuple[KnownFile, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class ListFiles(Request[KnownFiles]):
    """What the ledger knows, by id; a keeper reads it when it starts."""

    after: int = 0
    limit: int = 1_000


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file that is new, has grown, moved or changed on a site.

    The scanner decides which file it is: it has the bytes. It names the `File` by key and generation, and says in
    `compared` which head of the ledger's row it has compared with the bytes ("" for a new file), so that the ledger
    refuses a decision that was made on an old row.
    """

    key: str
    generation: int
    path: str
    size: int
    inode: str
    head: str
    compared: str = ""
    tail: str = ""
    #: Seconds since it was last changed, for a new file: one older than the horizon is refused.
    age_s: float = 0.0
    mutated: bool = False
    #: Since 1970, the same for every keeper; it picks the entry of a partitioned ledger, which is else not needed.
    birth: float = 0.0


@dataclass(frozen=True, slots=True)
class GoneFile:
    """A file that a site has no more; ignored when the site's copy has another inode by now."""

    file: int
    inode: str


@dataclass(frozen=True, slots=True)
class Reported:
    """`known`: the rows of all files of the report as they are now, `stale` ones too.

    `stale`: indices of `seen` that were decided on an old row: decide again on `known`. `late`: indices that were
    refused because the file is older than the horizon.
    """

    known: tuple[KnownFile, ...]
    stale: tuple[int, ...]
    late: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReportScan(Request[Reported]):
    """The differences that a scan of the asker's site has found, at most `types.REPORT_MAX` files; duplicates
    change nothing, and a size never shrinks.

    `made`: up to which ids the asker knows all files, as `Opened` said first. Who has missed a file may take it for a
    new one when it was renamed, so new files of such an asker are stale. () for an asker beside which there is no other
    one; `generation` 0 likewise.
    """

    seen: tuple[SeenFile, ...] = ()
    gone: tuple[GoneFile, ...] = ()
    generation: int = 0
    made: tuple[int, ...] = ()


class Brake(StrEnum):
    """Why nothing is cut or leased now."""

    #: There is nothing to do.
    NOTHING = "nothing"
    #: What waits is too little and too young.
    YOUNG = "young"
    READY = "enough units are ready"
    UNPUBLISHED = "too much is not published yet"
    RATE = "the pipeline's bytes per second"
    PAUSED = "the pipeline is paused"
    SITE_DOWN = "this site is down"
    #: All that is ready waits for other pipelines,
    FAILED = "a unit has failed, and on_bad is fail"
    AFTER = "it waits for other pipelines"
    #: or for a later time, or another site.
    LATER = "later, or on another site"


@dataclass(frozen=True, slots=True)
class CutUnits:
    """`brake`: why no more were cut."""

    units: tuple[int, ...]
    brake: Brake


@dataclass(frozen=True, slots=True)
class Cut(Request[CutUnits]):
    """Make units of bytes that wait."""


# ---- keepers: publication -------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of a file in a unit; `path` is where the asker's site has it, "" if it does not."""

    file: int
    key: str
    generation: int
    begin: int
    end: int
    head: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """A committed unit: its rows are staged as `<generation>/<unit>-<winner>`."""

    unit: int
    winner: int
    generation: int
    rows: int
    bytes: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class FinishedUnits:
    units: tuple[Finished, ...]


@dataclass(frozen=True, slots=True)
class ListFinished(Request[FinishedUnits]):
    """Committed units that are in no dispatch, oldest first."""

    limit: int = 16


@dataclass(frozen=True, slots=True)
class Settled:
    """How many units were committed until now and are done, with their bytes and rows."""

    units: int
    bytes: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Published(Request[Settled]):
    """These units are visible in the output: their spans are done and their rows go. Unknown ones are ignored."""

    units: tuple[int, ...]
    generation: int


@dataclass(frozen=True, slots=True)
class OpenDispatch:
    id: int
    units: tuple[Finished, ...]


@dataclass(frozen=True, slots=True)
class OpenDispatches:
    """All that are open: the same ones for every keeper, until they are dispatched or fail."""

    dispatches: tuple[OpenDispatch, ...]


@dataclass(frozen=True, slots=True)
class MakeDispatch(Request[OpenDispatches]):
    """Group what is committed, if it is enough or old enough; then all open dispatches."""


@dataclass(frozen=True, slots=True)
class Dispatched(Request[Settled]):
    """The dispatch is visible in the output. An unknown one is ignored."""

    id: int
    generation: int


@dataclass(frozen=True, slots=True)
class DispatchFailed(Request[Settled]):
    """It fails for good: its units wait until a user retries them, in a dispatch of another id."""

    id: int
    generation: int
    error: str


@dataclass(frozen=True, slots=True)
class Live:
    units: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WhichLive(Request[Live]):
    """Which of these units still have a row: stages of all others may be removed."""

    units: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Collected:
    """`lost`: bytes of files that went before they were processed; they are bad now. `more`: ask again."""

    files: int
    lost: int
    more: bool


@dataclass(frozen=True, slots=True)
class Collect(Request[Collected]):
    """Forget files that have been gone for `days`, and processes that were not seen for an hour; what nobody can read
    any more becomes bad."""


# ---- workers --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """A range of a file: of a line, with its end."""

    file: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Bad:
    """These ranges are bad now: write them down and hand out dead letters. `units`: what is left of the unit."""

    root: int
    tries: int
    ranges: tuple[Line, ...]
    error: str
    units: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Buried:
    """Bytes that are bad now, and the chunks of their unit as it was."""

    bad: Bad
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class Returned:
    """`failed`: those of them that have failed by it. `buried`: what became bad by it."""

    units: tuple[int, ...]
    failed: tuple[int, ...] = ()
    buried: tuple[Buried, ...] = ()


@dataclass(frozen=True, slots=True)
class GiveBack(Request[Returned]):
    """Leases of earlier incarnations of the asker's task end, or its `own`.

    `counts`: the process died of itself (crash, hang, memory), so each is a try; preemption, a lost host or an orderly
    stop is not. `line`: at which line of `unit` it was when it died, if that is known.
    """

    counts: bool
    error: str
    own: bool = False
    unit: int = 0
    line: Line | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """Process these chunks, stage the rows, commit. `until_s`: seconds until another may take a backup."""

    unit: int
    attempt: int
    generation: int
    bytes: int
    chunks: tuple[Chunk, ...]
    until_s: float
    #: Tries before this one, and whether it is a backup of a holder that may still be at work.
    tries: int = 0
    backup: bool = False


@dataclass(frozen=True, slots=True)
class Halve:
    """Do not process these chunks, which kill their worker or fail without a line: find the line start nearest to the
    middle of all their bytes, and say it by `SplitAt`."""

    unit: int
    attempt: int
    generation: int
    bytes: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to do; ask again after `wait_s`. `open`: units that are not published, by this pipeline."""

    brake: Brake
    wait_s: float
    open: int


@dataclass(frozen=True, slots=True)
class Lease(Request[Work | Halve | Idle]):
    """The oldest unit that the asker may process."""


class Lost(StrEnum):
    """Why an attempt is in vain: its stage is to be discarded."""

    OTHER_WON = "another attempt has won"
    GONE = "the unit is published, or was taken apart"
    GENERATION = "the ledger was rebuilt since"


@dataclass(frozen=True, slots=True)
class Committed:
    """`lost`: None when this attempt counts, also if it did before."""

    lost: Lost | None = None


@dataclass(frozen=True, slots=True)
class Commit(Request[Committed]):
    """All rows of an attempt are staged and on disk. `seconds`: how long it took."""

    unit: int
    attempt: int
    generation: int
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Again:
    """The unit is tried again. `tries`: how often it was."""

    tries: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The unit was taken apart into these."""

    units: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The unit has failed: too much below its root is bad, or the pipeline says `on_bad: fail`."""

    unit: int
    error: str


Judged = Again | Bad | Taken | Failed | Committed


@dataclass(frozen=True, slots=True)
class TryFailed(Request[Judged]):
    """User code has raised. `line`: at which line; None: it takes whole chunks. `Committed` when it does not matter."""

    unit: int
    attempt: int
    generation: int
    error: str
    line: Line | None = None


@dataclass(frozen=True, slots=True)
class SplitAt(Request[Judged]):
    """The answer to `Halve`: the unit ends before this line start and another begins there.

    `begin` None: there is no line start inside, so its one line, all of it, is bad.
    """

    unit: int
    attempt: int
    generation: int
    file: int = 0
    begin: int | None = None


# ---- users ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Retried:
    """`more`: ask again. `dispatches`: the new ones that have the units of failed ones."""

    units: tuple[int, ...]
    more: bool
    dispatches: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RetryBad(Request[Retried]):
    """Make units of bad ranges: of all, or of those found below one root unit, at most `limit` ranges."""

    root: int | None = None
    limit: int = 1_000


@dataclass(frozen=True, slots=True)
class RetryFailed(Request[Retried]):
    """Failed units, or one of them, are tried again from the start.

    Without `unit` those of failed dispatches go to Spark again, in a dispatch of another id: nothing of the failed one
    can be published any more.
    """

    unit: int | None = None
    limit: int = 1_000


@dataclass(frozen=True, slots=True)
class SiteSet:
    """`freed`: units that others may take at once."""

    freed: int


@dataclass(frozen=True, slots=True)
class SetSite(Request[SiteSet]):
    """Down: no leases on that site, and what it holds is ready at once."""

    site: str
    up: bool


@dataclass(frozen=True, slots=True)
class SiteForgotten:
    """`more`: ask again."""

    files: int
    more: bool


@dataclass(frozen=True, slots=True)
class ForgetSite(Request[SiteForgotten]):
    """A site that will not come back: its copies of at most `limit` files are forgotten, as if they were gone there.

    LedgerError while processes of it are seen.
    """

    site: str
    limit: int = 1_000


@dataclass(frozen=True, slots=True)
class Pause(Request[Alive]):
    """No cuts and no leases, or both again; what is leased is committed and published."""

    paused: bool


@dataclass(frozen=True, slots=True)
class FoundRange:
    """A range in the lineage of an output, or in a bad record; `source` names the unit in an error."""

    begin: int
    end: int
    source: str
    error: str = ""
    tries: int = 0
    root: int = 0


@dataclass(frozen=True, slots=True)
class FoundFile:
    key: str
    generation: int
    head: str
    done: tuple[FoundRange, ...]
    bad: tuple[FoundRange, ...] = ()
    #: See `SeenFile.birth`.
    birth: float = 0.0


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """`units`: made of the holes. From now on every name of an output begins with this generation."""

    generation: int
    files: int
    units: int
    done_bytes: int
    bad_bytes: int


@dataclass(frozen=True, slots=True)
class Rebuild(Request[Rebuilt]):
    """Forget all and begin with what was found; the one transaction that is as large as the ledger.

    `at_least`: above the highest generation that was found. LedgerError while workers are seen, or when two published
    ranges overlap: it names both units.
    """

    config: Config
    files: tuple[FoundFile, ...]
    at_least: int = 1
    part: int = 0


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
    key: str
    generation: int
    span: Span


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


#: Requests that change nothing.
READS: tuple[type[Request[object]], ...] = (
    ListFiles,
    ListFinished,
    WhichLive,
    Show,
    ListUnits,
    ListBad,
    ListDispatches,
)
#: Requests that may be carried out twice, with the same effect and a true answer: they need no number.
UNNUMBERED: tuple[type[Request[object]], ...] = (
    *READS,
    Open,
    ShowAlive,
    ReportScan,
    Cut,
    Published,
    MakeDispatch,
    Dispatched,
    DispatchFailed,
    Collect,
)
