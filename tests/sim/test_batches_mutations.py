"""The simulation of batch runs finds bugs: each test plants one in the product, and some seed of a few must fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from heronpy.batch import exchange, finalise, keeper, mending
from heronpy.batch.keeper import BatchKeeper
from heronpy.ingest import worker
from heronpy.ingest.outputs.stages import Stages
from heronpy.procs.exit_reason import ExitReason
from tests.sim.batches import run_batch
from tests.sim.planted import Patch, each
from tests.sim.test_units_sim_mutations import finds, grow_what_is_sealed


def read_losers(patch: pytest.MonkeyPatch) -> None:
    """A stage reads the files of attempts that did not win, until they are removed."""
    folders = exchange.unit_folders

    def all_folders(table: Path) -> list[Path]:
        staged = Stages(str(table)).staged_units(1).values()
        return [*folders(table), *(path for paths in staged for path in paths if any(path.glob("_*")))]

    patch.setattr(exchange, "unit_folders", all_folders)


def begin_early(patch: pytest.MonkeyPatch) -> None:
    """A stage counts as ended when one of its units is published."""
    patch.setattr(Stages, "has_ended", lambda self, run: bool(self.published_units()))


def read_a_bucket_twice(patch: pytest.MonkeyPatch) -> None:
    """The last bucket is on the list twice."""
    lines = exchange.bucket_lines
    patch.setattr(exchange, "bucket_lines", lambda *about: [*lines(*about), lines(*about)[-1]])


def leave_out_a_line(patch: pytest.MonkeyPatch) -> None:
    """A stream goes on behind the first line that was not processed."""
    _move(patch, lambda data, end: data.find(b"\n", end) + 1)


def repeat_a_line(patch: pytest.MonkeyPatch) -> None:
    """A stream goes on with the last line that was processed."""
    _move(patch, lambda data, end: data.rfind(b"\n", 0, end - 1) + 1)


def _move(patch: pytest.MonkeyPatch, to: Any) -> None:
    followed = finalise.followed_state

    def moved(*about: Any) -> Any:
        found = followed(*about)
        return {key: (*rows[:2], *map(_moved, rows[2:])) for key, rows in found.items()}

    def _moved(row: Any) -> Any:
        path, device, inode, mark, end, size, gone_s = row
        other = to(Path(path).read_bytes(), end) if end and Path(path).exists() else 0
        return path, device, inode, mark, other or end, size, gone_s

    patch.setattr(finalise, "followed_state", moved)


def drop_files_early(patch: pytest.MonkeyPatch) -> None:
    """The files of the stages are removed before the end of the last one is marked."""
    conclude = BatchKeeper._conclude

    def dropped(self: BatchKeeper) -> None:
        if self._steps.is_last(self._step_now):  # type: ignore[arg-type]
            keeper.drop_files(self._steps)
        conclude(self)

    patch.setattr(BatchKeeper, "_conclude", dropped)


def charge_everything(patch: pytest.MonkeyPatch) -> None:
    """Every end of a process is charged."""
    patch.setattr(worker, "OWN_FAULT", frozenset(reason.value for reason in ExitReason))


def fail_when_late(patch: pytest.MonkeyPatch) -> None:
    """A process that finds no files fails, also when its run has ended."""

    @contextmanager
    def failing(steps: Any) -> Iterator[None]:
        try:
            with mending.failing(steps):
                yield
        except mending.RunEndedError as error:
            raise AssertionError("a finished run has failed") from error

    patch.setattr(keeper, "failing", failing)


#: Bug, and a seed that is known to find it.
PLANTED: list[tuple[Patch, int]] = [
    (read_losers, 4),
    (begin_early, 0),
    (read_a_bucket_twice, 0),
    (grow_what_is_sealed, 2),
    (leave_out_a_line, 2),
    (repeat_a_line, 0),
    (drop_files_early, 0),
    (charge_everything, 1),
    (fail_when_late, 14),
]
#: Quick enough for every day.
SHORT = {read_a_bucket_twice, repeat_a_line}


@pytest.mark.parametrize(("plant", "seed"), each(PLANTED, SHORT))
def test_a_planted_bug_is_found(plant: Patch, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    finds(run_batch, plant, (seed, *range(60)), monkeypatch)
