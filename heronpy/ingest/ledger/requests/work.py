"""What workers ask: leases, commits, and what becomes of tries that fail. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from heronpy.ingest.ledger.requests.base import Request
from heronpy.ingest.ledger.requests.files import Brake
from heronpy.ingest.ledger.requests.publication import Chunk


@dataclass(frozen=True, slots=True)
class Line:
    """A range of a file: of a line, with its end."""

    file: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Bad:
    """These ranges are bad now, which were all of their unit: write them down and hand out dead letters."""

    root: int
    tries: int
    ranges: tuple[Line, ...]
    error: str


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
    #: See `Pipeline.ledger`.
    ledger: str = ""


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
    """User code has raised. `line`: at which line; None: it takes whole chunks. `rows`: how many there were before.

    `Committed` when it does not matter.
    """

    unit: int
    attempt: int
    generation: int
    error: str
    line: Line | None = None
    rows: int = 0


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
