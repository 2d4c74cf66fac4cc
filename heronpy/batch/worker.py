"""The worker of a batch run: processes the units of one stage after the other."""

from __future__ import annotations

from typing import Any

from heronpy.api.topology_context import TopologyContext
from heronpy.batch.run import Run
from heronpy.batch.steps import Step, Steps
from heronpy.batch.topology import RUN_KEY
from heronpy.ingest.figures import WORK, Counters
from heronpy.ingest.worker import LogWorker

#: Interval at which it looks whether a keeper has prepared the run.
READY_S = 0.05


class BatchWorker(LogWorker):
    """A worker that goes from stage to stage: it leaves one when its end is recorded."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Finds the present stage, and reports how its predecessor ended."""
        self._context = context
        self._counters = Counters(context, WORK)
        self._steps = Steps(Run(config[RUN_KEY]))
        self._step_now: Step | None = None
        self._after = context.process.after
        self._ended = False

    def next_tuple(self) -> None:
        """One request, or one slice of an attempt."""
        if self._step_now is None and not self._ended and not self._enter():
            self.wait(READY_S)
            return
        super().next_tuple()

    def _enter(self) -> bool:
        """Join the pipeline of the present stage; False if no keeper has prepared the run yet."""
        if not self._steps.are_prepared:
            return False
        self._step_now = self._steps.present()
        if self._step_now is None:
            self._ended = True
            super().end_of_input()
            return True
        self._join(self._step_now.options, self._steps.rows_of(self._step_now), self._after)
        self._after = ""
        return True

    def end_of_input(self) -> None:
        """The end of a stage; of the last one, the end of the input."""
        self._asking.leave()
        self._step_now, self._ended = None, False
        self._enter()

    def close(self) -> None:
        """Returns its unit."""
        if self._step_now is not None:
            super().close()

    def backlog(self) -> Any:
        """Bytes that the workers of the stage have yet to process."""
        return super().backlog() if self._step_now is not None else None

    def _fail(self, unit: int, error: str) -> None:
        """A unit has failed, so the run has: raises GaveUpError."""
        assert self._step_now is not None
        raise self._steps.fail(f"unit {unit} of stage {self._step_now.name} has failed: {error}")
