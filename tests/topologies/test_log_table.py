"""The example of access logs: its parts, and the whole of it through the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import EXAMPLES, Heron
from tests.support.waiting import wait_for
from topologies import log_table

PROGRAM = EXAMPLES / "log_table.py"
PATIENCE_S = 120.0


class Lines:
    """What `requests` reads of a unit."""

    def __init__(self, *lines: str) -> None:
        self._lines = lines

    def lines(self) -> tuple[str, ...]:
        return self._lines


def test_the_server_rotates_its_log_and_writes_nonsense_now_and_then(tmp_path: Path) -> None:
    log_table.write(tmp_path, 2 * log_table.ROTATE_EACH)
    first = (tmp_path / "access.log").read_text()
    log_table.write(tmp_path, 100)
    assert (tmp_path / "access.log.1").read_text() == first
    sizes = {path.name: len(path.read_text().splitlines()) for path in tmp_path.iterdir()}
    assert sizes == {"access.log": 100, "access.log.1": log_table.ROTATE_EACH, "access.log.2": log_table.ROTATE_EACH}
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert sum(log_table.LINE.fullmatch(line) is None for line in lines) == 1


def test_a_line_is_a_request_or_an_error() -> None:
    line = '10.0.0.7 - - [14/Nov/2023:22:13:20] "GET /cart HTTP/1.1" 304 512'
    [row] = log_table.requests(Lines(line))  # type: ignore[arg-type]
    assert (row[0], row[2:]) == ("10.0.0.7", ["GET", "/cart", 304, 512]) and len(row) == len(log_table.SCHEMA)
    assert list(log_table.texts(Lines(line))) == ["10.0.0.7\t2023-11-14 22:13:20\tGET\t/cart\t304\t512"]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no line of an access log"):
        list(log_table.requests(Lines("nonsense")))  # type: ignore[arg-type]


def rows_of(table: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in table.glob("unit=*/*.parquet"))


@pytest.mark.heavy
def test_all_requests_are_in_the_table_while_the_log_grows_and_is_rotated(heron: Heron, tmp_path: Path) -> None:
    logs, table = tmp_path / "access", tmp_path / "requests"

    def write(lines: int) -> None:
        command = [sys.executable, str(PROGRAM), "--write", str(lines), "--logs", str(logs)]
        subprocess.run(command, check=True, env=heron.env)

    write(20_000)
    heron.submit(PROGRAM, "LogTable", "--logs", logs, "--output", table)
    write(7_000)
    # Of the lines, two and one are none.
    wait_for(lambda: rows_of(table) >= 27_000 - 3, PATIENCE_S, "all requests in the table")

    def bad() -> Any:
        shown = heron("units", "bad", "requests", "--json")
        return shown if shown.code == 1 and shown.out.count("no line of an access log") == 3 else None

    wait_for(bad, PATIENCE_S, "three bad lines")
    wait_for(
        lambda: heron("units", "check", "requests", "--table", table).code == 0, PATIENCE_S, "table and ledger agree"
    )
    assert rows_of(table) == 27_000 - 3
    heron.kill("LogTable")
