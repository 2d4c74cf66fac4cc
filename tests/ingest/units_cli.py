"""What the tests of work units on real processes share: the rows of a table, the figures of a pipeline, their end."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from heronpy.common.errors import LedgerError
from heronpy.ingest.checking import command_of
from heronpy.ingest.ledger.commands import Figures, Show
from tests.support.command import Heron
from tests.support.waiting import wait_for

PATIENCE_S = 120.0


def rows_of(table: Path) -> list[str]:
    """All published rows."""
    return [line for path in sorted(table.glob("unit=*/part-0.txt")) for line in path.read_text("utf-8").splitlines()]


def shown(heron: Heron, pipeline: str = "lines") -> Figures | None:
    """The figures, asked in this process: a command for each look would take longer than what is waited for.

    None while the pipeline has not begun.
    """
    if not (heron.home / "ledger" / "units.db").exists():
        return None
    try:
        with closing(command_of(f"sqlite:{heron.home}/ledger/units.db", pipeline)) as ledger:
            return ledger.ask(Show())
    except LedgerError:
        return None


def settled(heron: Heron, size: int, pipeline: str = "lines") -> None:
    """Wait until this number of bytes is published or bad, and nothing waits."""

    def is_settled() -> bool:
        found = shown(heron, pipeline)
        if found is None:
            return False
        waits = found.waiting_bytes or any(count for count, _ in found.units.values())
        return not waits and found.done_bytes + found.bad_bytes >= size

    wait_for(is_settled, PATIENCE_S, f"{size} bytes being settled")
