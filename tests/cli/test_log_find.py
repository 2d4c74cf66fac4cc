"""`heron logs --find`: of topologies that run and that have ended, and what it says of its own bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from heronpy.cli.look import logs as log_find
from heronpy.cli.look.logs import Lines
from heronpy.common.errors import DeadlineError
from heronpy.common.log_format import Record, format_record
from heronpy.executor.file_service import ContainerFiles
from tests.cli.conftest import FakeTopology, Heron


def write(folder: Path, process: str, *records: str) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    lines = [format_record(2e9 + number, "INFO", process, "user", text) for number, text in enumerate(records)]
    (folder / f"{process}.log").write_text("\n".join(lines) + "\n")


@pytest.fixture
def logs(wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the logs; container 1 answers at its file service, container 0 does not."""
    folder = Path(wordy.record.working_dir)

    async def ask_executor(self: object, container: int, request: Any) -> Any:
        if container == 0:
            raise DeadlineError("the executor of container 0 did not answer within 5 s")
        return ContainerFiles(folder, container).answer(request)

    monkeypatch.setattr("heronpy.clusters.masters.Master.ask_executor", ask_executor)
    return folder / "log-files"


def test_hits_are_shown_newest_first_with_their_lines_around_them(heron: Heron, logs: Path) -> None:
    write(logs, "container_1_word_1", "one", "two needle", "three", "four\nneedle five")
    found = heron("logs", "local", "wordy", "--find", "needle")
    assert [line.partition(" ")[2] for line in found.out.splitlines()] == [
        "INFO  container_1_word_1 [user] needle five", "INFO  container_1_word_1 [user] two needle",
    ]  # fmt: skip
    around = heron("logs", "local", "wordy", "word", "--find", "two", "--context", "1").out.splitlines()
    assert [line.partition(" ")[0] for line in around] == [f"container_1_word_1{mark}" for mark in "-:-"]
    assert "three" in around[2] and "needle five" not in heron("logs", "local", "wordy", "--find", "two").out
    assert heron("logs", "local", "wordy", "--find", "Needle").err.splitlines()[-1].startswith("nothing found in ")
    folded = heron("logs", "local", "wordy", "-i", "--find", "NEEdle").out.splitlines()
    assert [line.rpartition("] ")[2] for line in folded] == ["needle five", "two needle"]
    assert "--ignore-case needs --find" in heron("logs", "local", "wordy", "-i").err
    [one] = heron("logs", "local", "wordy", "--find", "needle", "-n", "1", "--json", "--context", "1").out.splitlines()
    assert json.loads(one)["before"][0].endswith("] four") and json.loads(one)["text"] == "needle five"


def test_an_executor_that_is_down_costs_nothing_if_its_files_are_here(heron: Heron, logs: Path) -> None:
    write(logs, "tmaster", "needle")
    found = heron("logs", "local", "wordy", "--find", "needle")
    assert "tmaster [user] needle" in found.out and found.err == ""
    (logs / "tmaster.log").unlink()
    write(logs, "container_1_word_1", "needle")
    found = heron("logs", "local", "wordy", "--find", "needle")
    assert "word_1" in found.out and "not all logs of container 0 were searched" in found.err


def test_the_bounds_are_said(heron: Heron, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_find, "LIMIT_MAX", 3)
    write(logs, "container_1_word_1", *["needle"] * 5)
    found = heron("logs", "local", "wordy", "container_1_word_1", "--find", "needle")
    assert len(found.out.splitlines()) == 3 and "stopped after 3 hits" in found.err


def test_logs_of_an_ended_topology_are_searched(heron: Heron, home: Path) -> None:
    home.mkdir(mode=0o700)
    write(home / "topologies" / "local" / "me" / "old" / "log-files", "stmgr-1", "a needle")
    assert "stmgr-1 [user] a needle" in heron("logs", "local", "old", "--find", "needle").out


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--find", ""), "--find needs one line"),
        (("--find", "a\nb"), "--find needs one line"),
        (("--context", "3"), "--context needs --find"),
        (("--find", "a", "-f", "--context", "3"), "--context needs --find"),
        (("--find", "a", "--level", "LOUD"), "unknown log level"),
        (("wrod", "--find", "a"), "did you mean 'word'"),
    ],
)
def test_wrong_flags_are_one_sentence(heron: Heron, logs: Path, flags: tuple[str, ...], why: str) -> None:
    write(logs, "container_1_word_1", "needle")
    write(logs, "tmaster", "needle")
    result = heron("logs", "local", "wordy", *flags)
    assert result.code != 0 and why in result.err and result.err.count("\n") == 1


def test_each_process_has_its_colour_and_nothing_else_controls_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(as_json=False, coloured=True)
    for process in ("a_1", "b_2", "a_1"):
        lines.print(Record(1e9, "INFO", process, "user", "\x1b[31mred"))
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == third and "\x1b[36ma_1\x1b[0m" in first and "\x1b[32mb_2\x1b[0m" in second
    assert "\\x1b[31mred" in first and click.unstyle(first).count("\x1b") == 0
