"""Fixtures of the tests with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Heron


@pytest.fixture
def out(home: Path) -> Path:
    """A folder that user code writes to."""
    folder = home.parent / "out"
    folder.mkdir()
    return folder


@pytest.fixture
def heron(home: Path) -> Iterator[Heron]:
    """`heron` with a home of its own; whatever the test leaves running is killed."""
    command = Heron(home)
    yield command
    for name in command.names():
        command.kill(name)
    command.check_clean()
