"""The first worker of a pipeline tells the backlog for all."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from heronpy.api.spout.base_spout import Backlog
from heronpy.ingest.figures import backlog_of
from heronpy.ingest.ledger import commands, requests
from heronpy.ingest.ledger.types import UnitState
from heronpy.ingest.worker import LogWorker
from tests.api.source_fakes import Context, Delegate


def test_committed_and_failed_units_wait_for_no_worker() -> None:
    units = {state.value: (1, 10**place) for place, state in enumerate(UnitState)}
    waiting = sum(units[state][1] for state in (UnitState.READY.value, UnitState.LEASED.value))
    figures = SimpleNamespace(waiting_bytes=5, units=units)
    assert backlog_of(figures) == 5 + waiting  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [0, 1])
def test_the_first_worker_asks_between_two_units_now_and_then(index: int) -> None:
    worker = LogWorker(Delegate())
    worker._context, worker._backlog, worker._backlog_at = Context(index, 2), None, 0.0  # noqa: SLF001
    asked = [worker._next_request() for _ in range(3)]  # noqa: SLF001
    shows = [isinstance(request, commands.Show) for request in asked]
    assert shows == [index == 0, False, False]
    assert all(isinstance(request, requests.Lease) for request, show in zip(asked, shows, strict=True) if not show)
    worker._backlog = 7  # noqa: SLF001
    assert worker.backlog() == Backlog(bytes=7 if index == 0 else None)
