"""The keeper of a batch run: prepares each stage, publishes its units, and ends the run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from heronpy.api.topology_context import TopologyContext
from heronpy.batch.finalise import drop_files, finalise
from heronpy.batch.mending import RunEndedError, failing
from heronpy.batch.progress import Rate, pause_s, stage_progress
from heronpy.batch.run import Run
from heronpy.batch.steps import Step, Steps
from heronpy.batch.topology import RUN_KEY
from heronpy.common.disk_space import is_full_error
from heronpy.common.errors import LedgerAwayError
from heronpy.common.units import counted, format_bytes
from heronpy.growing.patterns import join
from heronpy.ingest.figures import KeeperFigures
from heronpy.ingest.keeper import LogKeeper
from heronpy.ingest.ledger.commands import Figures, ListUnits, Show, UnitView
from heronpy.ingest.ledger.requests import ENDED
from heronpy.ingest.ledger.types import UnitState
from heronpy.ingest.watch import Watch
from heronpy.ingest.worker import DISK_S

#: Interval in seconds at which the run's displayed figures are updated.
PROGRESS_S: Final = 1.0
#: With at most this number of units, the keeper checks in each round whether the stage has ended.
FEW: Final = 16
#: A stage fails if units cannot be processed, and no unit is published for this number of seconds and attempts.
STALLED_S: Final = 60.0
STALLED_ATTEMPTS: Final = 5


def _error_of(unit: UnitView) -> str:
    """Return the error of a failed unit; "" if the unit has not failed, or failed only because its process ended."""
    return "" if unit.error.startswith(ENDED) else unit.error


class BatchKeeper(LogKeeper):
    """A keeper that works on one stage after the other. A run has two keepers; each may perform or repeat any step."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._context = context
        self._figures = KeeperFigures(context)
        self._steps = Steps(Run(config[RUN_KEY]))
        self._step_now: Step | None = None
        self._ended = False
        self._progress_at = self._entered_at = 0.0
        self._rate = Rate()
        #: Containers that were slow in this stage. They are stored because a container whose unit has a backup no
        #: longer counts as slow.
        self._slow: dict[str, float] = {}
        self._soon = False
        #: Whether the run waits for space on its disk before it can begin.
        self._is_full = False
        #: The published bytes, the time of their last change, and the number of attempts at that time.
        self._done, self._moved_at, self._attempts = -1, 0.0, 0
        #: The reasons why units could not be processed at the last update of the figures.
        self._unread_now: set[str] = set()

    def next_tuple(self) -> None:
        """Enter the current stage, or perform one step of the keeper's work for this stage."""
        if self._step_now is None and not self._ended:
            self.busy()
            self._enter()
            return
        if self._soon:
            # The stage may end at any moment, and figures of a few units are cheap.
            self._show_at, self._soon = 0.0, False
        try:
            super().next_tuple()
        except RunEndedError:
            self.end_of_input()

    def _round(self, now: float) -> float:
        wait_s = super()._round(now)
        return pause_s(wait_s, now - self._entered_at) if self._step_now is not None else 0.0

    def _enter(self) -> None:
        with failing(self._steps):
            if not self._prepare():
                return
            self._step_now = self._steps.present()
        if self._step_now is None:
            drop_files(self._steps)
            self._ended = True
            super().end_of_input()
            return
        self._rate, self._progress_at, self._slow = Rate(), 0.0, {}
        self._entered_at = time.monotonic()
        self._join(self._step_now.options)

    def _prepare(self) -> bool:
        """Prepare the run, or wait for disk space; return whether the run is prepared."""
        try:
            self._steps.prepare()
        except OSError as error:
            if not is_full_error(error):
                raise
            self.delegate.wait_outside(f"the disk of {self._steps.run.folder} is full", 0.0)
            self._is_full = True
            self.wait(DISK_S)
            return False
        if self._is_full:
            self.delegate.wait_outside("", 0.0)
            self._is_full = False
        return True

    def _open(self) -> Watch:
        assert self._step_now is not None
        # Do this before the first scan, because files that appear later do not belong to the run.
        self._asking.ask(self._asking.opening())
        with failing(self._steps):
            for request in self._steps.given_input(self._step_now):
                self._asking.ask(request)
        return super()._open()

    def end_of_input(self) -> None:
        """End a stage; after the last stage, end the input."""
        assert self._step_now is not None
        # Each keeper records the end when it leaves, because it may have recorded the ended stage as running.
        with suppress(LedgerAwayError):
            self._note(self._step_now, self._asking.ask(Show()), "finished", time.time())
        self._asking.leave()
        self._step_now, self._ended = None, False

    def _looked(self, figures: Figures) -> None:
        if sum(count for count, _ in figures.units.values()) <= FEW:
            self._soon = True
        self._slow |= figures.slow
        now = time.time()
        if self._step_now is not None:
            self._check_input(self._step_now, figures)
        if now >= self._progress_at and self._step_now is not None:
            self._progress_at = now + PROGRESS_S
            self._note(self._step_now, figures, "running", now)

    def _check_input(self, step: Step, figures: Figures) -> None:
        """Fail the run if input was lost, or if no unit could be processed in the last minute."""
        if figures.bad_bytes:
            lost = format_bytes(figures.bad_bytes)
            raise self._steps.fail(
                f"{lost} of the input of stage {step.name} were deleted or changed before they were processed",
                "give --fresh to start a new run",
            )
        now = time.monotonic()
        if figures.published_bytes != self._done:
            self._done, self._moved_at, self._attempts = figures.published_bytes, now, figures.attempts
        if now - self._moved_at < STALLED_S or self._is_busy(figures):
            return
        tried = figures.attempts - self._attempts >= STALLED_ATTEMPTS
        for why, is_gone in self._unread(step, figures):
            # No worker gets a unit with a missing file, so there may be no attempts.
            if tried or is_gone:
                raise self._steps.fail(f"stage {step.name} has processed nothing for {STALLED_S:.0f} s: {why}")

    def _is_busy(self, figures: Figures) -> bool:
        """Whether a worker is processing a unit that may succeed."""
        if UnitState.LEASED not in figures.units:
            return False
        return any(not _error_of(unit) for unit in self._asking.ask(ListUnits(UnitState.LEASED)).units)

    def _unread(self, step: Step, figures: Figures) -> Iterator[tuple[str, bool]]:
        """For each waiting unit that cannot be processed, yield the reason and whether a file is missing."""
        if UnitState.READY not in figures.units:
            return
        for unit in self._asking.ask(ListUnits(UnitState.READY)).units:
            gone = next((one.key for one in unit.chunks if not one.path), None)
            why = _error_of(unit)
            if gone is not None:
                why = why or f"{join(step.options.files.root, gone)} was deleted or replaced after the run began"
            if why:
                yield why, gone is not None

    def _waits_for(self, step: Step, figures: Figures) -> str:
        """Return the reason why units wait, such as a changed file; "" until two calls in a row find this reason."""
        if not figures.preempted and UnitState.LEASED in figures.units:
            return ""  # no worker has returned a unit
        before, self._unread_now = self._unread_now, {why for why, _ in self._unread(step, figures)}
        both = sorted(before & self._unread_now)
        more = f"; and {counted(len(both) - 1, 'more reason')}" if len(both) > 1 else ""
        return f"{both[0]}{more}" if both else ""

    def _note(self, step: Step, figures: Figures, state: str, now: float) -> None:
        next_try, tries_max = self._next_try(step, figures) if state == "running" else (0, 0)
        stage = stage_progress(step.stage, figures, state, self._slow, next_try, tries_max)
        if state == "running":
            stage.waits_for = self._waits_for(step, figures)
        self._steps.note(stage, self._rate.per_s(now, stage.bytes_done), now)

    def _next_try(self, step: Step, figures: Figures) -> tuple[int, int]:
        """Return the number of the next attempt at the leased unit with the most failures, and the maximum."""
        if not figures.tries_failed or UnitState.LEASED not in figures.units:
            return 0, 0
        most = max((unit.tries for unit in self._asking.ask(ListUnits(UnitState.LEASED)).units), default=0)
        return (most + 1, step.options.config.tries_max) if most else (0, 0)

    def _conclude(self) -> None:
        assert self._step_now is not None
        # The ledger considers a stage finished even if units have failed. The run then fails, but the worker may not
        # have reported it yet.
        for failed in self._asking.ask(ListUnits(UnitState.FAILED, 1)).units:
            raise self._steps.fail_unit(self._step_now, failed.unit, failed.error, self._asking.ask(Show()))
        if self._steps.is_last(self._step_now):
            self.busy()
            self._note(self._step_now, self._asking.ask(Show()), "running", time.time())
            with failing(self._steps):
                finalise(self._steps, lambda seconds: self.delegate.wait_outside("", seconds))
        self._note(self._step_now, self._asking.ask(Show()), "finished", time.time())
        super()._conclude()

    def close(self) -> None:
        if self._step_now is not None:
            super().close()
