"""The progress of a batch run, written by keepers and shown by `heron progress`, the page and the history. Pure."""

from __future__ import annotations

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.errors import AnswerError
from heronpy.common.units import format_bytes, format_duration
from heronpy.views.units import Table, attempts_text

#: File in a run's folder with its `Progress` as JSON.
PROGRESS = "progress.json"
#: Text for the phase after the last unit, in which sinks and Spark get their rows, and the savepoint is written.
WRITING = "writing the output"


class Slow(Struct, kw_only=True):
    """A container that needs much longer per byte than the median."""

    container: int
    #: Time per byte as a multiple of the median.
    ratio: float


class StageProgress(Struct, kw_only=True):
    """One stage of a run."""

    #: From 1, in the order in which the stages run.
    number: int
    components: list[str]
    #: `waiting`, `running`, `finished`, `failed`.
    state: str
    #: Known units, and committed units. The units of a waiting stage may be unknown.
    units: int = 0
    done: int = 0
    #: The weight of these units.
    bytes: int = 0
    bytes_done: int = 0
    #: All attempts; backup attempts; and backup attempts that won.
    attempts: int = 0
    backups: int = 0
    backups_won: int = 0
    #: Preempted attempts, whose end was not caused by the unit; failed attempts; and attempts that another attempt
    #: made unnecessary.
    preempted: int = 0
    tries_failed: int = 0
    in_vain: int = 0
    #: Units that need a user's decision, and units that workers are processing.
    failed: int = 0
    in_work: int = 0
    #: If an unfinished unit has failed: the number of its next try, and the maximum number of tries.
    next_try: int = 0
    tries_max: int = 0
    slow: list[Slow] = msgspec.field(default_factory=list)
    #: Why some units wait while others continue, such as a file that has changed; "" if no unit waits.
    waits_for: str = ""


class Progress(Struct, kw_only=True):
    """The progress of a batch run, now or at its end."""

    #: `visits/3`
    run: str
    #: RUNNING, FINISHED, HELD, FAILED; DEAD: it has not ended, and no process of its topology is running; KILLED: its
    #: topology was removed before the end.
    state: str
    #: Why the run has failed, or is DEAD or KILLED, as one sentence.
    cause: str = ""
    #: Time of these figures.
    at: float
    began_at: float
    ended_at: float | None = None
    #: The input of the run: `the first 93.1 GB of lines in 1,204 files, as of 2026-11-29 15:20:07`.
    boundary: str = ""
    stages: list[StageProgress]
    #: Estimated seconds until the end; None if not known yet.
    ends_in_s: float | None = None
    #: Whether more time may be needed, because the units of the last stage are not known yet.
    ends_at_least: bool = False


class ShownProgress(Struct, kw_only=True):
    """`GET /progress`: the progress of the work units of a topology."""

    #: None if the topology does not process a batch run, or the run is not on the tracker's host.
    run: Progress | None
    #: One row per stage of the run; without a run one row per pipeline, see `GET /units`.
    table: Table


def progress_of(text: bytes) -> Progress:
    """Decode a file `PROGRESS`. Raises AnswerError if it is damaged."""
    try:
        return msgspec.json.decode(text, type=Progress)
    except msgspec.MsgspecError as error:
        raise AnswerError(f"{PROGRESS} is damaged: {error}") from None


def stopped(found: Progress, dead: str = "") -> Progress:
    """Return the figures of a run that no process is working on.

    `dead` is a clause that names the remedy; it is given if the processes are gone, but the topology was not killed.
    """
    if found.ended_at is not None:
        return found
    topology = found.run.rpartition("/")[0]
    if dead:
        cause = f"no process of topology '{topology}' is running; {dead}"
        return replace(found, state="DEAD", cause=cause, ends_in_s=None)
    cause = f"topology '{topology}' was killed; repeat its command to continue batch run {found.run}"
    return replace(found, state="KILLED", cause=cause, ends_in_s=None)


def table_of(found: Progress) -> Table:
    """Return a table with one row per stage; the running stage shows the remaining time."""
    at = next((one.number for one in found.stages if one.state not in ("finished", "failed")), 0)
    rows = [[*_cells(one), ends_in(found) if one.number == at else ""] for one in found.stages]
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
        f"{one.done:,} of {one.units:,}{in_work(one)}" if known else "",
        format_bytes(one.bytes_done) if one.done else "",
        "; ".join(part for part in attempts if part),
    ]


def in_work(one: StageProgress) -> str:
    """Return text such as `, 1 in progress, try 2 of 3`; "" unless workers process units of a running stage."""
    if one.state != "running" or not one.in_work:
        return ""
    tries = f", try {one.next_try} of {one.tries_max}" if one.next_try else ""
    return f", {one.in_work:,} in progress{tries}"


def ends_in(found: Progress) -> str:
    """Return the time until the end as text; WRITING after the last unit; "" if unknown."""
    if found.ended_at is not None or not found.stages:
        return ""
    last = found.stages[-1]
    all_done = last.units == last.done > 0 and last.bytes_done >= last.bytes
    if found.state == "RUNNING" and last.state == "running" and all_done:
        return WRITING
    if found.ends_in_s is None:
        return ""
    if found.ends_at_least and round(found.ends_in_s) == 0:
        return ""  # the units of the next stage are not known, so no time can be estimated
    return ("at least " if found.ends_at_least else "") + format_duration(round(found.ends_in_s))
