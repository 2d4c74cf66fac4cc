"""A spout of text files gets more and fewer tasks while it reads, and each line arrives once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import Heron

PROGRAM = Path(__file__).parent / "programs" / "lines.py"
FILES, LINES = 20, 3000


@pytest.mark.heavy
def test_each_line_once_while_the_spout_is_rescaled(heron: Heron, out: Path) -> None:
    given = out / "in"
    given.mkdir(parents=True)
    for number in range(FILES):
        (given / f"{number}.txt").write_text("".join(f"{number} {line}\n" for line in range(LINES)))
    heron.submit(PROGRAM, "lines", "--paths", str(given / "*.txt"), "--out", out / "rows")
    for tasks in (7, 2):
        heron.when_state("lines", "RUNNING")
        heron("update", "local", "lines", "--component-parallelism", f"lines:{tasks}").ok()
    heron.when_state("lines", "FINISHED")
    rows = [row for file in (out / "rows").glob("part-*") for row in file.read_text().splitlines()]
    assert len(rows) == len(set(rows)) == FILES * LINES
