"""A bounded run ends with the records of all that is bad, also when their log was rotated meanwhile."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.ingest import LogUnit, keeper, worker
from heronpy.ingest.bad import dead_bytes
from heronpy.ingest.ledger import policy
from heronpy.ingest.ledger.requests import Chunk, Line
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.watch import Watch
from tests.ingest.test_units_inside import PATIENCE_S, Running, options, run
from tests.support.waiting import wait_for

__all__ = ["options", "run"]


def rows(unit: LogUnit) -> Iterator[str]:
    for line in unit.lines():
        if line == "bad":
            raise ValueError(line)
        yield line


@pytest.fixture
def running(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Running:
    """A bounded run whose worker does not find the bad bytes, and whose keeper has just completed all records."""
    monkeypatch.setattr(policy, "TRY_AGAIN_S", (0.0, 0.0))
    monkeypatch.setattr(worker, "dead_bytes", lambda root, chunk, found: (b"", False))
    monkeypatch.setattr(keeper, "CLEAN_S", float("inf"))
    (tmp_path / "logs" / "east" / "a.log").write_text("good\nbad\nfine\n")
    return run("east", rows=rows, until="now", **options)


def end(running: Running) -> None:
    def ended() -> bool:
        if not running.delegate.ended:
            running.drive()
        return running.delegate.ended

    wait_for(ended, PATIENCE_S, "the end of the run")


def records(tmp_path: Path) -> list[bytes | None]:
    found = [json.loads(path.read_text())["bytes"] for path in Stages(str(tmp_path / "table")).bad_records()]
    return [base64.b64decode(one) if one is not None else None for one in found]


@pytest.mark.parametrize("knows", [True, False])
def test_the_record_is_there_at_the_end(
    tmp_path: Path, running: Running, monkeypatch: pytest.MonkeyPatch, knows: bool
) -> None:
    """Also if another keeper has found the file, so that this keeper does not know it yet."""
    away = iter([True, True])
    if not knows:
        monkeypatch.setattr(Watch, "is_there", lambda self, key, generation: None)

    def rotating(root: str, chunk: Chunk, found: Line) -> tuple[bytes, bool]:
        return (b"", False) if next(away, False) else dead_bytes(root, chunk, found)

    monkeypatch.setattr(keeper, "dead_bytes", rotating)
    end(running)
    assert records(tmp_path) == [b"bad\n"]


def test_bytes_that_stay_away_do_not_hold_up_the_end(
    tmp_path: Path, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "dead_bytes", lambda root, chunk, found: (b"", False))
    monkeypatch.setattr(keeper, "RECORDS_S", 0.0)
    end(running)
    assert records(tmp_path) == [None]
