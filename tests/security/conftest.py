"""Fixtures of the security tests."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest


@pytest.fixture
def nothing_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A parser that reaches for pickle fails the test."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was unpickled")

    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "load", refuse)
    yield
