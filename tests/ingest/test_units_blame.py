"""Which bytes are to blame when a function fails, however many lines it takes at once; and what is nobody's fault."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from heronpy.growing import chunks
from heronpy.ingest import LogUnit, ParquetTable
from heronpy.ingest.ledger import policy
from heronpy.ingest.outputs.stages import Stages
from tests.ingest.test_units_inside import PATIENCE_S, Running, options, run, shown
from tests.support.waiting import wait_for

__all__ = ["options", "run"]
BAD = 23
COUNT = 60


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "TRY_AGAIN_S", (0.0, 0.0))


@pytest.fixture
def logs(tmp_path: Path, options: dict[str, Any]) -> Path:
    """One unit of lines with numbers, except one line."""
    path = tmp_path / "logs" / "east" / "a.log"
    path.write_text("".join(f"{number:03d}\n" if number != BAD else "xyz\n" for number in range(COUNT)))
    return path


def settle(running: Running, ledger: str, size: int) -> None:
    def settled() -> bool:
        running.drive()
        figures = shown(ledger)
        return figures.done_bytes + figures.bad_bytes == size and not figures.units

    wait_for(settled, PATIENCE_S, f"{size} bytes being published or bad")


def batches(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    while batch := list(islice(lines, size)):
        yield batch


def number(line: str) -> str:
    return str(int(line))


def one_by_one(unit: LogUnit) -> Iterator[str]:
    for line in unit.lines():
        yield number(line)


def all_at_once(unit: LogUnit) -> list[str]:
    lines = list(unit.lines())
    return [number(line) for line in lines]


def in_batches(unit: LogUnit) -> Iterator[str]:
    for lines in batches(unit.lines(), 7):
        yield from [number(line) for line in lines]


def one_ahead(unit: LogUnit) -> Iterator[str]:
    before = None
    for line in unit.lines():
        if before is not None:
            yield number(before)
        before = line
    if before is not None:
        yield number(before)


def as_blocks(unit: LogUnit) -> Iterator[str]:
    for block in unit.blocks():
        yield from [number(line.decode()) for line in block.data.splitlines()]


def records(table: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in (table / "_units" / "bad").glob("*.json")]


@pytest.mark.parametrize("rows", [one_by_one, all_at_once, in_batches, one_ahead, as_blocks])
def test_the_bad_line_is_found_however_many_lines_a_function_holds(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], logs: Path, rows: Callable[[LogUnit], Any]
) -> None:
    running = run("east", rows=rows, bad_max=1, **options)
    settle(running, options["ledger"], logs.stat().st_size)
    found = [line for path in (tmp_path / "table").glob("unit=*/part-0.txt") for line in path.read_text().split()]
    assert sorted(map(int, found)) == [number for number in range(COUNT) if number != BAD]
    assert [(one["begin"], one["text"]) for one in records(tmp_path / "table")] == [(4 * BAD, "xyz\n")]
    assert not shown(options["ledger"]).units.get("failed", (0, 0))[0]


def test_a_line_that_is_rotated_away_from_its_worker_keeps_its_bytes(
    tmp_path: Path,
    run: Callable[..., Running],
    options: dict[str, Any],
    logs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The keeper, which knows where the file is now, writes the record."""
    monkeypatch.setattr("heronpy.ingest.worker.dead_bytes", lambda *_: (b"", False))
    monkeypatch.setattr("heronpy.ingest.keeper.CLEAN_S", 0.0)
    running = run("east", rows=one_by_one, bad_max=1, **options)
    settle(running, options["ledger"], logs.stat().st_size)

    def written() -> list[dict[str, Any]]:
        running.drive()
        return records(tmp_path / "table")

    found = wait_for(written, PATIENCE_S, "the record")
    assert [(one["begin"], one["text"]) for one in found] == [(4 * BAD, "xyz\n")]


def test_many_rows_that_do_not_fit_are_blamed_on_no_line_of_theirs(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], logs: Path
) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    def rows(unit: LogUnit) -> Iterator[Any]:
        for lines in batches(unit.lines(), 20):
            yield pa.record_batch([pa.array(lines)], names=["number"])

    options["output"] = ParquetTable(str(tmp_path / "table"), schema={"number": "int64"})
    running = run("east", rows=rows, bad_max=1, **options)
    settle(running, options["ledger"], logs.stat().st_size)
    files = (tmp_path / "table").glob("unit=*/*.parquet")
    found = [value for path in files for value in pq.ParquetFile(path).read()["number"].to_pylist()]
    assert sorted(found) == [number for number in range(COUNT) if number != BAD]
    assert [one["begin"] for one in records(tmp_path / "table")] == [4 * BAD]


@pytest.mark.parametrize(
    "error", [OSError(errno.EOVERFLOW, "too large"), TimeoutError("no answer"), ConnectionError("refused"), OSError(75)]
)
def test_what_a_function_raises_is_a_try_also_if_a_disk_could_raise_it(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], logs: Path, error: OSError
) -> None:
    def rows(unit: LogUnit) -> Iterator[str]:
        for line in unit.lines():
            if line == "xyz":
                raise type(error)(*error.args)  # a new one: it would keep the frames of each try
            yield line

    running = run("east", rows=rows, **options)
    settle(running, options["ledger"], logs.stat().st_size)
    assert [one["begin"] for one in records(tmp_path / "table")] == [4 * BAD]


def refusing(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[OSError]:
    """The first reads behind the first block fail, as those of a disk that is broken, or away."""
    failures = [OSError(errno.EIO, "Input/output error"), OSError(errno.ESTALE, "Stale file handle")] * 2
    real = chunks.read_lines

    def read(descriptor: int, name: str, at: int, *rest: Any, **more: Any) -> Any:
        if at and failures:
            raise failures.pop()
        return real(descriptor, name, at, *rest, **more)

    monkeypatch.setattr(chunks, "read_lines", read)
    return failures


@pytest.mark.parametrize("catches", [False, True])
def test_a_log_that_cannot_be_read_for_a_while_is_nobodys_fault(
    tmp_path: Path,
    run: Callable[..., Running],
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    catches: bool,
) -> None:
    """Also if the function catches what it does not know: a unit is not complete then."""
    path = tmp_path / "logs" / "east" / "a.log"
    path.write_text("".join(f"{number:099d}\n" for number in range(4_000)))
    failures = refusing(path, monkeypatch)

    def rows(unit: LogUnit) -> Iterator[str]:
        try:
            yield from unit.lines()
        except Exception:
            if not catches:
                raise

    running = run("east", rows=rows, **(options | {"unit_bytes": 1 << 20}))
    settle(running, options["ledger"], path.stat().st_size)
    assert not failures and shown(options["ledger"]).bad_ranges == 0
    rows_there = [file.read_text().count("\n") for file in (tmp_path / "table").glob("unit=*/part-0.txt")]
    assert sum(rows_there) == 4_000
    assert not [said for said in running.delegate.said if "try " in said]
    assert len([said for said in running.delegate.said if "cannot be read, and will be retried" in said]) == 1


def test_a_line_that_cannot_be_decoded_is_bad_also_if_the_function_catches_that(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    path = tmp_path / "logs" / "east" / "a.log"
    path.write_bytes(b"one\n\xff\nthree\n")

    def rows(unit: LogUnit) -> Iterator[str]:
        try:
            yield from unit.lines()
        except Exception:
            return

    running = run("east", rows=rows, **options)
    settle(running, options["ledger"], path.stat().st_size)
    assert [one["begin"] for one in records(tmp_path / "table")] == [4]
    assert shown(options["ledger"]).done_bytes == path.stat().st_size - 2


def test_a_full_disk_of_the_table_is_no_try(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*about: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    running = run("east", **options)
    monkeypatch.setattr(Stages, "finish", refused)

    def is_told() -> bool:
        running.drive()
        return sum("No space left" in said for said in running.delegate.said) > 2

    wait_for(is_told, 30.0, "a full disk that is told")
    monkeypatch.undo()
    settle(running, options["ledger"], logs.stat().st_size)
    assert shown(options["ledger"]).bad_ranges == 0
