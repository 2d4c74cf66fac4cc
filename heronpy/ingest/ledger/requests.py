"""What workers, keepers and users ask of a ledger, and its answers. Pure.

A request names the type of its answer: `Lease` is a `Request[Work | Halve | Idle]`. Every request may be repeated: the
ledger answers the last numbered one of a process again without acting twice. Fields are plain, so that an answer can be
kept as JSON. What commands ask is in `commands`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, TypeVar

from msgspec import Struct

from heronpy.ingest.ledger.types import PART, Config, Copy, File, Kind

A = TypeVar("A", covariant=True)


class Request(Struct, Generic[A], frozen=True):
    """One transaction; `A` is its answer."""


class Who(Struct, frozen=True):
    """Who asks: each start of a process is another incarnation of its task."""

    #: Unique over all sites, such as `clicks/clicks-worker-3`.
    task: str
    incarnation: str
    kind: Kind
    site: str = ""
    container: str = ""
    #: The version of the partition map by which it works; -1: it gives no file to a ledger.
    partitions: int = -1

    @property
    def name(self) -> str:
        return f"{self.task}#{self.incarnation}"


# ---- joining ---------------------------------------------------------------------------------
class Given(Struct, frozen=True):
    """How far one ledger is: the id of its next unit."""

    generation: int
    next_unit: int


class Opened(Struct, frozen=True):
    """`config` is the one that holds from now on. `made`: the id of the next file of each ledger. `given`: how far each
    of them is."""

    generation: int
    config: Config
    part: int = 0
    made: tuple[int, ...] = ()
    given: tuple[Given, ...] = ()
    #: See `Pipeline`: of them the newest partition map.
    ledger: str = ""
    partitions: str = ""

    @property
    def is_new(self) -> bool:
        """No file has been seen by the ledger yet, nor by any of several."""
        return all(one % PART == 1 for one in self.made)


class Open(Request[Opened], frozen=True):
    """Make the pipeline, or give it new numbers; the first request of a process.

    LedgerError when the pipeline has another pattern, or a circle of `after`.
    """

    config: Config
    #: Of a partitioned ledger, for ids that differ, and the generation of the others; they count when it is made.
    part: int = 0
    generation: int = 1
    #: A random name, for a ledger that has none yet: see `Pipeline.ledger`.
    ledger: str = ""
    #: The partition map by which the asker works: the ledger takes it if it is newer than its own.
    partitions: str = ""


class Alive(Struct, frozen=True):
    generation: int
    paused: bool
    #: Of a partitioned ledger; see `Open`.
    part: int = 0


class ShowAlive(Request[Alive], frozen=True):
    """To be asked each 5 s: a process that was not seen for 15 s loses its leases."""


class Leave(Request[Alive], frozen=True):
    """The last request of a process that ends in order: what it holds is ready again, and from now on it counts as one
    that was not seen for long."""


# ---- files -----------------------------------------------------------------------------------
class KnownFile(Struct, frozen=True):
    """A file and where it is."""

    file: File
    copies: tuple[Copy, ...]


class KnownFiles(Struct, frozen=True):
    """`after` of the next page is the last file's id; `more`: there is one."""

    files: tuple[KnownFile, ...]
    more: bool


class ListFiles(Request[KnownFiles], frozen=True):
    """What the ledger knows, by id; a keeper reads it when it starts."""

    after: int = 0
    limit: int = 1_000


class SeenFile(Struct, frozen=True):
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


class GoneFile(Struct, frozen=True):
    """A file that a site has no more; ignored when the site's copy has another inode by now."""

    file: int
    inode: str


class Reported(Struct, frozen=True):
    """`known`: the rows of all files of the report as they are now, `stale` ones too.

    `stale`: indices of `seen` that were decided on an old row: decide again on `known`. `late`: indices that were
    refused because the file is older than the horizon.
    """

    known: tuple[KnownFile, ...]
    stale: tuple[int, ...]
    late: tuple[int, ...]


class ReportScan(Request[Reported], frozen=True):
    """The differences that a scan of the asker's site has found, at most `types.REPORT_MAX` files; duplicates
    change nothing, and a size never shrinks.

    `made`: up to which ids the asker knows all files, as `Opened` said first. Who has missed a file may take it for a
    new one when it was renamed, so new files of such an asker are stale. () for an asker beside which there is no other
    one; `generation` 0 likewise.
    `run`: the bounded run of the asker. When it is sealed, no file grows and no new one is taken: such a file is in no
    list of the answer.
    """

    seen: tuple[SeenFile, ...] = ()
    gone: tuple[GoneFile, ...] = ()
    generation: int = 0
    made: tuple[int, ...] = ()
    run: str = ""


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


class CutUnits(Struct, frozen=True):
    """`brake`: why no more were cut. `now`: the time of the ledger, for the next look. `over`: all that the asker's run
    has to process is published, bad or failed."""

    units: tuple[int, ...]
    brake: Brake
    now: float = 0.0
    over: bool = False


class Cut(Request[CutUnits], frozen=True):
    """Make units of bytes that wait.

    `looked`: all that the asker's site had in its files at that time of the ledger is reported; None: it is not known.
    `closed`: it is published, too, and nothing more will come. `unfinished`: bytes of last lines without an end in all
    files of the site; None: not known. `copies`: files that are taken for copies of others.
    `run`: the bounded run of the asker; "" for an endless one. `complete`: its last look has found all that its site
    had, and that is reported, so that the run is sealed.
    """

    looked: float | None = None
    closed: bool = False
    unfinished: int | None = None
    copies: int = 0
    run: str = ""
    complete: bool = False


# ---- publication -----------------------------------------------------------------------------
class Chunk(Struct, frozen=True):
    """A range of a file in a unit; `path` is where the asker's site has it, "" if it does not, and `tail` says what the
    bytes there are that it has seen last."""

    file: int
    key: str
    generation: int
    begin: int
    end: int
    head: str
    path: str = ""
    tail: str = ""


class Finished(Struct, frozen=True):
    """A committed unit: its rows are staged as `<generation>/<unit>-<winner>`."""

    unit: int
    winner: int
    generation: int
    rows: int
    bytes: int
    chunks: tuple[Chunk, ...]
    #: See `Pipeline.ledger`.
    ledger: str = ""


class FinishedUnits(Struct, frozen=True):
    units: tuple[Finished, ...]


class ListFinished(Request[FinishedUnits], frozen=True):
    """Committed units that are in no dispatch, oldest first; not those of `besides`, of which the stage is gone."""

    limit: int = 16
    besides: tuple[int, ...] = ()


class Settled(Struct, frozen=True):
    """How many units were committed until now and are done, with their bytes and rows."""

    units: int
    bytes: int = 0
    rows: int = 0


class Published(Request[Settled], frozen=True):
    """These units are visible in the output: their spans are done and their rows go. Unknown ones are ignored."""

    units: tuple[int, ...]
    generation: int


class OpenDispatch(Struct, frozen=True):
    id: int
    units: tuple[Finished, ...]


class OpenDispatches(Struct, frozen=True):
    """All that are open: the same ones for every keeper, until they are dispatched or fail."""

    dispatches: tuple[OpenDispatch, ...]


class MakeDispatch(Request[OpenDispatches], frozen=True):
    """Group what is committed, if it is enough or old enough; then all open dispatches."""


class Dispatched(Request[Settled], frozen=True):
    """The dispatch is visible in the output. An unknown one is ignored."""

    id: int
    generation: int


class DispatchFailed(Request[Settled], frozen=True):
    """It fails for good: its units wait until a user retries them, in a dispatch of another id."""

    id: int
    generation: int
    error: str


class Live(Struct, frozen=True):
    units: tuple[int, ...]


class WhichLive(Request[Live], frozen=True):
    """Which of these units still have a row: stages of all others may be removed."""

    units: tuple[int, ...]


class Collected(Struct, frozen=True):
    """`lost`: bytes of files that went before they were processed; they are bad now. `more`: ask again."""

    files: int
    lost: int
    more: bool


class Collect(Request[Collected], frozen=True):
    """Forget files that have been gone for `days`, and processes that were not seen for an hour; what nobody can read
    any more becomes bad."""


# ---- work ------------------------------------------------------------------------------------
class Line(Struct, frozen=True):
    """A range of a file: of a line, with its end."""

    file: int
    begin: int
    end: int


class Bad(Struct, frozen=True):
    """These ranges are bad now, which were all of their unit: write them down and hand out dead letters."""

    root: int
    tries: int
    ranges: tuple[Line, ...]
    error: str


class Buried(Struct, frozen=True):
    """Bytes that are bad now, and the chunks of their unit as it was."""

    bad: Bad
    chunks: tuple[Chunk, ...]


class Returned(Struct, frozen=True):
    """`failed`: those of them that have failed by it. `buried`: what became bad by it."""

    units: tuple[int, ...]
    failed: tuple[int, ...] = ()
    buried: tuple[Buried, ...] = ()


class GiveBack(Request[Returned], frozen=True):
    """Leases of earlier incarnations of the asker's task end, or its `own`.

    `counts`: the process died of itself (crash, hang, memory), so each is a try; preemption, a lost host or an orderly
    stop is not. `line`: at which line of `unit` it was when it died, if that is known.
    """

    counts: bool
    error: str
    own: bool = False
    unit: int = 0
    line: Line | None = None


class Work(Struct, frozen=True):
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
    #: See `Pipeline.ledger`.
    ledger: str = ""


class Halve(Struct, frozen=True):
    """Do not process these chunks, which kill their worker or fail without a line: find the line start nearest to the
    middle of all their bytes, and say it by `SplitAt`."""

    unit: int
    attempt: int
    generation: int
    bytes: int
    chunks: tuple[Chunk, ...]


class Idle(Struct, frozen=True):
    """Nothing to do; ask again after `wait_s`. `open`: units that are not published, by this pipeline."""

    brake: Brake
    wait_s: float
    open: int


class Lease(Request[Work | Halve | Idle], frozen=True):
    """The oldest unit that the asker may process."""


class Lost(StrEnum):
    """Why an attempt is in vain: its stage is to be discarded."""

    OTHER_WON = "another attempt has won"
    GONE = "the unit is published, or was taken apart"
    GENERATION = "the ledger was rebuilt since"


class Committed(Struct, frozen=True):
    """`lost`: None when this attempt counts, also if it did before."""

    lost: Lost | None = None


class Commit(Request[Committed], frozen=True):
    """All rows of an attempt are staged and on disk. `seconds`: how long it took."""

    unit: int
    attempt: int
    generation: int
    rows: int
    seconds: float


class Again(Struct, frozen=True):
    """The unit is tried again. `tries`: how often it was."""

    tries: int


class Taken(Struct, frozen=True):
    """The unit was taken apart into these."""

    units: tuple[int, ...]


class Failed(Struct, frozen=True):
    """The unit has failed: too much below its root is bad, or the pipeline says `on_bad: fail`."""

    unit: int
    error: str


Judged = Again | Bad | Taken | Failed | Committed


class TryFailed(Request[Judged], frozen=True):
    """User code has raised. `line`: at which line; None: it takes whole chunks. `rows`: how many there were before.

    `Committed` when it does not matter.
    """

    unit: int
    attempt: int
    generation: int
    error: str
    line: Line | None = None
    rows: int = 0


class SplitAt(Request[Judged], frozen=True):
    """The answer to `Halve`: the unit ends before this line start and another begins there.

    `begin` None: there is no line start inside, so its one line, all of it, is bad.
    """

    unit: int
    attempt: int
    generation: int
    file: int = 0
    begin: int | None = None
