"""Fixtures of the tests with whole topologies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Heron


@pytest.fixture
def heron(home: Path) -> Iterator[Heron]:
    """`heron` with a home of its own; whatever the test leaves running is killed."""
    command = Heron(home)
    yield command
    for name in command.names():
        command.kill(name)
    command.check_clean()


@pytest.fixture
def user(home: Path) -> Path:
    """A folder for the user's files; not pytest's, which would follow the home's TMPDIR."""
    folder = home.parent / "user"
    folder.mkdir()
    return folder
