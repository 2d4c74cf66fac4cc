"""What keepers publish, and clean up. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from heronpy.ingest.ledger.requests.base import Request


@dataclass(frozen=True, slots=True)
class Chunk:
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


@dataclass(frozen=True, slots=True)
class Finished:
    """A committed unit: its rows are staged as `<generation>/<unit>-<winner>`."""

    unit: int
    winner: int
    generation: int
    rows: int
    bytes: int
    chunks: tuple[Chunk, ...]
    #: See `Pipeline.ledger`.
    ledger: str = ""


@dataclass(frozen=True, slots=True)
class FinishedUnits:
    units: tuple[Finished, ...]


@dataclass(frozen=True, slots=True)
class ListFinished(Request[FinishedUnits]):
    """Committed units that are in no dispatch, oldest first; not those of `besides`, of which the stage is gone."""

    limit: int = 16
    besides: tuple[int, ...] = ()


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
