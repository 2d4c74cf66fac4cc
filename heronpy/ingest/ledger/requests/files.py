"""What keepers report of files, and have cut into units. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from heronpy.ingest.ledger.requests.base import Request
from heronpy.ingest.ledger.types import Copy, File


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


@dataclass(frozen=True, slots=True)
class CutUnits:
    """`brake`: why no more were cut. `now`: the time of the ledger, for the next look. `over`: all that the asker's run
    has to process is published, bad or failed."""

    units: tuple[int, ...]
    brake: Brake
    now: float = 0.0
    over: bool = False


@dataclass(frozen=True, slots=True)
class Cut(Request[CutUnits]):
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
