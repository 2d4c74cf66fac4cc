"""What users and disks do wrong, through the command line and real workers: one sentence with the fix, the exit code, no
half table, nothing lost, and no process left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from heronpy.ingest.ledger.types import Config
from heronpy.ingest.outputs.stages import About, Stages
from tests.ingest.units_cli import PATIENCE_S, rows_of, settled, shown
from tests.support.command import FAILED, NOT_FOUND, USAGE, Heron
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(400)

PROGRAM = Path(__file__).parent / "programs" / "units.py"


def count_of(heron: Heron, state: str) -> int:
    found = shown(heron)
    return found.units.get(state, (0, 0))[0] if found is not None else 0


def processed(heron: Heron, logs: Path, table: Path) -> list[str]:
    """Some lines that are in a table, whose topology has ended."""
    lines = [f"line {number}" for number in range(300)]
    (logs / "a.log").write_text("".join(f"{line}\n" for line in lines))
    heron.submit(PROGRAM, "--logs", logs, "--table", table, "--until", "now", "--wait")
    assert sorted(rows_of(table)) == sorted(lines)
    return lines


def refused(heron: Heron, flags: tuple[object, ...], *words: str) -> None:
    """A submit that is refused before anything starts, in one sentence."""
    result = heron("submit", "local", PROGRAM, *flags)
    sentence = result.refused(USAGE, "pipeline 'lines': ", *words)
    assert len(sentence) < 400 and "Traceback" not in result.err and "Launching" not in result.out
    assert heron.names() == []
    heron.check_clean()


# ---- the ledger ---------------------------------------------------------------------------------
@pytest.mark.heavy
def test_a_ledger_of_a_later_release_is_refused_and_stays_as_it_is(heron: Heron, logs: Path, table: Path) -> None:
    lines = processed(heron, logs, table)
    ledger = heron.home / "ledger" / "units.db"

    def version(number: int | None = None) -> int:
        with closing(sqlite3.connect(ledger)) as connection:
            if number is not None:
                connection.execute(f"PRAGMA user_version = {number}")
            return int(connection.execute("PRAGMA user_version").fetchone()[0])

    ours = version()
    version(99)
    refused(heron, ("--logs", logs, "--table", table), str(ledger), "(its version is 99", "use that release")
    heron("units", "list").refused(FAILED, "written by another release", "use that release")
    assert version() == 99 and sorted(rows_of(table)) == sorted(lines)
    # With the right release all goes on.
    version(ours)
    with (logs / "a.log").open("a") as log:
        log.write("one more\n")
    heron.submit(PROGRAM, "--logs", logs, "--table", table, "--until", "now", "--wait")
    assert sorted(rows_of(table)) == sorted([*lines, "one more"])


def test_a_ledger_where_locks_may_not_hold_is_refused(heron: Heron, logs: Path, table: Path) -> None:
    """As on NFS: any kind of file system that is not known to be of one host."""
    url = "sqlite:/sys/heron/units.db"
    flags = ("--logs", logs, "--table", table, "--config-property", f"heron.ingest.ledger={url}")
    words = ("/sys/heron/units.db", "file system of type sysfs", "or PostgreSQL")
    refused(heron, flags, *words)
    heron("submit", "local", "--dry-run", PROGRAM, *flags).refused(USAGE, *words)
    assert not table.exists()


def test_a_file_that_is_no_ledger_is_refused_and_stays_as_it_is(heron: Heron, logs: Path, table: Path) -> None:
    path = heron.home.parent / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (a)")
    before = path.read_bytes()
    flags = ("--logs", logs, "--table", table, "--config-property", f"heron.ingest.ledger=sqlite:{path}")
    refused(heron, flags, f"{path} is a database but not a ledger", "give another path")
    path.write_bytes(b"no database, but long enough to be taken for one" * 20)
    refused(heron, flags, f"the ledger {path} is damaged", "heron units rebuild")
    assert before != path.read_bytes() and not table.exists()


def test_a_ledger_that_others_may_write_or_that_is_a_link_is_refused(heron: Heron, logs: Path, table: Path) -> None:
    """They were told by workers only, whose topology went DEGRADED."""
    folder = heron.home.parent / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    ledger = folder / "units.db"
    flags = ("--logs", logs, "--table", table, "--config-property", f"heron.ingest.ledger=sqlite:{ledger}")
    refused(heron, flags, f"the folder of the ledger {folder} is writable by other users", "chmod go-w")
    folder.chmod(0o700)
    ledger.symlink_to(folder / "nowhere.db")
    refused(heron, flags, f"the ledger {ledger} cannot be opened: it is not a regular file")
    assert os.listdir(folder) == ["units.db"] and not table.exists()


def test_a_table_of_another_pipeline_or_with_a_link_inside_is_refused(heron: Heron, logs: Path, table: Path) -> None:
    Stages(str(table)).claim(About("clicks", Config("/logs/*.log")))
    flags = ("--logs", logs, "--table", table)
    refused(heron, flags, f"{table} is the table of pipeline 'clicks'", "give 'lines' a separate table")
    (table / "_units").rename(table.parent / "units")
    (table / "_units").symlink_to(table.parent / "units")
    refused(heron, flags, f"{table}/_units is a link", "remove the link")
    assert not (heron.home / "ledger").exists()


@pytest.mark.heavy
def test_two_patterns_under_one_name_are_refused_and_another_name_is_not_found(
    heron: Heron, logs: Path, table: Path
) -> None:
    lines = processed(heron, logs, table)
    for verb in ("show", "bad", "retry"):
        heron("units", verb, "other").refused(NOT_FOUND, "has no pipeline 'other'", "its pipelines are lines")
    (logs / "b.txt").write_text("other\n")
    other = table.parent / "other"
    refused(
        heron,
        ("--logs", logs, "--table", other, "--pattern", "*.txt"),
        f"{logs}/*.txt",
        "give the pipeline another name",
    )
    assert not other.exists() and sorted(rows_of(table)) == sorted(lines)


# ---- files --------------------------------------------------------------------------------------
@pytest.mark.heavy
def test_a_pattern_that_matches_nothing_is_told(heron: Heron, logs: Path, table: Path) -> None:
    """The run ended well, and only the log of a keeper said more: that it waits for one."""
    (logs / "a.txt").write_text("not for the table\n")
    said = f"{logs}/*.log* matches no file, so nothing is processed for it"
    waited = heron("submit", "local", PROGRAM, "--logs", logs, "--table", table, "--until", "now", "--wait")
    assert waited.code == 0 and f"warning: while running: LogFileError: {said}" in waited.err
    heron.submit(PROGRAM, "--logs", logs, "--table", table, "--until", "now")
    wait_for(lambda: heron.status("lines")["lifecycle"] == "FINISHED", PATIENCE_S, "the end")
    wait_for(lambda: said in heron("exceptions", "local", "lines").ok().out, PATIENCE_S, "the sentence")
    for verb in (("list",), ("show", "lines")):
        assert f"no file of {logs}/*.log* is known" in heron("units", *verb).ok().out
    heron.kill("lines")
    heron.check_clean()


@pytest.mark.heavy
def test_what_is_no_log_is_named_and_the_rest_is_in_the_table(heron: Heron, logs: Path, table: Path) -> None:
    """A FIFO, a link that leads out, a line that is too long, and bytes of another encoding, among good lines."""
    secret = logs.parent / "secret"
    secret.write_text("not for the table\n")
    os.mkfifo(logs / "fifo.log")
    (logs / "link.log").symlink_to(secret)
    good = [f"good {number}" for number in range(300)]
    data = [f"{line}\n".encode() for line in good]
    long, wrong = b"x" * 5_000 + b"\n", b"caf\xe9\n"
    (logs / "a.log").write_bytes(b"".join([*data[:100], long, *data[100:200], wrong, *data[200:]]))
    heron.submit(
        *(PROGRAM, "--logs", logs, "--table", table, "--unit-bytes", 20_000),
        *("--config-property", "heron.ingest.line_bytes_max=1KB"),
    )
    settled(heron, (logs / "a.log").stat().st_size)
    for name, fix in (("fifo.log", "make the pattern exclude it"), ("link.log", "put its target into the pattern")):

        def told(what: str = f"{logs}/{name}", fix: str = fix) -> bool:
            return any(what in line and fix in line for line in heron("exceptions", "local", "lines").out.splitlines())

        wait_for(told, PATIENCE_S, f"the sentence of {name}")

    assert sorted(rows_of(table)) == sorted(good)
    shown = heron("units", "bad", "lines", "--json")
    assert shown.code == 1
    errors = {one["span"]["begin"]: one["span"]["error"] for one in json.loads(shown.out)["bad"]}
    first = len(b"".join(data[:100]))
    assert errors.keys() == {first, first + len(long) + len(b"".join(data[100:200]))}
    assert "check that it is a text file" in errors[first] and "set the right encoding" in errors[max(errors)]
    for error in errors.values():
        assert "\n" not in error and "Traceback" not in error
    heron("units", "check", "lines", "--table", table).ok()
    heron.kill("lines")
    heron.check_clean()
    assert secret.read_text() == "not for the table\n"


# ---- the table ----------------------------------------------------------------------------------
@pytest.mark.heavy
def test_a_stage_that_somebody_deletes_is_named_and_its_lines_come_back(heron: Heron, logs: Path, table: Path) -> None:
    (logs / "a.log").write_text("first\n")
    # Who is stopped is not given up for lost.
    patient = ("--config-property", f"heron.stmgr.instance_lost_s={2 * PATIENCE_S:g}")
    heron.submit(PROGRAM, "--logs", logs, "--table", table, "--workers", 1, *patient)
    wait_for(lambda: rows_of(table) == ["first"], PATIENCE_S, "a first row")
    pids = {task["pid"]: task["component"] for task in heron.status("lines")["tasks"]}
    workers = [pid for pid, component in pids.items() if component == "lines-worker"]
    keepers = [pid for pid, component in pids.items() if component == "lines-keeper"]

    def send(number: int, to: list[int]) -> None:
        for pid in to:
            os.kill(pid, number)

    def stopped(to: list[int]) -> bool:
        """Stop them while none of them has the ledger: the others need it."""
        send(signal.SIGSTOP, to)
        with closing(sqlite3.connect(heron.home / "ledger" / "units.db", timeout=1.0, isolation_level=None)) as ledger:
            try:
                ledger.execute("BEGIN IMMEDIATE")
                ledger.execute("ROLLBACK")
            except sqlite3.OperationalError:
                send(signal.SIGCONT, to)
                return False
        return True

    # A unit is cut while no worker takes it, and committed while no keeper publishes it.
    wait_for(lambda: stopped(workers), PATIENCE_S, "a worker that stands still")
    with (logs / "a.log").open("a") as log:
        log.write("lost\nfound\n")
    wait_for(lambda: count_of(heron, "ready"), PATIENCE_S, "a unit")
    wait_for(lambda: stopped(keepers), PATIENCE_S, "keepers that stand still")
    send(signal.SIGCONT, workers)
    wait_for(lambda: count_of(heron, "committed"), PATIENCE_S, "a commit")
    [stage] = (table / "_units").glob("g1/*")
    shutil.rmtree(stage)
    send(signal.SIGCONT, keepers)

    def told() -> Any:
        return [one for one in heron("exceptions", "local", "lines").out.splitlines() if f"restore {stage}" in one]

    assert "or run 'heron units rebuild'" in wait_for(told, PATIENCE_S, "the sentence")[0]
    shown = heron("units", "show", "lines").ok().out
    assert f"restore {stage}, or run 'heron units rebuild'" in shown and "its publication" not in shown
    assert "1 unit cannot be published: heron units show lines" in heron("units", "list").ok().out
    # Others go on, and no half unit is in the table.
    (logs / "b.log").write_text("other\n")
    wait_for(lambda: sorted(rows_of(table)) == ["first", "other"], PATIENCE_S, "the next unit")
    assert all((folder / "_unit.json").exists() for folder in table.glob("unit=*"))
    assert heron("units", "check", "lines", "--table", table).ok()
    assert count_of(heron, "committed") == 1
    heron.kill("lines")
    heron.check_clean()

    def rebuilt() -> str:
        done = heron("units", "rebuild", "lines", "--from", table)
        assert not done.code or "were seen in the last 15 s" in done.err, f"{done}"
        return done.out

    assert "generation 2: 2 files, 12B done" in wait_for(rebuilt, PATIENCE_S, "the rebuilt ledger")
    heron.submit(PROGRAM, "--logs", logs, "--table", table, "--until", "now", "--wait")
    assert sorted(rows_of(table)) == ["first", "found", "lost", "other"]
    heron("units", "check", "lines", "--table", table).ok()
