"""An attempt takes many rows at once, and still blames an error on its line; outputs take the same rows either way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.growing.identity import HEAD_BYTES, digest
from heronpy.ingest import LineFiles, LogUnit, Output, ParquetTable
from heronpy.ingest.attempt import MANY_MAX, MANY_S, Attempt, RowError, _next_many
from heronpy.ingest.ledger.requests import Chunk, Commit, Line, Work
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.options import UnitOptions
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.unit import SuspectPage

LINES = 3000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("".join(f"{number:05d}\n" for number in range(LINES)))
    return tmp_path


def attempt_of(folder: Path, output: Output, rows: Callable[[LogUnit], Any], tries: int = 0) -> Attempt:
    data = (folder / "logs" / "a.log").read_bytes()
    size = min(HEAD_BYTES, len(data))
    chunk = Chunk(1, "a.log", 1, 0, len(data), f"x:{size}:{digest(data[:size])}", "a.log")
    pattern = str(folder / "logs" / "*.log")
    options = UnitOptions("lines", pattern, f"sqlite:{folder}/ledger.db", output, Config(pattern=pattern))
    page = SuspectPage(folder / "pages", "w-1")
    return Attempt(Work(1, 1, 1, len(data), (chunk,), 5.0, tries), options, rows, Stages(output.table), page)


def finished(attempt: Attempt) -> Commit:
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        commit = attempt.go_on(time.monotonic() + 0.01)
        if commit is not None:
            return commit
    raise AssertionError("the attempt does not end")


def staged(table: Path) -> Path:
    return table / "_units" / "g1" / "1-1"


def parquet(folder: Path) -> ParquetTable:
    pytest.importorskip("pyarrow")
    return ParquetTable(str(folder / "table"), schema={"number": "int64"})


def numbers_of(folder: Path) -> list[int]:
    import pyarrow.parquet as pq

    found: list[int] = pq.ParquetFile(staged(folder / "table") / "part-0.parquet").read()["number"].to_pylist()
    return found


def test_all_rows_are_written_in_their_order(folder: Path) -> None:
    attempt = attempt_of(folder, parquet(folder), lambda unit: ([int(line)] for line in unit.lines()))
    assert finished(attempt).rows == LINES
    assert numbers_of(folder) == list(range(LINES))


@pytest.mark.parametrize("tries", [0, 1])
@pytest.mark.parametrize("bad", [0, 1, 1234, LINES - 1])
def test_a_row_that_does_not_fit_is_blamed_on_its_line(folder: Path, tries: int, bad: int) -> None:
    def rows(unit: LogUnit) -> Iterator[list[Any]]:
        for line in unit.lines():
            yield ["x"] if int(line) == bad else [int(line)]

    with pytest.raises(RowError) as found:
        finished(attempt_of(folder, parquet(folder), rows, tries))
    assert found.value.line == Line(1, bad * 6, bad * 6 + 6)
    assert "column 'number' is int64" in str(found.value.__cause__)


@pytest.mark.parametrize("bad", [0, 700, LINES - 1])
def test_an_error_of_the_function_is_blamed_on_its_line(folder: Path, bad: int) -> None:
    calls = []

    def rows(unit: LogUnit) -> Iterator[str]:
        calls.append(unit.attempt)
        for line in unit.lines():
            if int(line) == bad:
                raise LookupError(line)
            yield line

    with pytest.raises(RowError) as found:
        finished(attempt_of(folder, LineFiles(str(folder / "table")), rows))
    assert found.value.line == Line(1, bad * 6, bad * 6 + 6)
    assert calls == [1]  # it knows without another call


def test_a_text_of_two_lines_is_blamed_on_its_line(folder: Path) -> None:
    def rows(unit: LogUnit) -> Iterator[str]:
        for line in unit.lines():
            yield "two\nlines" if line == "00777" else line

    with pytest.raises(RowError) as found:
        finished(attempt_of(folder, LineFiles(str(folder / "table")), rows))
    assert found.value.line == Line(1, 777 * 6, 777 * 6 + 6)
    assert "contains a line break" in str(found.value.__cause__)


def test_rows_of_several_kinds_stay_in_their_order(folder: Path) -> None:
    output = parquet(folder)
    import pyarrow as pa

    def rows(unit: LogUnit) -> Iterator[Any]:
        for line in unit.lines():
            number = int(line)
            if number % 3 == 0:
                yield pa.record_batch([pa.array([number], pa.int64())], names=["number"])
            else:
                yield [number] if number % 3 == 1 else {"number": number}

    assert finished(attempt_of(folder, output, rows)).rows == LINES
    assert numbers_of(folder) == list(range(LINES))


def test_texts_and_bytes_are_written_as_one_by_one(folder: Path) -> None:
    def rows(unit: LogUnit) -> Iterator[str | bytes]:
        for line in unit.lines():
            yield line.encode() if int(line) % 2 else line

    finished(attempt_of(folder, LineFiles(str(folder / "table")), rows))
    written = (staged(folder / "table") / "part-0.txt").read_text()
    assert written == (folder / "logs" / "a.log").read_text()


@pytest.mark.parametrize(
    "row", [[1, 2], [], ["1"], [1 << 63], [b"1"], {"other": 1}, "1", None], ids=lambda row: repr(row)
)
def test_what_one_row_may_not_be_none_of_many_may_be(tmp_path: Path, row: Any) -> None:
    output = parquet(tmp_path)
    for many in (False, True):
        stage = tmp_path / f"stage-{many}"
        stage.mkdir()
        writer = output.open(stage, "{}")
        with pytest.raises((ValueError, TypeError, OverflowError)):
            if many:
                writer.write_many([[1], row, [2]])
            else:
                writer.write(row)
            writer.prepare()
        writer.discard()


def test_a_column_that_must_have_values_refuses_none_among_many(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    output = ParquetTable(str(tmp_path / "table"), pa.schema([pa.field("number", pa.int64(), nullable=False)]))
    writer = output.open(tmp_path, "{}")
    writer.write_many([[1], [None]])
    with pytest.raises(ValueError, match="column 'number' has no value"):
        writer.prepare()
    writer.discard()


@given(st.integers(1, MANY_MAX), st.floats(0, 10))
def test_fewer_rows_are_taken_at_once_when_they_are_slow(many: int, took_s: float) -> None:
    following = _next_many(many, took_s)
    assert 1 <= following <= MANY_MAX
    assert following <= many if took_s >= MANY_S else following == min(2 * many, MANY_MAX)
    assert following < many or took_s <= 4 * MANY_S or many == 1
