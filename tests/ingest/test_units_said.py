"""What people are told while nobody looks, and while the ledger cannot be written."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heronpy.api.metrics import MultiAssignableMetrics
from heronpy.cli.look.units import list_pipelines
from heronpy.common.errors import LedgerAwayError
from heronpy.ingest import asking
from heronpy.ingest.figures import SITE_GAUGES, KeeperFigures
from heronpy.ingest.ledger.sqlite import SqliteStore
from tests.ingest.test_units_inside import Running, numbers, options, run, settle, shown, write

__all__ = ["options", "run"]


def size_of(root: Path) -> int:
    return sum(path.stat().st_size for path in (root / "logs" / "east").glob("*.log"))


def test_a_list_says_who_has_looked_last_when_nobody_looks(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, 0, 50, "east")
    site = run("east", **options)
    settle(site, options["ledger"], size_of(tmp_path))
    list_pipelines(options["ledger"], False)
    assert "no keeper looks" not in capsys.readouterr().out
    site.end()
    write(tmp_path, 50, 50, "east")
    list_pipelines(options["ledger"], False)
    said = capsys.readouterr().out
    assert "0B waiting" in said and "no keeper scans the files (the last keeper was east/lines/lines-keeper-1, " in said


def test_a_ledger_whose_disk_is_full_is_said_once_and_waited_for(
    tmp_path: Path,
    run: Callable[..., Running],
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(asking, "TELL_S", 0.0)
    write(tmp_path, 0, 100, "east")
    site = run("east", **options)
    settle(site, options["ledger"], size_of(tmp_path))
    write(tmp_path, 100, 100, "east")

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "_begin", full)
        for _ in range(5):
            site.drive()
    said = [text for text in site.delegate.said if "database or disk is full" in text]
    assert len(said) == 2, "the worker and the keeper, once each"
    assert site.delegate.outages == said
    settle(site, options["ledger"], size_of(tmp_path))
    assert set(numbers(tmp_path / "table").values()) == {1}
    assert site.delegate.outages == [*said, "", ""], "each goes on once"
    caplog.clear()  # its records hold errors, and these the worker


def test_a_ledger_that_cannot_be_made_for_want_of_space_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("heronpy.ingest.ledger.sqlite.make_folders", full)
    with pytest.raises(LedgerAwayError, match="No space left on device; free space on its disk"):
        SqliteStore(tmp_path / "l" / "units.db").pipelines()


def test_keepers_report_each_site(tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]) -> None:
    write(tmp_path, 0, 50, "east")
    write(tmp_path, 0, 50, "west")
    found: dict[str, Any] = {}

    class Context:
        def register_metric(self, name: str, metric: object, bucket_s: float) -> None:
            found[name] = metric

    sites = [run(name, **options) for name in ("east", "west")]
    for site in sites:
        site.drive()
        site.drive()
    figures = KeeperFigures(Context())  # type: ignore[arg-type]
    figures.count_for("lines")
    figures.show(shown(options["ledger"]), 0)
    for name in SITE_GAUGES:
        assert isinstance(found[name], MultiAssignableMetrics)
        assert set(found[name].get_value_and_reset()) == {"lines", "lines/east", "lines/west"} - {"lines"}
