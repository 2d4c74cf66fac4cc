"""With an older copy next to a log that is rotated by `copytruncate`, later lines are not lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from heronpy.connectors.textfiles import finding
from heronpy.growing.scan import Scanner
from heronpy.ingest.options import logs_at
from heronpy.ingest.watch import Watch


def test_a_rotation_behind_the_list_of_names_does_not_make_an_older_copy_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "a.log"

    def append(first: int, last: int) -> None:
        with log.open("a") as file:
            file.write("".join(f"line {number}\n" for number in range(first, last)))

    watch = Watch(logs_at(f"{tmp_path}/*.log*", ""), 7.0, (), "")
    append(0, 100)
    watch.look(1.0)
    append(100, 120)
    shutil.copyfile(log, tmp_path / "a.log.bak")
    append(120, 140)
    size = log.stat().st_size
    look = Scanner.look

    def rotated(self: Scanner) -> Any:
        """The names are listed, and then the log is copied and truncated."""
        found = look(self)
        monkeypatch.setattr(Scanner, "look", look)
        shutil.copyfile(log, tmp_path / "a.log.1")
        os.truncate(log, 0)
        return found

    monkeypatch.setattr(Scanner, "look", rotated)
    for number in range(2, 6):
        watch.look(float(number))
    seen, gone = watch.changes(10)
    assert [(one.path, one.size) for one in seen] == [("a.log.1", size)] and not gone


def test_a_copy_that_was_seen_beside_its_log_becomes_the_file_when_the_log_is_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between copying and truncating there is time for a look, which finds that the copy need not be read."""
    monkeypatch.setattr(finding, "_RACY_NS", -(1 << 62))  # what it sees counts as unchanged for long
    log = tmp_path / "a.log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    size = log.stat().st_size
    watch = Watch(logs_at(f"{tmp_path}/*.log*", ""), 7.0, (), "")
    shutil.copyfile(log, tmp_path / "a.log.1")
    watch.look(1.0)
    watch.look(2.0)
    os.truncate(log, 0)
    for number in range(3, 7):
        watch.look(float(number))
    seen, gone = watch.changes(10)
    assert [(one.path, one.size) for one in seen] == [("a.log.1", size)] and not gone


def test_what_is_appended_to_a_copy_is_not_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    size = log.stat().st_size
    watch = Watch(logs_at(f"{tmp_path}/*.log*", ""), 7.0, (), "")
    watch.look(1.0)
    shutil.copyfile(log, tmp_path / "a.log.bak")
    with (tmp_path / "a.log.bak").open("a") as file:
        file.write("a note\n")
    for number in range(2, 5):
        watch.look(float(number))
    seen, gone = watch.changes(10)
    assert [(one.path, one.size) for one in seen] == [("a.log", size)] and not gone
