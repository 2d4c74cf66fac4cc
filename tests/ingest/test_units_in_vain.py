"""An attempt that another one has made unnecessary stops, and a process that cannot stop it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.api.topology_context import TaskProcess
from heronpy.common import exit_codes
from heronpy.ingest import asking
from heronpy.ingest.ledger import policy
from heronpy.ingest.worker import LogWorker
from tests.ingest.test_units_inside import PATIENCE_S, Context, Running, numbers, options, run, settle, shown, write
from tests.support.waiting import wait_for

__all__ = ["options", "run"]
LINES = 2_000


def rows(unit: Any) -> Iterator[str]:
    """The first attempt is slow."""
    for line in unit.lines():
        yield line
        if unit.attempt == 1:
            time.sleep(0.01)


@pytest.fixture
def both(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> tuple[Running, Running]:
    """A slow attempt in one container, and a worker in another one that makes a backup, which is committed."""
    monkeypatch.setattr(policy, "LEASE_FIRST_S", 0.01)
    monkeypatch.setattr(policy, "LEASE_MIN_S", 0.01)
    write(tmp_path, 0, LINES, "east")
    options |= {"rows": rows, "unit_bytes": "1MB"}
    slow = run("east", **options)

    def has_attempt(running: Running) -> bool:
        running.drive()
        return running.tasks[LogWorker]._attempt is not None  # type: ignore[attr-defined] # noqa: SLF001

    wait_for(lambda: has_attempt(slow), PATIENCE_S, "the first attempt")
    begin = Context.__init__

    def elsewhere(self: Context, component: str, task: int, after: str = "") -> None:
        begin(self, component, task + 10, after)
        self.process = TaskProcess(container=2, after=after)

    monkeypatch.setattr(Context, "__init__", elsewhere)
    backup = run("east", **options)

    def is_committed() -> bool:
        backup.drive(LogWorker)
        return "committed" in shown(options["ledger"]).units

    wait_for(is_committed, PATIENCE_S, "the commit of the backup")
    return slow, backup


def test_the_loser_stops_at_its_next_row(
    tmp_path: Path, both: tuple[Running, Running], options: dict[str, Any]
) -> None:
    slow, backup = both
    worker: Any = slow.tasks[LogWorker]
    began = time.monotonic()

    def has_stopped() -> bool:
        slow.drive(LogWorker)
        return worker._attempt is None  # noqa: SLF001

    wait_for(has_stopped, PATIENCE_S, "the end of the attempt in vain")
    assert time.monotonic() - began < LINES * 0.01 / 2
    assert any("another attempt has won; this attempt stops" in text for text in slow.delegate.said)
    settle(slow, options["ledger"], (tmp_path / "logs" / "east" / "a.log").stat().st_size, also=backup)
    figures = shown(options["ledger"])
    assert (figures.attempts, figures.backups, figures.backups_won, figures.in_vain) == (2, 1, 1, 1)
    assert set(numbers(tmp_path / "table").values()) == {1}


def test_a_process_whose_attempt_in_vain_does_not_stop_ends(
    both: tuple[Running, Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """User code is busy with one row: the worker is not driven."""
    codes: list[int] = []
    monkeypatch.setattr(asking, "leave", codes.append)
    monkeypatch.setattr(asking, "STOP_S", 0.5)
    wait_for(lambda: bool(codes), PATIENCE_S, "the end of the process")
    assert set(codes) == {exit_codes.TERMINATED}
