"""Batch runs in this process: rows, state, and the place where a stream goes on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from heronpy.batch.record import RunState
from tests.batch.inside import InsideRun
from tests.batch.programs.visits import topology


def write(path: Path, lines: int) -> Counter[str]:
    path.parent.mkdir(exist_ok=True)
    chosen = [f"visitor{number * 7 % 31}" for number in range(lines)]
    path.write_text("".join(f"{visitor} /page\n" for visitor in chosen))
    return Counter(chosen)


def rows_of(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in sorted(out.glob("part-*")) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "EFFECTIVELY_ONCE"])
def test_a_run_counts_each_line_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    expected = write(tmp_path / "logs" / "a.log", 3000)
    out = tmp_path / "out"
    run = InsideRun(
        tmp_path, topology("visits", f"{tmp_path}/logs/*.log", str(out), mode=mode, follow="1"), monkeypatch
    )
    run.start()
    run.to_the_end()
    run.close()
    rows = rows_of(out)
    assert {row["visitor"]: row["visits"] for row in rows} == expected and len(rows) == len(expected)
    record = run.run.record
    assert record.state is RunState.FINISHED and bool(record.savepoint) == (mode == "EFFECTIVELY_ONCE")
