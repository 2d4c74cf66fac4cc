"""Damaged files between stages: a task records the damage, and the next submission processes the unit again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec import Struct

from heronpy.batch.exchange import DamagedExchangeError, EndlessError
from heronpy.batch.run import RUN, Run
from heronpy.batch.stages import Stage
from heronpy.batch.steps import Steps
from heronpy.common.disk_space import full_folder, is_full_error
from heronpy.common.errors import GaveUpError, HeronError, LedgerAwayError, LedgerError, RetryableError, StateError
from heronpy.common.folders import make_folders, read_own
from heronpy.connectors.durable_files import write_record
from heronpy.ingest.ledger.commands import RetryFailed
from heronpy.ingest.ledger.reaching import Reached
from heronpy.ingest.ledger.requests import FileRange, Redo, Who
from heronpy.ingest.ledger.types import Kind
from heronpy.ingest.outputs.lineage import record_of
from heronpy.ingest.outputs.stages import Stages

_NOTES = "damaged"
_NOTE_MAX = 4 << 20


class _Damaged(Struct):
    """A published unit whose files cannot be read, and its ranges of input bytes."""

    stage: int
    folder: str
    ranges: tuple[FileRange, ...]


class RunEndedError(Exception):
    """The run has ended, so files that are no longer needed were removed."""


def note_damage(run: Run, unit: Path) -> None:
    """Record that the files of a published unit are damaged. Raises LedgerError if the unit's bytes are unknown."""
    found = record_of(unit)
    ranges = tuple(FileRange(one.key, one.generation, one.begin, one.end, 1) for one in found.chunks)
    stage = int(unit.parent.name)
    make_folders(run.folder / _NOTES)
    note = _Damaged(stage, unit.name, ranges)
    write_record(run.folder / _NOTES / f"{stage}-{unit.name}.json", msgspec.json.encode(note))


@contextmanager
def failing(steps: Steps) -> Iterator[None]:
    """Make the run fail if the block raises a permanent error. Raises RunEndedError if the run has ended."""
    try:
        yield
    except (GaveUpError, RetryableError):
        raise
    except DamagedExchangeError as error:
        if steps.run.record.has_ended:
            raise RunEndedError from error
        try:
            note_damage(steps.run, error.unit)
        except LedgerError:
            raise steps.fail(f"{error.unit} cannot be read", "give --fresh to start a new run") from error
        raise steps.fail(str(error), "") from error
    except (StateError, EndlessError) as error:
        raise steps.fail(str(error), "") from error  # the text names the fix
    except (HeronError, OSError, TypeError, ValueError) as error:
        full = full_folder(steps.run.folder) if isinstance(error, OSError) and is_full_error(error) else None
        raise steps.fail(f"the disk of {full} is full" if full else str(error)) from error


def mend(run: Run, stages: Sequence[Stage]) -> None:
    """Make failed and damaged units wait for another attempt; call this while no process is working on the run."""
    notes = [(path, msgspec.json.decode(read_own(path, _NOTE_MAX), type=_Damaged)) for path in
             sorted((run.folder / _NOTES).glob("*.json"))]  # fmt: skip
    who = Who(f"heron-submit-{uuid4()}", str(uuid4()), Kind.COMMAND)
    for stage in stages:
        damaged = [(path, note) for path, note in notes if note.stage == stage.number]
        table = run.table(stage.number)
        if any(note.stage <= stage.number for _, note in notes):
            Stages(str(table)).unmark_end(RUN)
        for _, note in damaged:
            shutil.rmtree(table / note.folder, ignore_errors=True)
        try:
            ledger = Reached.existing(run.ledger, run.pipeline(stage.number), who)
        except LedgerAwayError:
            raise  # the notes stay, so the next submit retries
        except LedgerError:
            return  # the run has not reached this stage
        with closing(ledger):
            ledger.ask(RetryFailed())
            for path, note in damaged:
                ledger.ask(Redo(note.ranges))
                with suppress(FileNotFoundError):
                    path.unlink()
