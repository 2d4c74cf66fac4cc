"""The worker of a pipeline whose rows go to bolts: a spout that emits the rows of its unit, and commits it when all of
them are acked. At least once: a unit whose worker ends, or whose function raises, is emitted anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heronpy.ingest.attempt import Attempt
from heronpy.ingest.emitted import EmittedAttempt
from heronpy.ingest.ledger.requests import Work
from heronpy.ingest.worker import LogWorker


class RowWorker(LogWorker):
    """See `heronpy.ingest.LogUnits`, which makes its specification, with the fields of its stream."""

    def ack(self, tup_id: Any) -> None:
        """A row is processed."""
        if isinstance(self._attempt, EmittedAttempt):
            self._attempt.acked(tup_id)

    def fail(self, tup_id: Any) -> None:
        """A row has failed; it is emitted again."""
        if isinstance(self._attempt, EmittedAttempt):
            self._attempt.failed(tup_id)

    def _begin(self, work: Work) -> EmittedAttempt:
        def emit(values: Sequence[Any], number: int) -> None:
            self.emit(values, tup_id=number)

        return EmittedAttempt(work, self._options, self._rows, self._page, emit)

    def _go_on(self, attempt: Attempt | EmittedAttempt) -> None:
        self._step(attempt)
        if self._attempt is not attempt or self._request is not None:
            self.busy()
        elif isinstance(attempt, EmittedAttempt) and attempt.rest_s:
            self.wait(attempt.rest_s)
