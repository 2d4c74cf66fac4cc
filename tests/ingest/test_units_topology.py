"""Work units on real processes: every line once in the table, or in the list of bad ranges, whoever is killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from heronpy.loadtest.errors import LabError
from heronpy.verify.disk import SmallDisk
from tests.ingest.units_cli import PATIENCE_S, rows_of, settled, shown
from tests.support.command import USAGE, Heron, refused_before_start
from tests.support.growing_logs import GrowingLogs
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "units.py"


def figures(heron: Heron) -> dict[str, Any]:
    return dict(heron("units", "show", "lines", "--json").ok().json())


def agree(heron: Heron, table: Path) -> dict[str, Any]:
    found = heron("units", "check", "lines", "--table", table, "--json")
    assert found.code == 0, found.out + found.err
    return dict(found.json())


def bytes_of(logs: Path) -> int:
    return sum(path.stat().st_size for path in logs.glob("*.log*"))


def test_what_is_there_is_processed_once_and_the_run_ends(heron: Heron, logs: Path, table: Path) -> None:
    (logs / "a.log").write_text("".join(f"a {number}\n" for number in range(3000)))
    (logs / "b.log").write_text("".join(f"b {number}\n" for number in range(500)) + "unfinished")
    said = heron.submit(PROGRAM, "--logs", logs, "--table", table, "--until", "now", "--wait").out
    assert "FINISHED" in said
    expected = [f"a {number}" for number in range(3000)] + [f"b {number}" for number in range(500)]
    assert sorted(rows_of(table)) == sorted(expected)
    agreed = agree(heron, table)
    # Also the units that begin within a line are compared with the bytes.
    assert (agreed["rows"], agreed["bytes_gone"]) == (3500, 0)
    # The next run goes on where this one ended.
    with (logs / "b.log").open("a") as file:
        file.write(" line\nb last\n")
    heron.submit(PROGRAM, "--logs", logs, "--table", table, "--until", "now", "--wait")
    assert sorted(rows_of(table)) == sorted([*expected, "unfinished line", "b last"])


@pytest.mark.heavy
def test_a_full_disk_of_the_ledger_is_said_until_there_is_room(heron: Heron, logs: Path, table: Path) -> None:
    disk = SmallDisk(heron.home / "ledger", 4 << 20)
    try:
        disk.__enter__()
    except LabError as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    try:
        (logs / "a.log").write_text("".join(f"a {number}\n" for number in range(500)))
        heron.submit(PROGRAM, "--logs", logs, "--table", table)
        settled(heron, bytes_of(logs))
        disk.fill()
        with (logs / "a.log").open("a") as file:
            file.writelines(f"a {number}\n" for number in range(500, 1000))
        cause = heron.when_state("lines", "DEGRADED")["cause"]
        assert "lines-" in cause and " waits: the ledger" in cause and "full" in cause
        doctor = heron("doctor", "local", "lines")
        # Keepers and workers wait by now, and any of them may be named.
        assert re.search(r"lines is degraded: container_1_lines-(keeper|worker)_\d waits: the ledger", doctor.out), (
            doctor
        )
        disk.empty()
        assert heron.when_state("lines", "RUNNING")["cause"] == ""
        settled(heron, bytes_of(logs))
        assert sorted(rows_of(table)) == sorted(f"a {number}" for number in range(1000))
        heron.kill("lines")
    finally:
        if heron.names():
            heron.kill("lines")
        disk.__exit__(None, None, None)


def killed(heron: Heron, kind: str, before: set[int]) -> int:
    """Kill a task of a kind as soon as there is one that was not killed before; its pid."""

    def victim() -> int:
        tasks = heron.status("lines")["tasks"]
        return next((one["pid"] for one in tasks if one["component"] == f"lines-{kind}" and one["pid"]), 0)

    def kill() -> int:
        pid = victim()
        if not pid or pid in before:
            return 0
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return 0
        return pid

    return wait_for(kill, PATIENCE_S, f"a {kind} to kill")


def test_every_line_once_while_workers_and_keepers_are_killed(heron: Heron, logs: Path, table: Path) -> None:
    writer = GrowingLogs(logs, 7, ("a.log", "b.log"))
    heron.submit(PROGRAM, "--logs", logs, "--table", table)
    gone: set[int] = set()
    for kind in ("worker", "keeper", "worker", "keeper"):
        for log in ("a.log", "b.log"):
            writer.append(log, 400)
        gone.add(killed(heron, kind, gone))
        writer.begin("a.log")
        writer.rename("b.log")
    for log in writer.written.lines:
        writer.finish(log)
    settled(heron, bytes_of(logs))
    wrong = writer.judge(rows_of(table))
    assert not wrong, (len(wrong.missing), len(wrong.doubled), len(wrong.foreign), wrong.missing[:3], wrong.doubled[:3])
    assert len(gone) == 4
    agree(heron, table)


def test_a_failed_unit_is_tried_again_after_a_fix(heron: Heron, logs: Path, table: Path) -> None:
    lines = [f"{'bad' if number in (77, 150) else 'good'} {number}" for number in range(200)]
    (logs / "a.log").write_text("".join(line + "\n" for line in lines))
    heron.submit(PROGRAM, "--logs", logs, "--table", table, "--tries-max", 1, "--bad-max", 1)

    def has_failed() -> bool:
        found = shown(heron)
        return found is not None and {state for state, (count, _) in found.units.items() if count} == {"failed"}

    wait_for(has_failed, PATIENCE_S, "a failed unit")
    assert len(rows_of(table)) == 198
    said = heron("units", "bad", "lines")
    assert (
        said.code == 1
        and "Traceback" in said.out
        and "in rows" in said.out
        and f"record: {table}/_units/bad/" in said.out
    )
    assert "heron units bad lines" in heron("dead-letters", "local", "lines").ok().out
    (logs / "fixed").touch()
    assert heron("units", "retry", "lines").ok().out == "1 unit to retry\n"
    assert heron("units", "bad", "lines", "--retry").ok().out == "1 unit to retry\n"
    settled(heron, bytes_of(logs))
    assert sorted(rows_of(table)) == sorted(lines)


def test_a_ledger_is_rebuilt_at_once_after_a_kill(heron: Heron, logs: Path, table: Path) -> None:
    lines = [f"line {number}" for number in range(3000)]
    (logs / "a.log").write_text("".join(line + "\n" for line in lines))
    heron.submit(PROGRAM, "--logs", logs, "--table", table)
    settled(heron, bytes_of(logs))
    refused = heron("units", "rebuild", "lines", "--from", table)
    assert refused.code != 0 and "workers and keepers were seen" in refused.err
    heron.kill("lines")
    lost = sorted(table.glob("unit=*"))[1]
    shutil.rmtree(lost)
    differs = heron("units", "check", "lines", "--table", table)
    assert differs.code == 1 and "done in the ledger, but not in the table" in differs.out
    assert "generation 2" in heron("units", "rebuild", "lines", "--from", table).ok().out
    heron.submit(PROGRAM, "--logs", logs, "--table", table, "--until", "now", "--wait")
    assert sorted(rows_of(table)) == sorted(lines)
    agree(heron, table)


def test_a_ledger_of_the_settings_that_cannot_be_is_refused(heron: Heron, logs: Path, table: Path) -> None:
    flags = ("--logs", logs, "--table", table, "--config-property", "heron.ingest.ledger=mysql://x")
    refused_before_start(heron, USAGE, PROGRAM, "heron.ingest.ledger: the URL of a ledger is sqlite:", flags=flags)


@pytest.mark.heavy
def test_the_settings_name_the_ledger(heron: Heron, home: Path, logs: Path, table: Path) -> None:
    (logs / "a.log").write_text("one\ntwo\n")
    url = f"sqlite:{home.parent}/elsewhere/units.db"
    own = ("--until", "now", "--wait", "--config-property", f"heron.ingest.ledger={url}")
    heron.submit(PROGRAM, "--logs", logs, "--table", table, *own)
    assert rows_of(table) == ["one", "two"] and not (home / "ledger").exists()
    conf = home.parent / "conf" / "local"
    conf.mkdir(parents=True)
    (conf / "ingest.yaml").write_text(f"ledger: {url}\n")
    heron.env["HERON_CONF"] = str(conf.parent)
    assert heron("units", "show", "lines", "--json").json()["done_bytes"] == 8


@pytest.mark.heavy
def test_bad_lines_are_cut_out_and_come_back_after_a_fix(heron: Heron, logs: Path, table: Path) -> None:
    lines = [f"{'bad' if number == 77 else 'deadly' if number == 150 else 'good'} {number}" for number in range(200)]
    (logs / "a.log").write_text("".join(line + "\n" for line in lines))
    heron.submit(PROGRAM, "--logs", logs, "--table", table)
    settled(heron, bytes_of(logs))
    bad = heron("units", "bad", "lines", "--json")
    assert bad.code == 1
    found = {(one["key"], one["span"]["begin"], one["span"]["end"]): one["span"] for one in json.loads(bad.out)["bad"]}
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line) + 1)
    assert found.keys() == {("a.log", offsets[77], offsets[78]), ("a.log", offsets[150], offsets[151])}
    assert "ValueError: cannot read bad 77" in found["a.log", offsets[77], offsets[78]]["error"]
    assert rows_of(table).count("good 5") == 1 and len(rows_of(table)) == 198
    assert len(list((table / "_units" / "bad").glob("*.json"))) == 2
    (logs / "fixed").touch()
    assert "to retry" in heron("units", "bad", "lines", "--retry").ok().out
    settled(heron, bytes_of(logs))
    wait_for(lambda: len(rows_of(table)) == 200, PATIENCE_S, "all lines in the table")
    assert heron("units", "bad", "lines").ok().out.startswith("No bad range")
    assert sorted(rows_of(table)) == sorted(lines)
    agree(heron, table)


@pytest.mark.heavy
def test_a_bad_line_ends_a_topology_that_wants_it_so(heron: Heron, logs: Path, table: Path) -> None:
    lines = [f"{'bad' if number == 77 else 'good'} {number}" for number in range(200)]
    (logs / "a.log").write_text("".join(line + "\n" for line in lines))
    begin = sum(len(line) + 1 for line in lines[:77])
    flags = ("--logs", logs, "--table", table, "--on-bad", "fail", "--workers", 2)
    heron.submit(PROGRAM, *flags)
    cause = f"a.log bytes {begin}-{begin + len(lines[77]) + 1}: ValueError: cannot read bad 77"
    status = heron.when_state("lines", "FAILED")
    assert cause in status["cause"] and "heron units retry lines" in status["cause"]
    # The other worker sees it in the ledger, and neither is started again.
    status = heron.when(
        "lines", lambda found: [one for one in reasons(found) if one] == ["gave_up"] * 2, "both given up"
    )
    heron.kill("lines")
    # A new topology does not work around it.
    refused = heron("submit", "local", PROGRAM, *flags, "--wait")
    assert refused.code != 0 and cause in refused.err
    if heron.names():
        heron.kill("lines")
    (logs / "fixed").touch()
    assert heron("units", "retry", "lines").ok().out == "1 unit to retry\n"
    heron.submit(PROGRAM, *flags)
    settled(heron, bytes_of(logs))
    assert sorted(rows_of(table)) == sorted(lines)


def reasons(status: dict[str, Any]) -> list[str]:
    """Why processes of workers ended last."""
    found = [process for container in status["containers"] for process in container["processes"]]
    return [process["exit_reason"] for process in found if "lines-worker" in process["name"]]
