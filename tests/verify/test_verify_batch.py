"""The oracle of a batch run and of the stream behind it: what is right passes, and one wrong row or line does not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.batch.record import RunState
from heronpy.verify.batch.world import BatchWorld
from heronpy.verify.oracle import Limits
from heronpy.verify.stream import InputSpec

Row = dict[str, Any]
LINES = 60


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BatchWorld:
    """A run that has ended: its lines are all but the unfinished last ones."""
    made = BatchWorld(
        SimpleNamespace(name="seen"), tmp_path, random.Random(1), True, "batch", InputSpec(count=LINES, keys=7)
    )  # type: ignore[arg-type]
    (tmp_path / "logs").mkdir()
    (tmp_path / "rows").mkdir()
    made._append(LINES, half=True)  # noqa: SLF001
    record = SimpleNamespace(run="seen/1", state=RunState.FINISHED, keys=7)
    monkeypatch.setattr(BatchWorld, "record", record)
    monkeypatch.setattr(BatchWorld, "stages", lambda self: [{"tries_failed": 0}])
    made.complete = True
    return made


def rows_of(out: Path) -> list[Row]:
    """What a count of the whole lines gives, by the lines themselves."""
    found: dict[str, Row] = {}
    for path in sorted((out / "logs").iterdir()):
        for line in path.read_text().split("\n")[:-1]:
            key, crc = line.split(" ")[2:]
            row = found.setdefault(key, {"key": key, "count": 0, "sum": 0})
            row["count"], row["sum"] = row["count"] + 1, row["sum"] + int(crc)
    return list(found.values())


def failed_of(world: BatchWorld, rows: list[Row]) -> set[str]:
    (world.out / "rows" / "part-1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    world._judge_batch()  # noqa: SLF001
    return {check.name for check in world.verdict(Limits()).checks if not check.ok}


def test_a_line_that_was_written_in_two_parts_is_one_line(world: BatchWorld) -> None:
    assert failed_of(world, rows_of(world.out)) == set()
    world._append(LINES + 1)  # noqa: SLF001
    assert sum(row["count"] for row in rows_of(world.out)) == 2 * (LINES + 1)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda rows: rows.pop(), {"batch", "rows", "loss", "keys"}),
        (lambda rows: rows.append(dict(rows[0])), {"rows", "published"}),
        (lambda rows: rows[0].update(count=rows[0]["count"] - 1), {"batch", "loss", "keys"}),
        (lambda rows: rows[0].update(count=rows[0]["count"] + 1), {"batch", "duplicates", "keys"}),
        (lambda rows: rows[0].update(sum=rows[0]["sum"] + 1), {"batch", "keys"}),
    ],
)
def test_one_wrong_row_is_found(world: BatchWorld, damage: Callable[[list[Row]], object], named: set[str]) -> None:
    rows = rows_of(world.out)
    damage(rows)
    assert failed_of(world, rows) == named


def test_a_run_that_has_failed_or_charged_an_attempt_is_found(
    world: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BatchWorld, "stages", lambda self: [{"tries_failed": 1}])
    monkeypatch.setattr(BatchWorld, "record", SimpleNamespace(run="seen/1", state=RunState.FAILED, keys=6))
    assert failed_of(world, rows_of(world.out)) == {"record", "charged"}
