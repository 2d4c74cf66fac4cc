"""What users and disks do wrong: each is one sentence that names the thing and says how to go on."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from heronpy.common.errors import LedgerError
from heronpy.growing.identity import HEAD_BYTES, Fingerprint, digest
from heronpy.ingest import LineFiles, ParquetTable
from heronpy.ingest.attempt import Attempt, RowError
from heronpy.ingest.fingerprints import head_text
from heronpy.ingest.ledger import sqlite
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.requests import Chunk, Open, Who, Work
from heronpy.ingest.ledger.sqlite import SqliteStore
from heronpy.ingest.ledger.types import Config, Kind
from heronpy.ingest.options import UnitOptions, logs_at
from heronpy.ingest.outputs.base import Output
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.unit import LogUnit, SuspectPage
from heronpy.ingest.watch import Watch
from tests.support.memory_ledger import MemoryStore

CONFIG = Config(pattern="/logs/*.log")


def _noticed(folder: Path, is_error: bool = True, **more: Any) -> str:
    """What is said of a file that is not processed, which people see as an exception."""
    watch = Watch(logs_at(f"{folder}/logs/*.log", ""), 7.0, (), "", **more)
    watch.look(1.0)
    assert watch.changes(10) == ((), ())
    notices = watch.notices()
    found = next((notice for notice in notices if "a.log" in notice.text), notices[0])
    assert found.is_error == is_error
    watch.look(2.0)
    assert watch.notices() == []  # once
    return found.text


def no_match(folder: Path, patch: pytest.MonkeyPatch) -> str:
    return _noticed(folder, is_error=False)


def no_match_now(folder: Path, patch: pytest.MonkeyPatch) -> str:
    """It waits for none, though it said so."""
    said = _noticed(folder, bounded=True)
    assert "wait" not in said
    return said


def fifo(folder: Path, patch: pytest.MonkeyPatch) -> str:
    os.mkfifo(folder / "logs" / "a.log")
    return _noticed(folder)


def link_leading_out(folder: Path, patch: pytest.MonkeyPatch) -> str:
    (folder / "logs" / "a.log").symlink_to("/etc/passwd")
    return _noticed(folder)


def unreadable(folder: Path, patch: pytest.MonkeyPatch) -> str:
    """As root reads everything, the call fails by itself."""
    (folder / "logs" / "a.log").write_text("one\n")
    real = os.open

    def refused(path: Any, *rest: Any, **more: Any) -> int:
        if path == "a.log":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, *rest, **more)

    patch.setattr("heronpy.growing.below.os.open", refused)
    return _noticed(folder)


def _attempt(folder: Path, data: bytes, output: Output, rows: Callable[[LogUnit], Any], **more: Any) -> str:
    """The error of an attempt, which is a try, and bad bytes in the end."""
    path = folder / "logs" / "a.log"
    path.write_bytes(data)
    head = head_text(Fingerprint("first", len(data[:HEAD_BYTES]), digest(data[:HEAD_BYTES]), 0, ""))
    work = Work(7, 1, 1, len(data), (Chunk(1, "a.log", 1, 0, len(data), head, "a.log"),), 5.0)
    options = UnitOptions("p", f"{folder}/logs/*.log", "sqlite:/x", output, CONFIG, **more)
    stages = Stages(output.table)
    attempt = Attempt(work, options, rows, stages, SuspectPage(folder / "pages", "w"))
    with pytest.raises(RowError) as found:
        while attempt.go_on(float("inf")) is None:
            pass  # once more, row by row
    attempt.discard()
    assert not list((stages.home / "g1").iterdir())
    return str(found.value.__cause__)


def long_line(folder: Path, patch: pytest.MonkeyPatch) -> str:
    data = b"one\n" + b"x" * 5_000 + b"\n"
    return _attempt(folder, data, LineFiles(f"{folder}/t"), lambda unit: unit.lines(), line_bytes_max=1_000)


def wrong_encoding(folder: Path, patch: pytest.MonkeyPatch) -> str:
    return _attempt(folder, b"one\n\xff\n", LineFiles(f"{folder}/t"), lambda unit: unit.lines())


def schema_misfit(folder: Path, patch: pytest.MonkeyPatch) -> str:
    pytest.importorskip("pyarrow")
    table = ParquetTable(f"{folder}/t", {"ms": "int64"})
    return _attempt(folder, b"one\n", table, lambda unit: ([line] for line in unit.lines()))


def _refused(folder: Path) -> str:
    store = SqliteStore(folder / "l" / "ledger.db")
    with closing(store), pytest.raises(LedgerError) as found:
        Ledger(store, "p", Who("k", "1", Kind.KEEPER)).ask(Open(CONFIG))
    return str(found.value)


def network_file_system(folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setattr(sqlite, "file_system_of", lambda path: "nfs4")
    return _refused(folder)


def two_patterns(folder: Path, patch: pytest.MonkeyPatch) -> str:
    ledger = Ledger(MemoryStore(), "p", Who("k", "1", Kind.KEEPER))
    ledger.ask(Open(CONFIG))
    with pytest.raises(LedgerError) as found:
        ledger.ask(Open(Config(pattern="/other/*.log")))
    return str(found.value)


def newer_ledger(folder: Path, patch: pytest.MonkeyPatch) -> str:
    path = folder / "l" / "ledger.db"
    with closing(SqliteStore(path)) as store:
        store.pipelines()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    return _refused(folder)


def full_disk(folder: Path, patch: pytest.MonkeyPatch) -> str:
    def full(*about: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    patch.setattr(sqlite.os, "open", full)
    return _refused(folder)


def ledger_away(folder: Path, patch: pytest.MonkeyPatch) -> str:
    path = folder / "l" / "ledger.db"
    with closing(SqliteStore(path)) as store:
        store.pipelines()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        store = SqliteStore(path, busy_s=0.01)
        with closing(store), pytest.raises(LedgerError) as found:
            Ledger(store, "p", Who("k", "1", Kind.KEEPER)).ask(Open(CONFIG))
        other.execute("ROLLBACK")
    return str(found.value)


def deleted_stage(folder: Path, patch: pytest.MonkeyPatch) -> str:
    stages = Stages(f"{folder}/t")
    stage = stages.make(1, 7, 2)
    stages.discard(stage)
    with pytest.raises(LedgerError) as found:
        stages.publish(1, 7, 2)
    return str(found.value)


#: What is wrong, what the sentence names, and the fix that it has.
WALK: list[tuple[Callable[[Path, pytest.MonkeyPatch], str], str, str]] = [
    (no_match, "logs/*.log", "waiting for a file"),
    (no_match_now, "logs/*.log", "matches no file, so nothing is processed for it"),
    (fifo, "logs/a.log", "make the pattern exclude it"),
    (link_leading_out, "logs/a.log", "put its target into the pattern"),
    (unreadable, "logs/a.log", "check its permissions"),
    (long_line, "a.log", "check that it is a text file"),
    (wrong_encoding, "a.log", "set the right encoding"),
    (schema_misfit, "'ms'", "int64"),
    (network_file_system, "l/ledger.db", "PostgreSQL"),
    (two_patterns, "/other/*.log", "another name"),
    (newer_ledger, "l/ledger.db", "use that release"),
    (full_disk, "l/ledger.db", "free space on its disk"),
    (ledger_away, "l/ledger.db", "retry"),
    (deleted_stage, "unit 7", "heron units rebuild"),
]


@pytest.mark.parametrize(("wrong", "named", "fix"), WALK, ids=[wrong.__name__ for wrong, _, _ in WALK])
def test_each_is_one_sentence(
    wrong: Callable[[Path, pytest.MonkeyPatch], str],
    named: str,
    fix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "logs").mkdir()
    said = wrong(tmp_path, monkeypatch)
    assert named in said and fix in said, said
    assert "\n" not in said and "Traceback" not in said and len(said) < 400, said
