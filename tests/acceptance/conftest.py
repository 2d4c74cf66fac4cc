"""Fixtures of the acceptance tests: the `heron` command in an empty home, clean before and after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Heron


@pytest.fixture
def tmp_path(home: Path) -> Path:
    """A folder for the user's files; not pytest's, which would follow the home's TMPDIR."""
    folder = home.parent / "user"
    folder.mkdir()
    return folder


@pytest.fixture
def heron(home: Path) -> Iterator[Heron]:
    """`heron` with a home of its own; whatever the test leaves running is killed through the command."""
    command = Heron(home)
    yield command
    for name in command.names():
        command.kill(name)
    command.check_clean()
