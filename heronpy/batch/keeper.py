"""The keeper of a batch run: prepares each stage, keeps its units, and ends the run."""

from __future__ import annotations

import time
from typing import Any, Final

from heronpy.api.topology_context import TopologyContext
from heronpy.batch.finalise import drop_files, finalise
from heronpy.batch.mending import failing
from heronpy.batch.progress import Rate, stage_progress
from heronpy.batch.run import Run
from heronpy.batch.steps import Step, Steps
from heronpy.batch.topology import RUN_KEY
from heronpy.ingest.figures import KeeperFigures
from heronpy.ingest.keeper import LogKeeper
from heronpy.ingest.ledger.commands import Figures, ListUnits, Show
from heronpy.ingest.ledger.types import UnitState
from heronpy.ingest.watch import Watch

#: Interval at which the figures for people are written.
PROGRESS_S: Final = 1.0
#: With so few units, it looks for the end of the stage at this interval.
FEW: Final = 16
SOON_S: Final = 0.05


class BatchKeeper(LogKeeper):
    """A keeper that goes from stage to stage. Every step may be repeated, and both keepers may do it."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Finds the present stage."""
        self._context = context
        self._figures = KeeperFigures(context)
        self._steps = Steps(Run(config[RUN_KEY]))
        self._step_now: Step | None = None
        self._ended = False
        self._progress_at = 0.0
        self._rate = Rate()
        self._soon = False

    def next_tuple(self) -> None:
        """Do one round of what is due."""
        if self._step_now is None and not self._ended:
            self.busy()
            self._enter()
            return
        if self._soon:
            # The stage may end any moment, and the figures of few units are cheap.
            self._show_at, self._soon = min(self._show_at, time.monotonic() + SOON_S), False
        super().next_tuple()

    def _enter(self) -> None:
        with failing(self._steps):
            self._steps.prepare()
            self._step_now = self._steps.present()
        if self._step_now is None:
            drop_files(self._steps)
            self._ended = True
            super().end_of_input()
            return
        self._rate, self._progress_at = Rate(), 0.0
        self._join(self._step_now.options)

    def _open(self) -> Watch:
        assert self._step_now is not None
        # Before the first look: nothing that is found afterwards belongs to the run.
        self._asking.ask(self._asking.opening())
        with failing(self._steps):
            for request in self._steps.given_input(self._step_now):
                self._asking.ask(request)
        return super()._open()

    def end_of_input(self) -> None:
        """The end of a stage; of the last one, the end of the input."""
        self._asking.leave()
        self._step_now, self._ended = None, False

    def _looked(self, figures: Figures) -> None:
        if sum(count for count, _ in figures.units.values()) <= FEW:
            self._soon = True
        now = time.time()
        if now >= self._progress_at and self._step_now is not None:
            self._progress_at = now + PROGRESS_S
            self._note(self._step_now, figures, "running", now)

    def _note(self, step: Step, figures: Figures, state: str, now: float) -> None:
        """Write the figures of the run for people."""
        stage = stage_progress(step.stage, figures, state)
        self._steps.note(stage, self._rate.per_s(now, stage.bytes_done), now)

    def _conclude(self) -> None:
        assert self._step_now is not None
        # The stage is over for the ledger, also if units have failed; the run then fails, and the worker may not have
        # said so yet.
        for failed in self._asking.ask(ListUnits(UnitState.FAILED, 1)).units:
            raise self._steps.fail_unit(self._step_now, failed.unit, failed.error)
        if self._steps.is_last(self._step_now):
            self.busy()
            self._note(self._step_now, self._asking.ask(Show()), "running", time.time())
            with failing(self._steps):
                finalise(self._steps, lambda seconds: self.delegate.wait_outside("", seconds))
        self._note(self._step_now, self._asking.ask(Show()), "finished", time.time())
        super()._conclude()

    def close(self) -> None:
        """Leaves the pipeline."""
        if self._step_now is not None:
            super().close()
