"""The rows of a ledger, and the configuration of a pipeline. Pure.

Every row belongs to one pipeline, whose name the stores keep with the row. The first `KEY` fields of a row are its
primary key. Texts have at most `TEXT_MAX` characters. Times are seconds on the ledger's own clock, which never runs
backward. Ranges of bytes are half open: `[begin, end)`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final

from msgspec import Struct

#: Increases when the rows change; a ledger with a higher version is refused.
VERSION: Final = 5
#: The ids of each part of a partitioned ledger begin at a multiple of this number.
PART: Final = 1 << 40
#: Maximum number of characters of an error in a row, and of a name.
TEXT_MAX: Final = 2_000
#: Maximum number of files in one report; a scan that finds more files sends several reports.
REPORT_MAX: Final = 1_000


class Kind(StrEnum):
    """The kind of a client process."""

    WORKER = "worker"
    KEEPER = "keeper"
    #: A user's command.
    COMMAND = "command"


class FileState(StrEnum):
    """Whether bytes of a file may be cut into units."""

    LIVE = "live"
    #: Bytes that were already read have changed, so the file is reported, but not processed.
    MUTATED = "mutated"
    #: When first seen, the file was older than the horizon, so it may have been processed and forgotten; it is refused.
    LATE = "late"


class SpanState(StrEnum):
    """The state of a range below `cut`."""

    #: The range is in a unit.
    UNIT = "unit"
    #: The rows of the range are in the output.
    DONE = "done"
    #: No attempt could process the range.
    BAD = "bad"


class UnitState(StrEnum):
    """The state of a unit; its row is removed at publication."""

    READY = "ready"
    LEASED = "leased"
    #: One attempt has won, and its rows are final.
    COMMITTED = "committed"
    #: No further attempt is made until a user retries the unit.
    FAILED = "failed"


class DispatchState(StrEnum):
    """The state of a group of units for Spark; its row is removed at publication."""

    OPEN = "open"
    FAILED = "failed"


class Config(Struct, frozen=True):
    """The configuration of a pipeline, the same for all of its processes."""

    #: The pattern of its files; it never changes.
    pattern: str = ""
    #: A unit is cut when this number of bytes is waiting.
    unit_bytes: int = 32 << 20
    #: A unit is also cut when the oldest byte has waited for this number of seconds.
    unit_wait_s: float = 2.0
    #: No units are cut while this number of units per worker is ready.
    ready_per_worker: int = 4
    #: No units are leased while this number of committed units, or of their bytes, is unpublished.
    unpublished_units: int = 64
    unpublished_bytes: int = 4 << 30
    #: Maximum number of bytes leased per second; 0 means no limit.
    bytes_per_s: float = 0.0
    #: Number of tries of a unit before it is split, and maximum number of bad ranges below one root unit.
    tries_max: int = 3
    bad_max: int = 100
    #: "split": bad bytes are cut out of a unit; "fail": the unit fails, and its worker ends the topology.
    on_bad: str = "split"
    #: Number of days for which a file's row is kept after no site has the file.
    days: float = 7.0
    #: Seconds without a heartbeat after which a process loses its leases.
    silent_s: float = 15.0
    #: A dispatch is made when this number of bytes is committed, or when the oldest such unit has waited for this
    #: number of seconds.
    dispatch_bytes: int = 256 << 20
    dispatch_wait_s: float = 5.0
    #: The destination of rows: "table"; or "bolts", without backups because two attempts would emit the same rows.
    rows_to: str = "table"
    #: Pipelines of this ledger that must have published all bytes older than a unit before the unit is handed out.
    after: tuple[str, ...] = ()
    #: Pipelines of this ledger that must first have published all bytes that existed when the later of the two
    #: pipelines began.
    after_all: tuple[str, ...] = ()
    #: The folder with the records of bad bytes: the table, or the `home` of a pipeline without a table.
    place: str = ""


class Pipeline(Struct, frozen=True):
    """The single row of a pipeline; every transaction locks it."""

    KEY: ClassVar[int] = 0
    #: Grows with each rebuild; requests of an older generation are refused.
    generation: int
    born: float
    next_file: int
    next_unit: int
    next_dispatch: int
    paused: bool
    #: The time of the next lease that `bytes_per_s` allows.
    paid_until: float
    #: A `Config` as JSON.
    config: str
    #: A random name of the pipeline's ledger, new with each rebuild; its table stores the same name.
    ledger: str = ""
    #: The pipeline's ledgers, a `Partitions` as JSON; "" if not known yet.
    partitions: str = ""


class File(Struct, frozen=True):
    """A file, independent of its path: `key` and `generation` identify it on all sites."""

    KEY: ClassVar[int] = 1
    id: int
    #: The path, below the pattern's fixed prefix, at which the file was first seen.
    key: str
    #: 1 for the first file with this key; it increases by 1 for each file that replaces the previous one.
    generation: int
    born: float
    #: Digest of the file's first bytes, as the scanner writes it.
    head: str
    #: The highest safe size of any site; bytes from `cut` on are in no unit.
    size: int
    cut: int
    state: FileState
    #: The time since which its oldest uncut byte has waited; None if no byte waits, or no site has the file.
    since: float | None
    #: The time since which no site has the file; None if a site has it.
    gone: float | None


class Copy(Struct, frozen=True):
    """A file on a site."""

    KEY: ClassVar[int] = 2
    file: int
    site: str
    #: Its current path, below the pattern's fixed prefix.
    path: str
    #: The safe size, which ends after a line end.
    size: int
    #: Device and inode, as the scanner writes them.
    inode: str
    #: Digest of the bytes before `size`, as the scanner writes it: compared when the file has grown.
    tail: str
    #: When the copy was last reported; unchanged files are not reported.
    seen: float


class Span(Struct, frozen=True):
    """A range of a file below its `cut`. Adjacent ranges that have the same state and no unit are one span."""

    KEY: ClassVar[int] = 2
    file: int
    begin: int
    end: int
    state: SpanState
    #: UNIT: the unit that contains the range. BAD: the root unit of the bad range. DONE: 0.
    unit: int
    #: BAD: number of tries, and the reason.
    tries: int = 0
    error: str = ""


class Unit(Struct, frozen=True):
    """A list of spans that one attempt processes as a whole."""

    KEY: ClassVar[int] = 1
    id: int
    #: The id of the first unit from which this unit was split, or its own id.
    root: int
    state: UnitState
    bytes: int
    #: When its oldest byte began to wait, and when it was cut.
    since: float
    made: float
    #: Number of attempts that counted against its bytes.
    tries: int = 0
    #: The number of the last lease.
    attempt: int = 0
    #: LEASED: the process with the last lease, and its container.
    holder: str = ""
    container: str = ""
    #: LEASED: the earliest time for a backup. READY: not handed out before this time.
    until: float = 0.0
    #: The site that has the unit, and the time until which only that site may take it; "" means any site.
    site: str = ""
    site_until: float = 0.0
    #: COMMITTED: the winning attempt, its number of rows, and the time.
    winner: int = 0
    rows: int = 0
    committed: float = 0.0
    #: The line at which all tries have failed, as "file:begin:end"; "" before the first try, "-" if the lines differ.
    suspect: str = ""
    #: READY: whether the next holder finds the line start at which the unit is halved.
    halve: bool = False
    #: Its dispatch; 0 for no dispatch.
    dispatch: int = 0
    #: The error of the last failure.
    error: str = ""
    #: LEASED, COMMITTED: the first backup attempt among its last leases; 0 for no backup.
    backup: int = 0
    #: LEASED: the time of the last lease that is not a backup.
    leased: float = 0.0
    #: For a unit of a list, the number of bytes that its lines represent; 0 means the bytes of the unit.
    weight: int = 0

    @property
    def size(self) -> int:
        """The number of bytes to process."""
        return self.weight or self.bytes


class Dispatch(Struct, frozen=True):
    """Committed units that go to Spark together, under the same id each time the dispatch is repeated."""

    KEY: ClassVar[int] = 1
    id: int
    units: tuple[int, ...]
    state: DispatchState
    error: str = ""


class Client(Struct, frozen=True):
    KEY: ClassVar[int] = 1
    #: The task and its incarnation.
    name: str
    task: str
    kind: Kind
    site: str
    container: str
    seen: float


class Answer(Struct, frozen=True):
    """The answer to a process's last numbered request, kept in case the answer is lost."""

    KEY: ClassVar[int] = 1
    #: Name of the client.
    name: str
    number: int
    #: The answer as JSON, with the name of its type.
    text: str


class Site(Struct, frozen=True):
    """A site that a user has taken down or brought up."""

    KEY: ClassVar[int] = 1
    name: str
    up: bool


class Scanned(Struct, frozen=True):
    """The time up to which a site has reported its files; written while another pipeline waits for this pipeline."""

    KEY: ClassVar[int] = 1
    site: str
    #: When the ledger had all files and bytes that the first scan found.
    first: float
    #: All files and bytes that existed at this time are in the ledger.
    until: float
    #: Whether the site has processed all bytes and ended, so that no more bytes will follow.
    closed: bool


class Pace(Struct, frozen=True):
    """The duration of a committed unit in seconds per byte; the last `policy.PACES` are kept."""

    KEY: ClassVar[int] = 1
    slot: int
    pace: float
    #: Duration of the attempt, from its lease to its commit.
    seconds: float = 0.0
    #: The container of the winning attempt, and the time of its commit.
    container: str = ""
    at: float = 0.0


class Tally(Struct, frozen=True):
    """Counts since the ledger was created or rebuilt that cannot be derived from other rows."""

    KEY: ClassVar[int] = 0
    #: Number of published units, and number of units that a backup won.
    units: int = 0
    backups_won: int = 0
    #: Number of published bytes; for a list, the bytes that its lines represent.
    size: int = 0
    #: Number of leases, and how many of them were backups.
    attempts: int = 0
    backups: int = 0
    #: Attempts that ended without fault (preempted, lost host), attempts that failed, and attempts that no longer
    #: counted because another attempt had won.
    preempted: int = 0
    tries_failed: int = 0
    in_vain: int = 0


class Unfinished(Struct, frozen=True):
    """Bytes of unfinished last lines on a site, written periodically, and when such bytes appear or vanish."""

    KEY: ClassVar[int] = 1
    site: str
    bytes: int
    at: float
    #: Number of the site's files that are not read because they are considered copies.
    copies: int = 0


class Seal(Struct, frozen=True):
    """The seal of a bounded run, which processes the site's files as of the first complete scan, and no later bytes."""

    KEY: ClassVar[int] = 1
    site: str
    #: The id of the topology.
    run: str
    #: When the ledger had all files and bytes that this scan found.
    at: float


Row = (
    Pipeline | File | Copy | Span | Unit | Dispatch
    | Client | Answer | Site | Scanned | Pace | Tally | Unfinished | Seal
)  # fmt: skip
ROWS: Final[tuple[type[Row], ...]] = (
    *(Pipeline, File, Copy, Span, Unit, Dispatch),
    *(Client, Answer, Site, Scanned, Pace, Tally, Unfinished, Seal),
)
_KEYS: Final = {kind: kind.__struct_fields__[: kind.KEY] for kind in ROWS}


def key_of(row: Row) -> tuple[int | str, ...]:
    """Return the primary key of a row within its pipeline."""
    return tuple([getattr(row, name) for name in _KEYS[type(row)]])
