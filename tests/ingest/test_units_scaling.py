"""The number of workers of a pipeline changes while its logs grow: each line once, and nobody else is started again."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Heron
from tests.support.growing_logs import GrowingLogs
from tests.support.waiting import alive, wait_for

PROGRAM = Path(__file__).parent / "programs" / "units.py"
PATIENCE_S = 120.0
#: Lines of each step of the writer, and how many may be missing in the table before the writer waits.
LINES, AHEAD = 20, 2_000


def tasks_of(status: dict[str, Any]) -> dict[int, tuple[str, int]]:
    """Component and pid of each task that runs, by its number."""
    return {task["task_id"]: (task["component"], task["pid"]) for task in status["tasks"] if task["pid"]}


def workers_of(tasks: dict[int, tuple[str, int]]) -> set[int]:
    return {pid for component, pid in tasks.values() if component == "lines-worker"}


class Rows:
    """The rows `pid line` of all published units; each is read once."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self.units: dict[str, list[str]] = {}
        self.pids: set[int] = set()
        self.count = 0

    def look(self) -> None:
        for folder in self._table.glob("unit=*"):
            if folder.name not in self.units:
                found = (folder / "part-0.txt").read_text("utf-8").splitlines()
                self.units[folder.name] = found
                self.pids.update(int(text.split(" ", 1)[0]) for text in found)
                self.count += len(found)


@pytest.mark.heavy
@pytest.mark.timeout(400)
def test_workers_come_and_go_while_the_log_grows(heron: Heron, home: Path) -> None:
    logs, table = home.parent / "logs", home.parent / "table"
    logs.mkdir()
    writer, rows = GrowingLogs(logs, 5, ("a.log",)), Rows(table)
    writer.append("a.log", LINES)
    heron.submit(PROGRAM, "--logs", logs, "--table", table, "--workers", 1, "--unit-bytes", 2048, "--show-pid")

    def while_it_grows(holds: Callable[[], object], what: str) -> None:
        def grown() -> object:
            rows.look()
            if writer.written.lines["a.log"] < rows.count + AHEAD:
                writer.append("a.log", LINES)
            return holds()

        wait_for(grown, PATIENCE_S, what)

    def update(number: int) -> dict[int, tuple[str, int]]:
        """Change the number of workers while the log grows and is rotated; the tasks afterwards."""
        change = heron.start("update", "local", "lines", "--component-parallelism", f"lines-worker:{number}")
        writer.rename("a.log")

        def is_done() -> bool:
            try:
                change.wait(0.05)
            except subprocess.TimeoutExpired:
                return False
            return True

        while_it_grows(is_done, "the end of the update")
        said, wrong = change.communicate()
        assert change.returncode == 0, said + wrong
        return tasks_of(
            heron.when("lines", lambda found: len(workers_of(tasks_of(found))) == number, f"{number} of them")
        )

    first = tasks_of(heron.status("lines"))
    assert len(first) == 3 and len(workers_of(first)) == 1
    while_it_grows(lambda: workers_of(first) <= rows.pids, "rows of the first worker")
    more = update(3)
    assert more.items() > first.items(), "a process that was there was started again"
    while_it_grows(lambda: workers_of(more) <= rows.pids, "rows of all three workers")
    fewer = update(1)
    assert fewer.items() < more.items(), "a process that stays was started again"
    gone = workers_of(more) - workers_of(fewer)
    wait_for(lambda: not any(map(alive, gone)), PATIENCE_S, "the end of two workers")
    rows.look()
    units = len(rows.units)
    while_it_grows(lambda: len(rows.units) > units + 3, "units of the worker that stays")

    def is_settled() -> bool:
        found = heron("units", "show", "lines", "--json").json()
        size = sum(path.stat().st_size for path in logs.iterdir())
        return bool(found["done_bytes"] == size and not any(count for count, _ in found["units"].values()))

    wait_for(is_settled, PATIENCE_S, "all bytes being published")
    rows.look()
    wrong = writer.judge(text.split(" ", 1)[1] for unit in rows.units.values() for text in unit)
    assert not wrong, (len(wrong.missing), len(wrong.doubled), len(wrong.foreign))
    heron("units", "check", "lines", "--table", table).ok()
    status = heron.status("lines")
    assert tasks_of(status) == fewer
    processes = [process for container in status["containers"] for process in container["processes"]]
    assert processes and not any(process["restarts"] for process in processes)
    heron.kill("lines")
