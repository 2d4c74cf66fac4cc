"""Requests that workers, keepers and users send to a ledger, and the answers. Pure.

A request names the type of its answer: `Lease` is a `Request[Work | Halve | Idle]`. Every request may be repeated: if a
process repeats its last numbered request, the ledger repeats the answer without acting twice. Fields are plain, so that
an answer can be stored as JSON. The requests of commands are in `commands`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, TypeVar

from msgspec import Struct

from heronpy.ingest.ledger.types import PART, Config, Copy, File, Kind

A = TypeVar("A", covariant=True)


class Request(Struct, Generic[A], frozen=True):
    """One transaction; `A` is the type of its answer."""


class Who(Struct, frozen=True):
    """The client: each start of a process is a new incarnation of its task."""

    #: Unique over all sites, such as `clicks/clicks-worker-3`.
    task: str
    incarnation: str
    kind: Kind
    site: str = ""
    container: str = ""
    #: The version of the partition map that the client uses; -1 if the client adds no files to a ledger.
    partitions: int = -1

    @property
    def name(self) -> str:
        return f"{self.task}#{self.incarnation}"

    @property
    def place(self) -> str:
        """The container's name, which differs between sites; "" if unknown."""
        return f"{self.site}/{self.container}" if self.site and self.container else self.container


# ---- joining ---------------------------------------------------------------------------------
class Given(Struct, frozen=True):
    """Progress of one ledger: the id of its next unit."""

    generation: int
    next_unit: int


class Opened(Struct, frozen=True):
    """The answer to `Open`. `config` applies from now on. `made`: the id of the next file in each ledger. `given`: the
    progress of each ledger."""

    generation: int
    config: Config
    part: int = 0
    made: tuple[int, ...] = ()
    given: tuple[Given, ...] = ()
    #: See `Pipeline`; `partitions` is the newest partition map of all ledgers.
    ledger: str = ""
    partitions: str = ""

    @property
    def is_new(self) -> bool:
        """Whether none of the ledgers contains a file of the pipeline yet."""
        return all(one % PART == 1 for one in self.made)


class Open(Request[Opened], frozen=True):
    """The first request of a process: creates the pipeline, or changes its configuration.

    Raises LedgerError if the pipeline has another pattern, or if `after` forms a cycle.
    """

    config: Config
    #: The part number of a new partitioned ledger, for disjoint ids, and the generation of the other ledgers.
    part: int = 0
    generation: int = 1
    #: A random name for a ledger without a name; see `Pipeline.ledger`.
    ledger: str = ""
    #: The client's partition map; the ledger adopts it if it is newer than its own.
    partitions: str = ""


class Alive(Struct, frozen=True):
    generation: int
    paused: bool
    #: The part number of a partitioned ledger; see `Open`.
    part: int = 0
    #: Whether the client's attempt no longer counts, so that it may stop.
    in_vain: bool = False


class ShowAlive(Request[Alive], frozen=True):
    """A heartbeat, sent every 5 s: a process that has not been seen for 15 s loses its leases.

    A worker sends a heartbeat every second during an attempt, and names the attempt."""

    unit: int = 0
    attempt: int = 0
    generation: int = 0


class Leave(Request[Alive], frozen=True):
    """The last request of a process that ends gracefully: its units become ready again, and it counts as silent."""


# ---- files -----------------------------------------------------------------------------------
class KnownFile(Struct, frozen=True):
    """A file, and its copies on all sites, ordered by site."""

    file: File
    copies: tuple[Copy, ...]


class KnownFiles(Struct, frozen=True):
    """A page of files. If `more` is true, request the next page with the last file's id as `after`."""

    files: tuple[KnownFile, ...]
    more: bool


class ListFiles(Request[KnownFiles], frozen=True):
    """Request the known files, ordered by id; sent when a keeper starts."""

    after: int = 0
    limit: int = 1_000


class SeenFile(Struct, frozen=True):
    """A file that is new, or has grown, moved or changed on a site.

    The scanner identifies the file, because only the scanner has the bytes. `key` and `generation` name the `File`.
    `compared` is the head that the scanner has read from the ledger and compared with the bytes ("" for a new file), so
    that the ledger refuses a decision based on an old row.
    """

    key: str
    generation: int
    path: str
    size: int
    inode: str
    head: str
    compared: str = ""
    tail: str = ""
    #: For a new file, seconds since its last change: a file older than the horizon is refused.
    age_s: float = 0.0
    mutated: bool = False
    #: Birth in seconds since 1970, the same for every keeper; it selects the entry of a partitioned ledger.
    birth: float = 0.0


class GoneFile(Struct, frozen=True):
    """A file that a site no longer has; ignored if the site's copy has another inode by now."""

    file: int
    inode: str


class Reported(Struct, frozen=True):
    """`known`: the current rows of all files of the report, including `stale` ones.

    `stale`: indices of `seen` whose decision was based on an old row; decide again with `known`. `late`: indices that
    were refused because the file is older than the horizon.
    """

    known: tuple[KnownFile, ...]
    stale: tuple[int, ...]
    late: tuple[int, ...]


class ReportScan(Request[Reported], frozen=True):
    """Report the differences that a scan of the client's site has found, for at most `types.REPORT_MAX` files.

    Duplicates change nothing, and sizes never shrink. `made`: the ids up to which the client has the rows of all files,
    initially from `Opened`. A client that has missed a file may mistake it for a new file after a rename, so new files
    of such a client are stale. The only client of a ledger may send () and `generation` 0. `run`: the bounded run of
    the client. Once the run is sealed, files do not grow and new files are not accepted; the answer lists no such
    files.
    """

    seen: tuple[SeenFile, ...] = ()
    gone: tuple[GoneFile, ...] = ()
    generation: int = 0
    made: tuple[int, ...] = ()
    run: str = ""


class Brake(StrEnum):
    """The reason why no units are cut or leased now."""

    #: There is no work.
    NOTHING = "nothing"
    #: The waiting bytes are too few and too young.
    YOUNG = "young"
    READY = "enough units are ready"
    UNPUBLISHED = "too much output is not published yet"
    RATE = "the pipeline's bytes per second"
    PAUSED = "the pipeline is paused"
    SITE_DOWN = "this site is down"
    FAILED = "a unit has failed, and on_bad is 'fail'"
    SLOW = "this container is slow, and other containers will be faster"
    #: All ready units wait for other pipelines.
    AFTER = "the pipeline waits for other pipelines"
    #: The ready units wait for a later time or another site.
    LATER = "later, or on another site"


class CutUnits(Struct, frozen=True):
    """The answer to `Cut`. `brake`: the reason why no more units were cut. `now`: the time of the ledger, for the next
    scan. `over`: whether all bytes of the client's run are published, bad or failed."""

    units: tuple[int, ...]
    brake: Brake
    now: float = 0.0
    over: bool = False


class Cut(Request[CutUnits], frozen=True):
    """Create units from waiting bytes.

    `looked`: the time of the ledger up to which all bytes of the client's site are reported; None if unknown.
    `closed`: whether these bytes are also published, and no more bytes will follow. `unfinished`: bytes of unfinished
    last lines in all files of the site; None if unknown. `copies`: number of files that are considered copies.
    `run`: the bounded run of the client; "" for an endless run. `complete`: whether the client's last scan found and
    reported all files of the site, so that the run is sealed.
    """

    looked: float | None = None
    closed: bool = False
    unfinished: int | None = None
    copies: int = 0
    run: str = ""
    complete: bool = False


# ---- publication -----------------------------------------------------------------------------
class Chunk(Struct, frozen=True):
    """A range of a file in a unit; `path` is the file's path on the client's site ("" for none), and `tail` describes
    the last bytes seen there."""

    file: int
    key: str
    generation: int
    begin: int
    end: int
    head: str
    path: str = ""
    tail: str = ""


class Finished(Struct, frozen=True):
    """A committed unit, with its rows staged as `<generation>/<unit>-<winner>`."""

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
    """Request committed units without a dispatch, oldest first, except `besides`, whose stages are missing."""

    limit: int = 16
    besides: tuple[int, ...] = ()


class Settled(Struct, frozen=True):
    """The units that changed from committed to done: their number, bytes and rows."""

    units: int
    bytes: int = 0
    rows: int = 0


class Published(Request[Settled], frozen=True):
    """Report units that are visible in the output; their rows are removed. Unknown ids are ignored."""

    units: tuple[int, ...]
    generation: int


class OpenDispatch(Struct, frozen=True):
    id: int
    units: tuple[Finished, ...]


class OpenDispatches(Struct, frozen=True):
    """All dispatches that are neither published nor failed. Every keeper gets the same dispatches."""

    dispatches: tuple[OpenDispatch, ...]


class MakeDispatch(Request[OpenDispatches], frozen=True):
    """Group committed units, if they are large or old enough; the answer contains all open dispatches."""


class Dispatched(Request[Settled], frozen=True):
    """Report that the dispatch is visible in the output. An unknown id is ignored."""

    id: int
    generation: int


class DispatchFailed(Request[Settled], frozen=True):
    """Report that a dispatch has failed permanently: its units wait until a user retries them in another dispatch."""

    id: int
    generation: int
    error: str


class Live(Struct, frozen=True):
    units: tuple[int, ...]


class WhichLive(Request[Live], frozen=True):
    """Request those of these units that still have a row; the stages of all other units may be removed."""

    units: tuple[int, ...]


class Collected(Struct, frozen=True):
    """`lost`: bytes of files that were deleted unprocessed; now bad. `more`: whether to repeat the request."""

    files: int
    lost: int
    more: bool


class Collect(Request[Collected], frozen=True):
    """Forget files that have been gone for `days`, and processes not seen for an hour; unreadable bytes become bad."""


# ---- work ------------------------------------------------------------------------------------
class Line(Struct, frozen=True):
    """A range of a file that contains one line, including its line end."""

    file: int
    begin: int
    end: int


class Bad(Struct, frozen=True):
    """All ranges of a unit are now bad: record and report them."""

    root: int
    tries: int
    ranges: tuple[Line, ...]
    error: str


class Buried(Struct, frozen=True):
    """Bytes that have become bad, and the former chunks of their unit."""

    bad: Bad
    chunks: tuple[Chunk, ...]


class Returned(Struct, frozen=True):
    """`failed`: units that the request made fail. `buried`: bytes that the request made bad."""

    units: tuple[int, ...]
    failed: tuple[int, ...] = ()
    buried: tuple[Buried, ...] = ()


class GiveBack(Request[Returned], frozen=True):
    """End the leases of earlier incarnations of the client's task or, with `own`, the client's leases.

    `counts`: whether the process failed by itself (crash, hang, out of memory), so that each lease counts as a
    try; preemption, a lost host or a graceful stop do not count. `line`: the line of `unit` at which the process died,
    if known. `memory`: whether the process ran out of memory, which another try rarely avoids.
    """

    counts: bool
    error: str
    own: bool = False
    unit: int = 0
    line: Line | None = None
    memory: bool = False


#: Beginning of the error of a unit whose worker process has ended.
ENDED = "the worker ended: "


class Work(Struct, frozen=True):
    """Process these chunks, stage the rows, and commit. `until_s`: seconds until a backup may start."""

    unit: int
    attempt: int
    generation: int
    bytes: int
    chunks: tuple[Chunk, ...]
    until_s: float
    #: Number of earlier tries, and whether this attempt is the backup of an attempt that may still be running.
    tries: int = 0
    backup: bool = False
    #: See `Pipeline.ledger`.
    ledger: str = ""
    #: Whether the last try ended with an exception, so that its process survived.
    raised: bool = False


class Halve(Struct, frozen=True):
    """Do not process these chunks, which killed their worker or failed without naming a line. Find the line start
    nearest to the middle of the bytes, and send `SplitAt`.
    """

    unit: int
    attempt: int
    generation: int
    bytes: int
    chunks: tuple[Chunk, ...]


class Idle(Struct, frozen=True):
    """There is no unit for this worker; repeat the request after `wait_s` seconds. `open`: number of unpublished
    units of this pipeline."""

    brake: Brake
    wait_s: float
    open: int


class Lease(Request[Work | Halve | Idle], frozen=True):
    """Request the oldest unit that the client may process."""


class Lost(StrEnum):
    """The reason why an attempt no longer counts, so that its stage is discarded."""

    OTHER_WON = "another attempt has won"
    GONE = "the unit is published, or was split"
    GENERATION = "the ledger was rebuilt in the meantime"


class Committed(Struct, frozen=True):
    """`lost` is None if this attempt counts, even if the request was repeated."""

    lost: Lost | None = None


class Commit(Request[Committed], frozen=True):
    """Report that all rows of an attempt are staged and on disk. `seconds`: the duration of the attempt."""

    unit: int
    attempt: int
    generation: int
    rows: int
    seconds: float


class Again(Struct, frozen=True):
    """The unit will be tried again. `tries`: number of previous tries."""

    tries: int


class Taken(Struct, frozen=True):
    """The unit was split into these units."""

    units: tuple[int, ...]


class Failed(Struct, frozen=True):
    """The unit has failed: its root unit has too many bad ranges, or the pipeline has `on_bad: fail`."""

    unit: int
    error: str


Judged = Again | Bad | Taken | Failed | Committed


class TryFailed(Request[Judged], frozen=True):
    """Report that user code has raised an exception. `line`: the failed line, or None if the code processes whole
    chunks. `rows`: number of rows before the error. The answer is `Committed` if the failure has no effect.
    """

    unit: int
    attempt: int
    generation: int
    error: str
    line: Line | None = None
    rows: int = 0


class SplitAt(Request[Judged], frozen=True):
    """The response to `Halve`: the unit ends before this line start, where another unit begins. If `begin` is None, the
    unit has only one line, which is bad.
    """

    unit: int
    attempt: int
    generation: int
    file: int = 0
    begin: int | None = None


# ---- files and units from a keeper instead of a scan ------------------------------------
class Share(Struct, frozen=True):
    """A unit of a list: a range of whole lines, and the bytes of work that these lines represent."""

    begin: int
    end: int
    weight: int


class Entered(Struct, frozen=True):
    """Number of files that are new to the ledger, and of units created from these files."""

    files: int
    units: int = 0


class EnterList(Request[Entered], frozen=True):
    """Create units from a list, the only file of its pipeline, and seal the pipeline for this run. An empty list has no
    file. Repeating the request changes nothing."""

    run: str
    seen: SeenFile | None = None
    shares: tuple[Share, ...] = ()


class TakeFiles(Request[Entered], frozen=True):
    """Process the same files up to the same ends as an earlier run. `files`: at most `types.REPORT_MAX` rows of that
    run. The last request is `complete`, and seals the pipeline for this run.
    """

    run: str
    files: tuple[KnownFile, ...]
    complete: bool


class FileRange(Struct, frozen=True):
    """Bytes of a file. In a list, `weight` is the number of bytes that the lines represent."""

    key: str
    generation: int
    begin: int
    end: int
    weight: int = 0


class Redo(Request[Returned], frozen=True):
    """Process these bytes again, because their damaged output has been removed. The done ranges become one unit."""

    ranges: tuple[FileRange, ...]
