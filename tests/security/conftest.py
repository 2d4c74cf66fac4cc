"""Fixtures of the security tests."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Heron


@pytest.fixture
def nothing_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A parser that reaches for pickle fails the test (S04)."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was unpickled")

    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "load", refuse)
    yield


@pytest.fixture
def heron(home: Path) -> Iterator[Heron]:
    """`heron` with a home of its own; whatever the test leaves running is killed."""
    command = Heron(home)
    yield command
    for name in command.names():
        command.kill(name)
    command.check_clean()
