"""The rows of a ledger, and the numbers of a pipeline. Pure.

Every row belongs to one pipeline; the stores keep its name beside it. The first `KEY` fields of a row are its primary
key. Texts are at most `TEXT_MAX` characters. Times are seconds on the ledger's own clock, which no clock of a host can
turn back; ranges are bytes, half open: `[begin, end)`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final

from msgspec import Struct

#: Changes with the rows: a ledger of a higher version is refused.
VERSION: Final = 4
#: Ids of each part of a partitioned ledger begin at a multiple of this.
PART: Final = 1 << 40
#: Of an error that a row keeps, and of any name.
TEXT_MAX: Final = 2_000
#: Files in one report of a scan; a scan that found more makes several.
REPORT_MAX: Final = 1_000


class Kind(StrEnum):
    """What a process that asks the ledger is."""

    WORKER = "worker"
    KEEPER = "keeper"
    #: A command of a user.
    COMMAND = "command"


class FileState(StrEnum):
    """Whether bytes of a file may be cut into units."""

    LIVE = "live"
    #: Bytes that were read before have changed: named, and not processed.
    MUTATED = "mutated"
    #: First seen when it was older than the horizon, so it may have been processed and forgotten: refused.
    LATE = "late"


class SpanState(StrEnum):
    """What became of a range below `cut`."""

    #: It is in a unit.
    UNIT = "unit"
    #: Its rows are in the output.
    DONE = "done"
    #: No attempt could process it.
    BAD = "bad"


class UnitState(StrEnum):
    """The life of a unit; when it is published, its row goes."""

    READY = "ready"
    LEASED = "leased"
    #: One attempt has won and its rows are staged for good.
    COMMITTED = "committed"
    #: No further attempt until a user retries it.
    FAILED = "failed"


class DispatchState(StrEnum):
    """The life of a group of units that is handed to Spark; when it is published, its row goes."""

    OPEN = "open"
    FAILED = "failed"


class Config(Struct, frozen=True):
    """The numbers of a pipeline, the same for all of its processes."""

    #: The pattern of its files; it never changes.
    pattern: str = ""
    #: A unit is cut when so much waits,
    unit_bytes: int = 32 << 20
    #: or the oldest byte has waited so long.
    unit_wait_s: float = 2.0
    #: No cut while so many units per worker are ready.
    ready_per_worker: int = 4
    #: No lease while so many committed units, or bytes of them, are not published.
    unpublished_units: int = 64
    unpublished_bytes: int = 4 << 30
    #: Bytes handed out per second; 0: no limit.
    bytes_per_s: float = 0.0
    #: Tries of a unit before it is taken apart, and bad ranges below one root unit before it has failed.
    tries_max: int = 3
    bad_max: int = 100
    #: "split": bad bytes are cut out of a unit; "fail": the unit has failed, and its worker ends the topology.
    on_bad: str = "split"
    #: A file's row is kept so long after the file has gone everywhere.
    days: float = 7.0
    #: A process that was not seen for so long loses its leases.
    silent_s: float = 15.0
    #: A dispatch is made when so much is committed, or the oldest such unit has waited so long.
    dispatch_bytes: int = 256 << 20
    dispatch_wait_s: float = 5.0
    #: Where its rows go: "table", or "bolts", which have no backups: two attempts would emit the same rows.
    rows_to: str = "table"
    #: Pipelines of this ledger that must have published what is as old as a unit before it is handed out.
    after: tuple[str, ...] = ()
    #: Pipelines of this ledger that must first have published all that was there when both had begun.
    after_all: tuple[str, ...] = ()
    #: The folder of the table, or the one that stands in for it: there are the records of bad bytes.
    place: str = ""


class Pipeline(Struct, frozen=True):
    """The one row of a pipeline that every transaction locks."""

    KEY: ClassVar[int] = 0
    #: Grows with each rebuild; what belongs to an older one is refused.
    generation: int
    born: float
    next_file: int
    next_unit: int
    next_dispatch: int
    paused: bool
    #: No lease before this time, because of `bytes_per_s`.
    paid_until: float
    #: A `Config` as JSON.
    config: str
    #: A random name of this ledger of the pipeline, new with each rebuild: its table has the same.
    ledger: str = ""
    #: A `Partitions` as JSON: which ledgers the pipeline has; "": not known yet.
    partitions: str = ""


class File(Struct, frozen=True):
    """A file, whatever its path is now: `key` and `generation` name it on all sites."""

    KEY: ClassVar[int] = 1
    id: int
    #: The path below the pattern's fixed prefix at which it was first seen.
    key: str
    #: Of the file below this key: 1, and one more for each that took its place.
    generation: int
    born: float
    #: Digest of its first bytes, as the scanner writes it.
    head: str
    #: The highest safe size of any site; bytes from `cut` on are in no unit.
    size: int
    cut: int
    state: FileState
    #: Since when its oldest byte waits to be cut; None: none does, or no site has the file.
    since: float | None
    #: Since when no site has it; None: one has.
    gone: float | None


class Copy(Struct, frozen=True):
    """A file on a site."""

    KEY: ClassVar[int] = 2
    file: int
    site: str
    #: Its path now, below the pattern's fixed prefix.
    path: str
    #: The safe size: it ends behind a line end.
    size: int
    #: Device and inode, as the scanner writes them.
    inode: str
    #: Digest of the bytes before `size`, as the scanner writes it: compared when the file has grown.
    tail: str
    #: When it was last reported; an unchanged file is not.
    seen: float


class Span(Struct, frozen=True):
    """A range of a file below its `cut`; neighbours of equal state without unit are one span."""

    KEY: ClassVar[int] = 2
    file: int
    begin: int
    end: int
    state: SpanState
    #: UNIT: the unit that has it. BAD: the root unit in which it was found. DONE: 0.
    unit: int
    #: BAD: tries, and why.
    tries: int = 0
    error: str = ""


class Unit(Struct, frozen=True):
    """A list of spans that one attempt processes whole."""

    KEY: ClassVar[int] = 1
    id: int
    #: The unit from which it was taken apart, or itself.
    root: int
    state: UnitState
    bytes: int
    #: Since when its oldest byte waited, and when it was cut.
    since: float
    made: float
    #: Attempts that counted against its bytes.
    tries: int = 0
    #: The number of the last lease.
    attempt: int = 0
    #: LEASED: the process that has the last lease, its container, and until when no backup is made.
    holder: str = ""
    container: str = ""
    #: LEASED: until when no backup is made. READY: not handed out before.
    until: float = 0.0
    #: The site that has it, and until when only this may; "": any may.
    site: str = ""
    site_until: float = 0.0
    #: COMMITTED: the attempt that won, its rows and when.
    winner: int = 0
    rows: int = 0
    committed: float = 0.0
    #: The line at which every try so far has failed: "" before a first try, "-" if they differ, else "file:begin:end".
    suspect: str = ""
    #: READY: its next holder looks for the line start at which it is halved.
    halve: bool = False
    #: The dispatch that has it; 0: none.
    dispatch: int = 0
    #: The last failure.
    error: str = ""
    #: LEASED, COMMITTED: the first attempt of its last leases that is a backup; 0: none is.
    backup: int = 0


class Dispatch(Struct, frozen=True):
    """Committed units that go to Spark together; repeated, it has the same id and units."""

    KEY: ClassVar[int] = 1
    id: int
    units: tuple[int, ...]
    state: DispatchState
    error: str = ""


class Client(Struct, frozen=True):
    """A process that asks."""

    KEY: ClassVar[int] = 1
    #: The task and its incarnation.
    name: str
    task: str
    kind: Kind
    site: str
    container: str
    seen: float


class Answer(Struct, frozen=True):
    """The answer to the last numbered request of a process, for when it got lost."""

    KEY: ClassVar[int] = 1
    #: Of the client.
    name: str
    number: int
    #: As JSON, with the name of its type.
    text: str


class Site(Struct, frozen=True):
    """A site that a user has taken down, or up again."""

    KEY: ClassVar[int] = 1
    name: str
    up: bool


class Look(Struct, frozen=True):
    """Up to when a site has reported what is in its files; written while another pipeline waits for this one."""

    KEY: ClassVar[int] = 1
    site: str
    #: When all that the first look had found was in the ledger.
    first: float
    #: What was there at this time is in the ledger.
    until: float
    #: There is nothing more to come: the site has processed all that was there, and ended.
    closed: bool


class Pace(Struct, frozen=True):
    """How long a committed unit took, in seconds per byte; the last `policy.PACES` are kept."""

    KEY: ClassVar[int] = 1
    slot: int
    pace: float
    #: The attempt, from its lease to its commit.
    seconds: float = 0.0


class Tally(Struct, frozen=True):
    """What became of units whose rows are gone, since the ledger was made or rebuilt."""

    KEY: ClassVar[int] = 0
    #: Published, and those of them of which a backup has won.
    units: int
    backups_won: int


class Unfinished(Struct, frozen=True):
    """Bytes of last lines without an end on a site; written when it was long ago, or when it begins or ends."""

    KEY: ClassVar[int] = 1
    site: str
    bytes: int
    at: float
    #: Files of the site that are not read, because they are taken for copies of others.
    copies: int = 0


class Seal(Struct, frozen=True):
    """A bounded run processes what its site had until its first complete look; no later look adds to it."""

    KEY: ClassVar[int] = 1
    site: str
    #: The id of the topology.
    run: str
    #: When all that the look had found was in the ledger.
    at: float


Row = Pipeline | File | Copy | Span | Unit | Dispatch | Client | Answer | Site | Look | Pace | Tally | Unfinished | Seal
ROWS: Final[tuple[type[Row], ...]] = (
    *(Pipeline, File, Copy, Span, Unit, Dispatch),
    *(Client, Answer, Site, Look, Pace, Tally, Unfinished, Seal),
)
_KEYS: Final = {kind: kind.__struct_fields__[: kind.KEY] for kind in ROWS}


def key_of(row: Row) -> tuple[int | str, ...]:
    """The primary key of a row within its pipeline."""
    return tuple([getattr(row, name) for name in _KEYS[type(row)]])
