"""The progress of a batch run: what its keepers write, and the command, the page and the history show. Pure."""

from __future__ import annotations

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.errors import AnswerError
from heronpy.common.units import format_bytes, format_duration
from heronpy.views.units import Table, attempts_text

#: The file of a run's folder that holds its `Progress` as JSON.
PROGRESS = "progress.json"


class Slow(Struct, kw_only=True):
    """A container that needs much longer for a byte than the median."""

    container: int
    #: Its time for a byte, as a multiple of the median.
    ratio: float


class StageProgress(Struct, kw_only=True):
    """One stage of a run."""

    #: From 1, in the order in which the stages run.
    number: int
    components: list[str]
    #: `waiting`, `running`, `finished`, `failed`.
    state: str
    #: Units that are known, and those that are committed. A stage that waits may not know its units yet.
    units: int = 0
    done: int = 0
    #: The weight of these units.
    bytes: int = 0
    bytes_done: int = 0
    #: Attempts of any kind; of these, backups; of these, those that were first.
    attempts: int = 0
    backups: int = 0
    backups_won: int = 0
    #: Attempts that ended through no fault of their unit, failed ones, and those that another attempt made unnecessary.
    preempted: int = 0
    tries_failed: int = 0
    in_vain: int = 0
    #: Units that a user must look at.
    failed: int = 0
    slow: list[Slow] = msgspec.field(default_factory=list)


class Progress(Struct, kw_only=True):
    """How far a batch run is, or was when it ended."""

    #: `visits/3`
    run: str
    #: RUNNING, FINISHED, HELD, FAILED; STOPPED: it has not ended, and no topology works on it.
    state: str
    #: Why it has failed or is stopped, one sentence.
    cause: str = ""
    #: When these figures were made.
    at: float
    began_at: float
    ended_at: float | None = None
    #: What the run reads: `lines up to 93.1 GB in 1,204 files, as of 2026-11-29 15:20:07`.
    boundary: str = ""
    stages: list[StageProgress]
    #: Seconds; None: not known yet.
    ends_in_s: float | None = None
    #: More time may be needed: the units of the last stage are not known yet.
    ends_at_least: bool = False


class ShownProgress(Struct, kw_only=True):
    """`GET /progress`: how far the work units of a topology are."""

    #: None: the topology does not work on a batch run, or the run is not on the tracker's host.
    run: Progress | None
    #: A row for each stage of the run; without a run for each pipeline, see `GET /units`.
    table: Table


def progress_of(text: bytes) -> Progress:
    """The content of a file `PROGRESS`; AnswerError if it is damaged."""
    try:
        return msgspec.json.decode(text, type=Progress)
    except msgspec.MsgspecError as error:
        raise AnswerError(f"{PROGRESS} is damaged: {error}") from None


def stopped(found: Progress) -> Progress:
    """The figures of a run on which no topology works."""
    if found.ended_at is not None:
        return found
    cause = "no topology works on it; the command that began it goes on with it"
    return replace(found, state="STOPPED", cause=cause, ends_in_s=None)


def table_of(found: Progress) -> Table:
    """A row for each stage; the time that is left stands at the stage that runs."""
    at = next((one.number for one in found.stages if one.state not in ("finished", "failed")), 0)
    rows = [[*_cells(one), _ends_in(found) if one.number == at else ""] for one in found.stages]
    return Table(titles=["stage", "units", "done", "attempts", "ends in"], rows=rows)


def _cells(one: StageProgress) -> list[str]:
    known = one.units or one.state != "waiting"
    failed = f"{one.failed:,} FAILED" if one.failed else ""
    slow = [f"container {each.container}, {each.ratio:.1f} x" for each in one.slow]
    attempts = [
        attempts_text(one.attempts, one.backups, one.backups_won, one.in_vain, one.tries_failed, one.preempted)
        if one.attempts
        else "",
        failed,
        f"slow: {'; '.join(slow)}" if slow else "",
    ]
    return [
        f"{one.number} {', '.join(one.components)}",
        f"{one.done:,} of {one.units:,}" if known else "",
        format_bytes(one.bytes_done) if one.done else "",
        "; ".join(part for part in attempts if part),
    ]


def _ends_in(found: Progress) -> str:
    if found.ended_at is not None or found.ends_in_s is None:
        return ""
    return ("at least " if found.ends_at_least else "") + format_duration(round(found.ends_in_s))
