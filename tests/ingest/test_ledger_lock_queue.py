"""Turns of processes at a ledger in SQLite."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from heronpy.ingest.ledger import sqlite
from heronpy.ingest.ledger.sqlite import TURN_S, SqliteStore, Waiters, pause_s
from heronpy.ingest.ledger.store import Changes


def test_who_waits_longer_looks_sooner() -> None:
    pauses = [pause_s(waited_s, 0.002) for waited_s in (0.0, 0.004, 0.012, 5.0)]
    assert pauses == pytest.approx([0.002, 0.001, 0.0005, TURN_S[0]])


def test_waiters_are_seen_until_they_leave_or_end(tmp_path: Path) -> None:
    mine, first, second = Waiters(tmp_path), Waiters(tmp_path), Waiters(tmp_path)
    assert mine.is_empty()
    first.join()
    second.join()
    assert not mine.is_empty()
    first.leave()
    assert not mine.is_empty()
    second.close()  # as the end of its process does
    assert mine.is_empty()
    mine.close()
    first.close()


def test_who_comes_while_another_waits_lets_it_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has just had a turn, and asks at once for the next one, would otherwise have that as well."""
    path = tmp_path / "l" / "ledger.db"
    store = SqliteStore(path)
    store.transact("p", lambda view, now: (Changes(), None))
    waiting = Waiters(path.parent)
    waiting.join()
    pauses: list[float] = []
    monkeypatch.setattr(sqlite, "time", SimpleNamespace(**{**vars(time), "sleep": pauses.append}))
    store.transact("p", lambda view, now: (Changes(), None))
    assert len(pauses) == 1
    waiting.close()
    store.transact("p", lambda view, now: (Changes(), None))
    assert len(pauses) == 1
    store.close()
