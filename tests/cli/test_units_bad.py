"""`heron units bad`: every bad range with its bytes, its traceback and the path of its record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from heronpy.api.user_code import UserCodeError, user_traceback
from heronpy.cli.exits import Failure
from heronpy.cli.look.bad_ranges import show_bad
from heronpy.cli.look.units import check_pipeline
from heronpy.cli.verbs.units import units_command
from heronpy.common.errors import GaveUpError
from heronpy.ingest import LogUnit
from heronpy.ingest.bad import Tries
from heronpy.ingest.checking import command_of, rebuild
from heronpy.ingest.ledger import policy
from heronpy.ingest.ledger.commands import ListBad
from heronpy.ingest.ledger.types import Unit
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.worker import LogWorker
from tests.ingest.test_units_blame import settle
from tests.ingest.test_units_inside import PATIENCE_S, Running, options, run
from tests.support.waiting import wait_for

__all__ = ["options", "run"]
LINES = [f"line {number}" for number in range(20)]
LINES[7], LINES[12] = "bad\t\x1b[2J", "bad " + 3000 * "x"
OFFSETS = [sum(len(line) + 1 for line in LINES[:number]) for number in range(len(LINES))]


def parsed(line: str) -> str:
    if line.startswith("bad"):
        raise ValueError(f"cannot read {line[:5]}")
    return line


def deep(line: str, depth: int = 9) -> str:
    return deep(line, depth - 1) if depth else parsed(line)


def rows(unit: LogUnit) -> Iterator[str]:
    for line in unit.lines():
        yield deep(line)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "TRY_AGAIN_S", (0.0, 0.0))


@pytest.fixture
def log(tmp_path: Path, options: dict[str, Any]) -> Path:
    path = tmp_path / "logs" / "east" / "a.log"
    path.write_text("".join(line + "\n" for line in LINES))
    return path


def said(capsys: pytest.CaptureFixture[str], ledger: str, unit: int | None = None, **flags: bool) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        show_bad("lines", unit, ledger, flags.get("retry", False), flags.get("whole", False), flags.get("json", False))
    assert end.value.code == 1
    return capsys.readouterr().out


def test_bytes_traceback_and_record_are_shown(
    tmp_path: Path,
    run: Callable[..., Running],
    options: dict[str, Any],
    log: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ledger, table = options["ledger"], tmp_path / "table"
    running = run("east", rows=rows, **(options | {"unit_bytes": 1 << 20}))
    settle(running, ledger, log.stat().st_size)
    out = said(capsys, ledger)
    end = OFFSETS[7] + len(LINES[7]) + 1
    assert f"a.log {OFFSETS[7]}-{end}  u1, 3 tries  ValueError: cannot read bad" in out
    assert f"  {len(LINES[7]) + 1} bytes: bad\\t\\x1b[2J\n" in out and "\x1b" not in out
    assert f"  record: {table}/_units/bad/g1-f1-{OFFSETS[7]}-{end}.json" in out
    assert "raise ValueError" in out and "end of the traceback (in full with --traceback)" in out
    assert "rows(unit)" not in out and "yield deep(line)" not in out
    assert "x" * 150 + "... (more with --json)" in out and "x" * 300 not in out
    whole = said(capsys, ledger, whole=True)
    assert "yield deep(line)" in whole and "all of it" not in whole
    assert "yield deep(line)" in said(capsys, ledger, 1)
    with pytest.raises(Failure, match="pipeline 'lines' has no bad ranges in unit 99"):
        show_bad("lines", 99, ledger, retry=False, whole=False, as_json=False)
    [first, second] = json.loads(said(capsys, ledger, json=True))["bad"]
    assert (first["span"]["begin"], first["length"], first["text"]) == (OFFSETS[7], len(LINES[7]) + 1, LINES[7] + "\n")
    assert second["record"].endswith(".json") and "yield deep(line)" in second["traceback"]
    check_pipeline("lines", str(table), ledger, as_json=False)
    assert "agree" in (shown := capsys.readouterr().out) and "of bad ranges left out: heron units bad" in shown
    # A rebuilt ledger has other numbers; the records stay.
    running.end()
    assert rebuild(ledger, "lines", str(table)).bad_bytes
    assert [one["text"] for one in json.loads(said(capsys, ledger, json=True))["bad"]] == [
        LINES[7] + "\n",
        LINES[12] + "\n",
    ]
    assert "a unit from before the rebuild, 3 tries" in said(capsys, ledger) and "u0" not in said(capsys, ledger)
    for path in Stages(str(table)).bad_records():
        path.write_text("{}")
    assert "this host has no record of these bytes" in said(capsys, ledger)


def test_the_file_of_a_bad_line_is_found_by_the_name_that_it_has_now(
    tmp_path: Path,
    run: Callable[..., Running],
    options: dict[str, Any],
    log: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ledger = options["ledger"]
    broken = b"\xff is no UTF-8\n"
    with log.open("ab") as file:
        file.write(broken)
    running = run("east", rows=rows, **(options | {"unit_bytes": 1 << 20}))
    size = log.stat().st_size
    settle(running, ledger, size)
    assert f"  now {log}\n" in said(capsys, ledger)
    rotated = log.rename(log.with_name("a.log.1"))

    def shown() -> bool:
        running.drive()
        return f"  now {rotated}, was a.log\n" in said(capsys, ledger)

    wait_for(shown, PATIENCE_S, "the keeper having seen the rename")
    out = said(capsys, ledger)
    assert "a.log.1" not in out.replace(f"now {rotated}, was a.log", ""), "header, error and record say the same name"
    assert {one["path"] for one in json.loads(said(capsys, ledger, json=True))["bad"]} == {str(rotated)}
    rotated.write_text("other\n" * 1000)
    assert f"last seen as {rotated}, was a.log; it is not on this host" in said(capsys, ledger)
    assert json.loads(said(capsys, ledger, json=True))["bad"][0]["path"] is None
    rotated.unlink()

    def gone() -> bool:
        running.drive()
        return "  was a.log; the file is gone" in said(capsys, ledger)

    wait_for(gone, PATIENCE_S, "the keeper having missed the file")


@pytest.mark.parametrize("verb", ["bad", "retry"])
def test_units_are_named_as_they_are_printed(
    verb: str, run: Callable[..., Running], options: dict[str, Any], log: Path
) -> None:
    ledger = options["ledger"]
    settle(run("east", rows=rows, **(options | {"unit_bytes": 1 << 20})), ledger, log.stat().st_size)

    def said_by(unit: str) -> str:
        result = CliRunner().invoke(units_command, [verb, "lines", unit, "--ledger", ledger])
        return result.output + str(result.exception)

    assert said_by("u1") == said_by("1") and "not a unit" not in said_by("u1")
    assert "'u0' is not a unit: ids start at 1" in said_by("u0")
    assert "'x1' is not a unit; give the number" in said_by("x1")


def test_a_record_that_a_keeper_completes_has_the_traceback(
    tmp_path: Path,
    run: Callable[..., Running],
    options: dict[str, Any],
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker dies before it writes down what it was told to be bad."""
    running = run("east", rows=rows, **(options | {"unit_bytes": 1 << 20}))
    with monkeypatch.context() as patch:
        patch.setattr(Stages, "write_bad", lambda *about: None)
        settle(running, options["ledger"], log.stat().st_size)
    assert not list((tmp_path / "table" / "_units" / "bad").glob("*"))
    running.end()
    settle(run("east", rows=rows, **options), options["ledger"], log.stat().st_size)
    records = [json.loads(path.read_text()) for path in (tmp_path / "table" / "_units" / "bad").glob("*.json")]
    assert len(records) == 2 and all("yield deep(line)" in one["traceback"] for one in records)


def test_the_worker_that_halves_a_unit_writes_the_traceback_of_the_one_that_saw_it_fail(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    (tmp_path / "logs" / "east" / "a.log").write_text("one\n")

    def all_at_once(unit: LogUnit) -> list[str]:
        return [str(int(line)) for line in list(unit.lines())]

    first, second = (run("east", rows=all_at_once, **options) for _ in range(2))

    def to_be_halved() -> bool:
        first.drive()
        with closing(command_of(options["ledger"], "lines")) as reached:
            return any(isinstance(row, Unit) and row.halve for row in reached.snapshot())

    def listed() -> bool:
        second.drive(LogWorker)
        with closing(command_of(options["ledger"], "lines")) as reached:
            return bool(reached.ask(ListBad()).ranges)

    first.drive()
    wait_for(to_be_halved, PATIENCE_S, "a unit that is to be halved")
    wait_for(listed, PATIENCE_S, "a bad range")
    [record] = (json.loads(path.read_text()) for path in (tmp_path / "table" / "_units" / "bad").glob("*.json"))
    assert "invalid literal for int" in record["traceback"]
    second.end()
    first.end()


def test_a_bad_line_across_the_end_of_a_unit_says_where_it_ends(
    run: Callable[..., Running], options: dict[str, Any], log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text("good\n" + "bad" + 1_000 * "x" + "\nlast\n")
    running = run("east", rows=rows, **(options | {"unit_bytes": 400}))
    settle(running, options["ledger"], log.stat().st_size)
    out = said(capsys, options["ledger"])
    assert "395 bytes of the unit, and its line continues to byte 1,009: bad" in out
    [one] = json.loads(said(capsys, options["ledger"], json=True))["bad"]
    assert (one["span"]["end"], one["line_end"], one["text"]) == (400, 1_009, "bad" + 1_000 * "x" + "\n")


def test_a_pipeline_that_is_to_fail_shows_the_traceback_and_where_its_unit_is(
    run: Callable[..., Running], options: dict[str, Any], log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = run("east", rows=rows, on_bad="fail", **options)
    errors: list[Exception] = []
    running.delegate.report_error = errors.append  # type: ignore[method-assign]

    def gives_up() -> bool:
        try:
            running.drive()
        except GaveUpError as error:
            assert "cannot read bad" in str(error) and "heron units retry lines" in str(error)
            return True
        return False

    wait_for(gives_up, PATIENCE_S, "the end of the pipeline")
    tries = [user_traceback(error) for error in errors if isinstance(error, UserCodeError)]
    assert tries[0].startswith("unit 1, try 1: ValueError: cannot read bad")
    assert all("yield deep(line)" in text and "raise ValueError" in text for text in tries)
    show_bad("lines", None, options["ledger"], retry=False, whole=False, as_json=False)
    assert capsys.readouterr().out == (
        "No bad ranges in pipeline 'lines', but 1 unit has failed: heron units show lines\n"
    )


def test_tracebacks_are_kept_for_a_while_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = Tries(tmp_path)
    for unit in (1, 2):
        tries.write(2, unit, (), "boo")
    tries.write(1, 3, (), "older")
    assert tries.units(2) == (1, 2)
    tries.forget(2, [2])
    assert tries.units(2) == (1, 2)
    monkeypatch.setattr("heronpy.ingest.bad.KEPT_S", -1.0)
    tries.forget(2, [2])
    assert tries.units(2) == (2,) and tries.units(1) == ()
