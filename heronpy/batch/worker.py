"""The worker of a batch run: processes the units of one stage after the other."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace

from heronpy.api.metrics import MultiCountMetric
from heronpy.api.topology_context import TopologyContext
from heronpy.batch.exchange import DamagedExchangeError, EndlessError
from heronpy.batch.mending import RunEndedError, failing
from heronpy.batch.metrics import RunMetrics
from heronpy.batch.progress import pause_s
from heronpy.batch.run import Run
from heronpy.batch.steps import Step, Steps
from heronpy.batch.topology import RUN_KEY
from heronpy.common.errors import HeronError, LedgerAwayError
from heronpy.ingest.figures import WORK, Counters
from heronpy.ingest.ledger.commands import Show
from heronpy.ingest.ledger.requests import Idle
from heronpy.ingest.worker import LogWorker

#: Counter of tuples that bolts have failed, labelled by component; these tuples are not replayed.
FAILED: Final = "batch-tuples-failed"
#: Interval in seconds at which a worker checks whether a keeper has prepared the run.
READY_S = 0.05


class FailedTupleError(HeronError):
    """A bolt has failed tuples."""


class BatchWorker(LogWorker):
    """A worker that works on one stage after the other, and leaves a stage when the end of the stage is recorded."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Find the current stage, and report how the previous process of this task ended."""
        self._context = context
        self._counters = Counters(context, WORK)
        self._failed = MultiCountMetric()
        context.register_metric(FAILED, self._failed, 1.0)
        self._metrics = RunMetrics(context.register_metric)
        self._steps = Steps(Run(config[RUN_KEY]))
        self._step_now: Step | None = None
        self._after = context.process.after
        self._ended = False

    def next_tuple(self) -> None:
        """Send one request to the ledger, or process one slice of an attempt."""
        if self._step_now is None and not self._ended and not self._enter():
            self.wait(READY_S)
            return
        try:
            super().next_tuple()
        except RunEndedError:
            self._discard()
            self.end_of_input()

    def _enter(self) -> bool:
        """Join the pipeline of the current stage; return False if the run is not prepared yet."""
        if not self._steps.are_prepared:
            return False
        with failing(self._steps):
            self._step_now = self._steps.present()
        if self._step_now is None:
            self._ended = True
            super().end_of_input()
            return True
        self._stage_rows = self._steps.rows_of(self._step_now, self.report_error, self._count_failed, self._metrics)
        self._entered_at = time.monotonic()
        self._join(self._step_now.options, self._stage_rows, self._after)
        self._after = ""
        return True

    def _rest(self, idle: Idle) -> None:
        super()._rest(replace(idle, wait_s=pause_s(idle.wait_s, time.monotonic() - self._entered_at)))

    def end_of_input(self) -> None:
        """End a stage; after the last stage, end the input."""
        self._asking.leave()
        self._stage_rows.close()
        self._step_now, self._ended = None, False
        self._enter()

    def _count_failed(self, component: str, tuples: int) -> None:
        """Count tuples that a bolt has failed, separately for each attempt at a unit."""
        if component not in self._failed.value:
            self.report_error(FailedTupleError(f"bolt '{component}' fails tuples; a batch run does not replay them"))
        self._failed.incr(component, tuples)

    def close(self) -> None:
        """Return the unit to the ledger, and close the user's objects."""
        if self._step_now is not None:
            super().close()
            self._stage_rows.close()

    def backlog(self) -> Any:
        """Return the number of bytes that the stage's workers still have to process."""
        return super().backlog() if self._step_now is not None else None

    def _fail(self, unit: int, error: str) -> None:
        """Fail the run because a unit has failed; raises GaveUpError."""
        assert self._step_now is not None
        figures = None
        with suppress(LedgerAwayError):
            figures = self._asking.ask(Show())
        raise self._steps.fail_unit(self._step_now, unit, error, figures)

    def _blamed(self, cause: BaseException) -> None:
        """Fail the run if the cause is not the unit but a damaged input file, or a spout that may be endless.

        After the end of the run, such errors are ignored, because files are removed at the end.
        """
        if isinstance(cause, (DamagedExchangeError, EndlessError)) and not self._steps.run.record.has_ended:
            with failing(self._steps):
                raise cause
