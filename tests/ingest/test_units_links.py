"""Hard links, and logs whose next life begins like the one before: each line once, and copies are counted."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heronpy.cli.look.units import check_pipeline, list_pipelines
from heronpy.connectors.textfiles import finding
from heronpy.connectors.textfiles.decoding import LineDecoder
from heronpy.connectors.textfiles.following import Follower
from heronpy.growing.patterns import parse
from heronpy.ingest.checking import check
from heronpy.ingest.fingerprints import head_text, tail_text
from heronpy.ingest.ledger.requests import KnownFile
from heronpy.ingest.ledger.types import Copy, File, FileState
from heronpy.ingest.options import logs_at
from heronpy.ingest.watch import Watch
from tests.ingest.test_units_inside import PATIENCE_S, Running, numbers, options, run, shown, write
from tests.support.waiting import wait_for

__all__ = ["options", "run"]
LINES = "".join(f"line {number}\n" for number in range(5))


class Folder:
    """A folder that is watched: the files that its ledger would have, as sizes by name."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.watch, self.now_s = folder, Watch(logs_at(f"{folder}/*.log*", ""), 7.0, (), ""), 0.0
        self.sizes: dict[tuple[str, int], int] = {}
        self.paths: dict[tuple[str, int], str] = {}

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.now_s += 1.0
            self.watch.look(self.now_s)
            for file in self.watch.changes(100)[0]:
                self.sizes[file.key, file.generation] = file.size
                self.paths[file.key, file.generation] = file.path

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(finding, "_RACY_NS", -(1 << 62))  # what it sees counts as unchanged for long
    return Folder(tmp_path)


# ---- hard links -----------------------------------------------------------------------------
def test_names_of_one_inode_that_come_in_one_look_are_one_file(folder: Folder) -> None:
    for before in ((), ("old.log",)):
        for name in before:
            (folder.folder / name).write_text("an older one\n")
        folder.look()
    log = folder.folder / "one.log"
    log.write_text(LINES)
    for name in ("another.log", "zlast.log"):
        os.link(log, folder.folder / name)
    folder.look(3)
    assert sorted(folder.sizes.values()) == [len("an older one\n"), len(LINES)]
    with log.open("a") as file:
        file.write("more\n")
    log.unlink()
    folder.look(4)
    assert folder.bytes == len(f"an older one\n{LINES}more\n") and folder.watch.copies() == 0


def test_names_of_an_inode_that_was_written_anew_are_one_file(folder: Folder) -> None:
    log = folder.folder / "one.log"
    log.write_text(LINES)
    os.link(log, folder.folder / "two.log")
    folder.look(2)
    log.write_text("something else\n")  # in place, for both names
    folder.look(3)
    assert sorted(folder.sizes.values()) == sorted([len(LINES), len("something else\n")])


def test_a_reader_of_text_files_takes_names_of_one_inode_for_one(tmp_path: Path) -> None:
    follower = Follower([parse(f"{tmp_path}/*.log")], LineDecoder(), block_bytes=1 << 16)
    (tmp_path / "one.log").write_text(LINES)
    os.link(tmp_path / "one.log", tmp_path / "two.log")
    rows: list[str] = []
    for now in (1.0, 2.0):
        follower.attend(now, 0, 1)
        while (block := follower.next_block()) is not None:
            rows += block.lines
    assert rows == LINES.splitlines()


def test_rows_of_linked_logs_are_there_once(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    write(tmp_path, 0, 20, "east")
    os.link(tmp_path / "logs" / "east" / "a.log", tmp_path / "logs" / "east" / "b.log")
    one = run("east", **options)
    wait_for(lambda: one.drive() or len(numbers(tmp_path / "table")) == 20, PATIENCE_S, "all rows")
    assert numbers(tmp_path / "table") == Counter(range(20))


# ---- the next life of a log -----------------------------------------------------------------
def test_a_log_that_begins_like_the_renamed_one_is_a_new_one(folder: Folder) -> None:
    log = folder.folder / "a.log"
    log.write_text(LINES)
    folder.look(2)
    log.rename(f"{log}.1")
    log.write_text(LINES)
    folder.look(2)
    assert folder.bytes == 2 * len(LINES) and folder.watch.copies() == 0
    with log.open("a") as file:
        file.write("more\n")
    folder.look(2)
    assert folder.bytes == 2 * len(LINES) + 5 and folder.paths["a.log", 1] == "a.log.1"


def test_a_shorter_one_is_read_at_once_and_also_after_a_restart(folder: Folder) -> None:
    log = folder.folder / "a.log"
    log.write_text(LINES)
    folder.look(2)
    log.rename(f"{log}.1")
    folder.look(2)
    known = [
        KnownFile(
            File(1, "a.log", 1, 0.0, head_text(file.fingerprint), len(LINES), len(LINES), FileState.LIVE, None, None),
            (Copy(1, "", "a.log.1", len(LINES), f"{file.device}:{file.inode}", tail_text(file.fingerprint), 0.0),),
        )
        for file in folder.watch._table
    ]
    folder.watch = Watch(logs_at(f"{folder.folder}/*.log*", ""), 7.0, known, "")
    log.write_text(LINES[:14])
    folder.look(2)
    assert folder.sizes == {("a.log", 1): len(LINES), ("a.log", 2): 14}


def test_a_log_that_is_seen_truncated_beside_its_copy_is_a_new_one(folder: Folder) -> None:
    """Also if it begins as before: its inode stayed where it was, and the copy has what was read."""
    log = folder.folder / "a.log"
    log.write_text(LINES)
    folder.look(2)
    shutil.copyfile(log, f"{log}.1")
    folder.look()
    os.truncate(log, 7)
    folder.look(2)
    assert folder.sizes == {("a.log", 1): len(LINES), ("a.log", 2): 7}
    with log.open("a") as file:
        file.write(LINES[7:])
    folder.look(2)
    assert folder.bytes == 2 * len(LINES) and folder.watch.copies() == 0


def test_what_is_taken_for_a_copy_is_counted_as_long_as_it_is_one(folder: Folder) -> None:
    log, copy = folder.folder / "a.log", folder.folder / "a.log.bak"
    log.write_text(LINES)
    folder.look()
    shutil.copyfile(log, copy)
    for _ in range(3):
        folder.look()
        assert folder.watch.copies() == 1
    with copy.open("a") as file:
        file.write("a note\n")
    folder.look()
    assert folder.watch.copies() == 1, "appended to a copy"
    copy.unlink()
    folder.look()
    assert folder.watch.copies() == 0 and folder.bytes == len(LINES)


def test_list_and_check_say_what_is_taken_for_a_copy(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, table = options["ledger"], str(tmp_path / "table")
    options |= {"logs": f"{tmp_path}/logs/{{site}}/*.log*"}
    write(tmp_path, 0, 20, "east")
    shutil.copyfile(tmp_path / "logs" / "east" / "a.log", tmp_path / "logs" / "east" / "a.log.1")
    one = run("east", **options)
    wait_for(lambda: one.drive() or shown(ledger).published_units, PATIENCE_S, "a unit")
    wait_for(lambda: one.drive() or not shown(ledger).units, PATIENCE_S, "all units")
    list_pipelines(ledger, False)
    assert "; 1 file skipped as a copy of another file" in capsys.readouterr().out
    check_pipeline("lines", table, ledger, False)
    assert "; 1 file skipped as a copy of another file" in capsys.readouterr().out
    assert check(ledger, "lines", table).copies == 1
    assert numbers(tmp_path / "table") == Counter(range(20))


# ---- what nobody has any more ---------------------------------------------------------------
def test_a_shorter_copy_is_not_the_file_that_is_gone(folder: Folder) -> None:
    """It would keep the bytes waiting that nobody has, and nobody would count them as lost."""
    log = folder.folder / "a.log"
    log.write_text(LINES)
    folder.look()
    (file,) = folder.watch._table
    log.unlink()
    row = File(1, "a.log", 1, 0.0, head_text(file.fingerprint), len(LINES), 7, FileState.LIVE, None, 0.0)
    (folder.folder / "a.log.bak").write_text(LINES[:21])
    folder.sizes.clear()
    folder.watch = Watch(logs_at(f"{folder.folder}/*.log*", ""), 7.0, [KnownFile(row, ())], "")
    folder.look(4)
    assert not folder.sizes and folder.watch.copies() == 1
    (folder.folder / "a.log.bak").write_text(LINES + "more\n")
    folder.look(2)
    assert folder.sizes == {("a.log", 1): len(LINES) + 5}
