"""A log that is truncated while a worker reads it, as by `copytruncate`: the attempt ends, and no line is left out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heronpy.growing import chunks
from heronpy.growing.chunks import BLOCK_BYTES
from heronpy.growing.identity import HEAD_BYTES, digest
from heronpy.ingest import LineFiles, LogUnit
from heronpy.ingest.attempt import Attempt
from heronpy.ingest.ledger.requests import Chunk, Work
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.options import UnitOptions
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.unit import MovedError, SuspectPage

#: More than is read at once.
LINES = 3 * BLOCK_BYTES // 10


def emptied(log: Path) -> None:
    os.truncate(log, 0)


def shortened(log: Path) -> None:
    os.truncate(log, BLOCK_BYTES)


def written_anew(log: Path) -> None:
    os.truncate(log, 0)
    with log.open("a") as file:
        file.writelines(f"again {number:09d}\n" for number in range(LINES))


def written_anew_alike(log: Path) -> None:
    """Its beginning is a header that all files have."""
    head = log.read_bytes()[: HEAD_BYTES + 100]
    os.truncate(log, 0)
    log.write_bytes(head + b"".join(b"again %09d\n" % number for number in range(LINES)))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "a.log"
    path.parent.mkdir()
    path.write_text("".join(f"{number:09d}\n" for number in range(LINES)))
    return path


def attempt_of(log: Path, end: int, rows: Callable[[LogUnit], Iterator[str]]) -> Attempt:
    data = log.read_bytes()
    head = data[:HEAD_BYTES]
    tail = f"{len(data)}:{digest(data[-HEAD_BYTES:])}"
    chunk = Chunk(1, "a.log", 1, 0, end, f"x:{len(head)}:{digest(head)}", "a.log", tail)
    pattern, table = str(log.parent / "*.log"), str(log.parent.parent / "table")
    options = UnitOptions("lines", pattern, f"sqlite:{table}/x.db", LineFiles(table), Config(pattern=pattern))
    page = SuspectPage(log.parent.parent / "pages", "w-1")
    return Attempt(Work(1, 1, 1, end, (chunk,), 5.0), options, rows, Stages(table), page)


def gives_up(attempt: Attempt) -> None:
    """It says that the file has moved, so the unit is ready again, and nothing is staged."""
    with pytest.raises(MovedError, match=r"a\.log was truncated while it was read"):
        while attempt.go_on(float("inf")) is None:
            pass
    attempt.discard()


@pytest.mark.parametrize("happens", [emptied, shortened, written_anew, written_anew_alike])
def test_an_attempt_does_not_count_when_its_file_is_truncated(log: Path, happens: Callable[[Path], None]) -> None:
    def rows(unit: LogUnit) -> Iterator[str]:
        for number, line in enumerate(unit.lines()):
            if number == 5:
                happens(log)
            yield line

    gives_up(attempt_of(log, log.stat().st_size, rows))


def test_the_line_across_the_end_of_a_unit_is_not_lost(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read by itself, after all the others: between the two the file is truncated."""
    end = 1005  # within a line
    rest = chunks._rest_of_line

    def truncated(*args: object) -> tuple[bytes, int]:
        emptied(log)
        return rest(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(chunks, "_rest_of_line", truncated)
    gives_up(attempt_of(log, end, lambda unit: unit.lines()))


def test_an_older_copy_that_ends_within_the_last_line_of_a_unit_does_not_count(log: Path) -> None:
    """It is long enough for the unit, and not for the line across the end of it."""
    os.truncate(log, 1007)
    gives_up(attempt_of(log, 1005, lambda unit: unit.lines()))


def test_a_file_that_grows_meanwhile_is_read_up_to_the_end_of_the_unit(log: Path) -> None:
    size = log.stat().st_size

    def rows(unit: LogUnit) -> Iterator[str]:
        for number, line in enumerate(unit.lines()):
            if number == 5:
                with log.open("a") as file:
                    file.write("more\n")
            yield line

    attempt = attempt_of(log, size, rows)
    while (commit := attempt.go_on(float("inf"))) is None:
        pass
    assert commit.rows == LINES


def test_a_file_that_begins_alike_is_not_read_for_the_one_that_was_there(log: Path) -> None:
    attempt = attempt_of(log, log.stat().st_size, lambda unit: unit.lines())
    written_anew_alike(log)
    with pytest.raises(MovedError, match=r"a\.log was replaced by another file"):
        attempt.go_on(float("inf"))
    attempt.discard()
