"""The example of access logs: its parts, and the whole of it through the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.command import EXAMPLES, Heron, Result
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
    with pytest.raises(ValueError, match="not a line of an access log"):
        list(log_table.requests(Lines("nonsense")))  # type: ignore[arg-type]


def rows_of(table: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in table.glob("unit=*/*.parquet"))


def bad_lines(shown: Result) -> int:
    """How many ranges `heron units bad --json` names for lines that are not requests."""
    return sum("not a line of an access log" in one["span"]["error"] for one in json.loads(shown.out)["bad"])


def write(heron: Heron, logs: Path, lines: int) -> None:
    """Make the example's server write `lines` more lines."""
    command = [sys.executable, str(PROGRAM), "--write", str(lines), "--logs", str(logs)]
    subprocess.run(command, check=True, env=heron.env)


def traffic_of(table: Path) -> Counter[tuple[str, int]]:
    import pyarrow.parquet as pq

    found: Counter[tuple[str, int]] = Counter()
    for path in table.glob("batch=*/*.parquet"):
        for row in pq.read_table(path).to_pylist():
            found[row["path"], row["status"]] += row["requests"]
            found["sent", 0] += row["sent"]
    return found


def traffic_in(logs: Path) -> Counter[tuple[str, int]]:
    """The same, counted from the lines by hand."""
    found: Counter[tuple[str, int]] = Counter()
    for line in all_lines(logs):
        words = line.split(" ")
        if len(words) == 9:
            found[words[5], int(words[7])] += 1
            found["sent", 0] += int(words[8])
    return found


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark_counts_each_request_once_while_the_log_grows_and_is_rotated(heron: Heron, tmp_path: Path) -> None:
    logs, table = tmp_path / "access", tmp_path / "traffic"

    write(heron, logs, 10_000)
    flags = ("--spark", "--logs", logs, "--output", table)
    heron("submit", "local", PROGRAM, "Traffic", *flags, timeout_s=2 * PATIENCE_S).ok()
    wait_for(lambda: traffic_of(table).total(), 2 * PATIENCE_S, "counts of the first lines")
    write(heron, logs, 7_000)
    expected = traffic_in(logs)
    wait_for(lambda: traffic_of(table) == expected, 2 * PATIENCE_S, "all requests being counted")
    nonsense = sum(log_table.LINE.fullmatch(line) is None for line in all_lines(logs))
    assert nonsense == 2 and sum(count for key, count in expected.items() if key != ("sent", 0)) == 17_000 - nonsense

    def is_settled() -> bool:
        found = heron("units", "show", "traffic", "--json").json()
        return bool(found["bad_bytes"]) and not any(count for count, _ in found["units"].values())

    wait_for(is_settled, PATIENCE_S, "two bad lines")
    heron("units", "check", "traffic", "--table", table).ok()
    assert traffic_of(table) == expected
    heron.kill("Traffic")


@pytest.mark.heavy
@pytest.mark.timeout(400)
def test_whatever_a_new_user_kills_mends_and_loses(heron: Heron, tmp_path: Path) -> None:
    """Workers, keepers and containers are killed while the log grows; a fix, a retry; the ledger is lost and rebuilt."""
    logs, table = tmp_path / "access", tmp_path / "requests"
    program = tmp_path / "own_table.py"
    program.write_text(PROGRAM.read_text())

    def kill(kind: str, name: str) -> None:
        found = heron.status("LogTable")
        pids = [one["pid"] for one in found[kind] if name in str(one.get("component", name)) and one["pid"]]
        assert pids, found
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def all_up() -> bool:
        shown = heron("status", "local", "LogTable", "--json")
        return shown.code == 0 and all(one["pid"] for one in shown.json()["tasks"])

    def agrees() -> bool:
        return heron("units", "check", "requests", "--table", table).code == 0

    def nonsense() -> int:
        return sum(log_table.LINE.fullmatch(line) is None for line in all_lines(logs))

    write(heron, logs, 10_000)
    heron.submit(program, "LogTable", "--logs", logs, "--output", table)
    wait_for(lambda: rows_of(table) > 0, PATIENCE_S, "the first rows")
    for kind, name in (("tasks", "worker"), ("tasks", "keeper"), ("containers", ""), ("tasks", "requests")):
        kill(kind, name)
        write(heron, logs, 4_000)
        wait_for(all_up, PATIENCE_S, "all tasks again")
    bad = nonsense()
    assert bad
    wait_for(lambda: bad_lines(heron("units", "bad", "requests", "--json")) == bad, PATIENCE_S, "bad lines")
    good = 26_000 - bad
    wait_for(lambda: rows_of(table) == good, PATIENCE_S, "all requests in the table")
    # The fix: a line that is not a request gives no row.
    mended = program.read_text().replace('raise ValueError("this is not a line of an access log")', "continue")
    assert mended != program.read_text()
    heron.kill("LogTable")
    program.write_text(mended)
    heron.submit(program, "LogTable", "--logs", logs, "--output", table)
    assert "to retry" in heron("units", "bad", "requests", "--retry").ok().out
    wait_for(lambda: heron("units", "bad", "requests").code == 0, PATIENCE_S, "no bad line")
    wait_for(agrees, PATIENCE_S, "table and ledger agree")
    heron.kill("LogTable")
    shutil.rmtree(heron.home / "ledger")
    # Without a rebuild every line would come again.
    refused = heron("submit", "local", program, "LogTable", "--logs", logs, "--output", table)
    said = refused.err  # it may give up before the submit returns, which removes it then
    if refused.code == 0:
        heron.when_state("LogTable", "FAILED", PATIENCE_S)
        said = heron("exceptions", "local", "LogTable").out
        assert "after which the task was not restarted" in said and "while it started" not in said
        heron.kill("LogTable")
    assert "heron units rebuild requests" in said
    shutil.rmtree(heron.home / "ledger")
    heron("units", "rebuild", "requests", "--from", table).ok()
    write(heron, logs, 4_000)
    heron.submit(program, "LogTable", "--logs", logs, "--output", table)
    wait_for(lambda: rows_of(table) == 30_000 - nonsense(), PATIENCE_S, "all requests in the table")
    wait_for(agrees, PATIENCE_S, "table and ledger agree")
    heron.kill("LogTable")


def all_lines(logs: Path) -> list[str]:
    return [line for path in logs.iterdir() for line in path.read_text().splitlines()]
