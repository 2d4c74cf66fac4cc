"""Logs in an object store are copied to where they are read: the newest first, bounded, and said so."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.clusters import archived_logs
from heronpy.clusters.archived_logs import archived_runs
from heronpy.storage import log_archive
from heronpy.storage.log_archive import LogArchive, Run
from tests.support.launch import launch_spec
from tests.support.memory_objects import MemoryObjects

PLACE = "s3://bucket/logs"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LogArchive:
    objects = MemoryObjects()
    monkeypatch.setattr(log_archive, "open_own", lambda *given: objects)
    archive = LogArchive(PLACE, "wc-1")
    for run, name, content in (
        (Run(1, 1, "n1"), "stmgr-1.log", b"old"),
        (Run(1, 2, "n2"), "stmgr-1.log", b"new"),
        (Run(1, 2, "n2"), "stmgr-1.log.1", b"rotated"),
    ):
        (tmp_path / name).write_bytes(content)
        archive.put(run, tmp_path / name)
    return archive


def records(engine: str = "slurm", archive: str = PLACE) -> Any:
    settings = {"logging": {"archive": archive}}
    submitted = launch_spec("wc", "wc-1", Path("/nowhere"), engine=engine, settings=settings).submitted
    return SimpleNamespace(submitted=lambda name: submitted)


def copied(into: Path, said: list[str], **options: Any) -> dict[str, bytes]:
    runs = archived_runs(records(**options), "wc", Path("/nowhere"), into, said.append)
    return {
        f"{run.name}/{file.name}": file.read_bytes()
        for run, folder in runs.items()
        for file in (folder / "log-files").iterdir()
    }


def test_all_runs_are_copied_for_this_user_alone(store: LogArchive, tmp_path: Path) -> None:
    said, into = list[str](), tmp_path / "into"
    assert copied(into, said) == {
        "1.1@n1/stmgr-1.log": b"old", "1.2@n2/stmgr-1.log": b"new", "1.2@n2/stmgr-1.log.1": b"rotated",
    }  # fmt: skip
    assert said == []
    modes = {path.stat().st_mode & 0o777 for path in into.rglob("*.log")}
    assert modes == {0o600} and into.stat().st_mode & 0o777 == 0o700


def test_what_would_be_too_much_is_left_out_and_said(
    store: LogArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archived_logs, "COPIED_MAX_BYTES", 6)
    said = list[str]()
    assert copied(tmp_path / "into", said) == {"1.1@n1/stmgr-1.log": b"old", "1.2@n2/stmgr-1.log": b"new"}
    assert len(said) == 1 and said[0].startswith("1 logs of") and "read them in the archive" in said[0]


@pytest.mark.parametrize("options", [{"engine": ""}, {"archive": ""}])
def test_without_an_engine_or_an_archive_there_is_nothing(
    store: LogArchive, tmp_path: Path, options: dict[str, str]
) -> None:
    assert copied(tmp_path / "into", [], **options) == {}
